// Flags, configuration keys and environment variables of one engine version (data/flags). A new version is a new
// file in that folder and a line in data/preflight.json. Tables are immutable after the first use, thread-safe.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace perigee::planner {

struct FlagSpec {
  std::vector<std::string> types;  // "int", "float", "str", "bool", "list", "literal", "None" or a class name
  std::vector<std::string> choices;
  bool closed = true;      // false: plug-ins add choices
  bool boolean = false;    // takes no value
  bool negatable = false;  // also --no-NAME
  bool list = false;       // takes several values
  bool internal = false;
  std::optional<double> ge, gt, le, lt;
  std::string fallback;  // default as text, "" when there is none or it is computed

  bool has_type(std::string_view type) const;
  // Only "int" (and "None").
  bool integer() const;
  bool real() const;
};

using FieldTable = std::map<std::string, FlagSpec, std::less<>>;

struct ResolvedFlag {
  std::string name;  // canonical, or as written when unknown
  const FlagSpec* spec = nullptr;
  bool negated = false;
  std::string key;                      // --flag.key
  std::vector<std::string> candidates;  // an abbreviation that fits several flags
  bool abbreviated = false;
};

struct FlagTable {
  std::string package, version;
  FieldTable flags;
  std::map<std::string, std::string, std::less<>> aliases;
  std::map<std::string, FieldTable, std::less<>> classes;  // JSON configuration classes
  std::map<std::string, std::vector<std::string>, std::less<>> registries;
  std::map<std::string, std::string, std::less<>> environment;  // name to default
  // vllm-ascend only
  bool unknown_keys_rejected = false;
  FieldTable additional_config;
  std::map<std::string, std::string, std::less<>> key_to_class;
  std::vector<std::string> internal_keys;
  std::vector<std::string> connectors;
  std::vector<std::string> connector_keys;

  // `written` is a word such as --tp, -tp, --no-enable-x, --max_model_len or --compilation-config.mode (no "=").
  ResolvedFlag resolve(std::string_view written) const;
  std::string nearest_flag(std::string_view name) const;
};

// By file name without ".json", for example "vllm-0.30.0".
Result<const FlagTable*> flag_table(std::string_view name);
std::vector<std::string> flag_table_names();

// Reads a table; the file's own schema is tools/flag_tables.py's.
Result<FlagTable> parse_flag_table(std::string_view text, std::string_view origin);

// Edit distance with transpositions, capped: anything above `limit` gives limit + 1.
int edit_distance(std::string_view a, std::string_view b, int limit);
// The candidate that a person may have meant, or "".
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace perigee::planner
