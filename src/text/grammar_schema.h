// JSON schemas before they reach the grammar library (spec chat.md 6.2): checked against limits and against the
// keywords that are enforced, and rewritten so that every $ref is "#/$defs/rN". Internal to src/text. Pure.
#pragma once

#include <string>

#include "base/json.h"
#include "base/status.h"

namespace perigee {

struct SchemaLimits {
  std::size_t bytes = std::size_t{256} << 10;  // of the compact document
  std::size_t depth = 64;
  std::size_t schemas = 20'000;  // after the rewrite
};

// `schema` without identifiers and annotations that matter to nobody ($id, $anchor, $schema, $comment, unknown
// formats), with the referenced parts, and only those, under $defs. Draft-4 to draft-7 spellings become 2020-12.
// Keywords that the library does not enforce are an error: "/properties/a/not: the keyword \"not\" is not supported".
Result<Json> prepare_schema(const Json& schema, const SchemaLimits& limits = {});

// The document that the library compiles: compact JSON only.
std::string compact_schema_text(const Json& prepared);

}  // namespace perigee
