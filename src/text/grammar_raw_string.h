// The strings that a JSON schema allows, as text without JSON quoting: what an argument element of type string holds.
// Internal to src/text. Pure.
#pragma once

#include <optional>
#include <set>
#include <string>

#include "base/json.h"
#include "base/status.h"

namespace perigee {

struct RawStrings {
  bool any = false;                             // every string; else:
  std::optional<std::set<std::string>> values;  // a finite set, possibly empty
  std::string expression;                       // else: of a Lark terminal
};

// `schema` and `defs` come from prepare_schema(). Errors name the keyword that cannot be expressed.
Result<RawStrings> raw_strings(const Json& schema, const Json& defs);

}  // namespace perigee
