// The one door for JSON documents from outside (requests, config.json, manifests): a SAX pass with limits that
// builds nlohmann::ordered_json. nlohmann alone has no depth limit (dump of a deep value overflows the stack)
// and its ordered objects are quadratic in their keys, so both are capped here. Thread-safe.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstddef>
#include <string>
#include <string_view>

#include "base/status.h"

namespace perigee {

using Json = nlohmann::ordered_json;

enum class DuplicateKeys { kRefuse, kLastWins };

struct JsonLimits {
  std::size_t bytes = std::size_t{64} << 20;
  std::size_t depth = 100;
  std::size_t keys_per_object = 4096;
  std::size_t values = std::size_t{1} << 22;
  DuplicateKeys duplicates = DuplicateKeys::kLastWins;
};

// Integers outside 64 bits and numbers such as 1e400 are refused: nlohmann would turn them into other numbers.
// The error gives the byte offset and what was wrong.
Result<Json> parse_json(std::string_view text, const JsonLimits& limits = {});

// Reads a whole file (bounded by limits.bytes) and parses it; errors name the file.
Result<Json> read_json_file(const std::string& path, const JsonLimits& limits = {});

}  // namespace perigee
