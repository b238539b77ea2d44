#include "planner/preflight/flag_table.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <memory>
#include <mutex>

#include "planner/preflight/preflight_data.h"

namespace perigee::planner {

namespace {

std::vector<std::string> strings(const Json& list) {
  std::vector<std::string> out;
  for (const Json& item : list) {
    if (item.is_string()) out.push_back(item.get<std::string>());
  }
  return out;
}

FlagSpec read_spec(const Json& json) {
  FlagSpec spec;
  if (json.contains("types")) spec.types = strings(json["types"]);
  if (json.contains("choices")) spec.choices = strings(json["choices"]);
  spec.closed = json.value("closed", true);
  spec.boolean = json.value("kind", std::string()) == "bool";
  spec.negatable = json.value("negatable", false);
  spec.internal = json.value("internal", false);
  spec.list = spec.has_type("list") || spec.has_type("set") || json.value("nargs", std::string()) == "+" ||
              json.value("nargs", std::string()) == "*";
  if (json.contains("bounds")) {
    const Json& bounds = json["bounds"];
    const auto read = [&](const char* name, std::optional<double>& out) {
      if (bounds.contains(name) && bounds[name].is_number()) out = bounds[name].get<double>();
    };
    read("ge", spec.ge);
    read("gt", spec.gt);
    read("le", spec.le);
    read("lt", spec.lt);
  }
  if (json.contains("default")) {
    spec.fallback = json["default"].is_string() ? json["default"].get<std::string>() : json["default"].dump();
  }
  return spec;
}

// A member that is an object, or an empty one.
const Json& object_of(const Json& json, const char* key) {
  static const Json empty = Json::object();
  return json.contains(key) && json[key].is_object() ? json[key] : empty;
}

FieldTable read_fields(const Json& json) {
  FieldTable fields;
  for (const auto& [name, field] : json.items()) fields.emplace(name, read_spec(field));
  return fields;
}

std::string dashed(std::string_view word) {
  std::string out(word);
  std::replace(out.begin(), out.end(), '_', '-');
  return out;
}

}  // namespace

bool FlagSpec::has_type(std::string_view type) const {
  return std::find(types.begin(), types.end(), type) != types.end();
}

bool FlagSpec::integer() const {
  if (!has_type("int")) return false;
  return std::all_of(types.begin(), types.end(), [](const std::string& t) { return t == "int" || t == "None"; });
}

bool FlagSpec::real() const {
  if (!has_type("float")) return false;
  return std::all_of(types.begin(), types.end(),
                     [](const std::string& t) { return t == "float" || t == "int" || t == "None"; });
}

Result<FlagTable> parse_flag_table(std::string_view text, std::string_view origin) {
  auto parsed = parse_json(text);
  if (!parsed.ok()) return parsed.status().with_context(origin);
  const Json& json = *parsed;
  if (!json.is_object() || !json.contains("package") || !json.contains("version")) {
    return invalid_argument("{}: expected a flag table with \"package\" and \"version\"", origin);
  }
  FlagTable table;
  table.package = json["package"].get<std::string>();
  table.version = json["version"].get<std::string>();
  if (json.contains("flags")) table.flags = read_fields(json["flags"]);
  for (const auto& [name, field] : object_of(json, "flags").items()) {
    if (!field.contains("aliases")) continue;
    for (const std::string& alias : strings(field["aliases"])) table.aliases.emplace(alias, name);
  }
  for (const char* key : {"json_config_keys", "classes"}) {
    if (!json.contains(key)) continue;
    for (const auto& [name, fields] : json[key].items()) table.classes.emplace(name, read_fields(fields));
  }
  for (const auto& [name, list] : object_of(json, "registries").items()) {
    table.registries.emplace(name, strings(list));
  }
  for (const auto& [name, field] : object_of(json, "environment").items()) {
    table.environment.emplace(name, field.contains("default") ? field["default"].dump() : std::string());
  }
  table.unknown_keys_rejected = json.value("unknown_keys_rejected", false);
  if (json.contains("additional_config")) table.additional_config = read_fields(json["additional_config"]);
  for (const auto& [name, value] : object_of(json, "key_to_class").items()) {
    table.key_to_class.emplace(name, value.get<std::string>());
  }
  table.internal_keys = strings(json.value("derived_or_internal_keys", Json::array()));
  table.connectors = strings(json.value("kv_connectors", Json::array()));
  table.connector_keys = strings(json.value("kv_connector_extra_config", Json::array()));
  return table;
}

ResolvedFlag FlagTable::resolve(std::string_view written) const {
  ResolvedFlag out;
  std::string name(written);
  if (name.rfind("--", 0) == 0) {
    const std::size_t dot = name.find('.');
    if (dot != std::string::npos) {
      out.key = name.substr(dot + 1);
      name.resize(dot);
    }
    name = dashed(name);
  } else if (const std::size_t dot = name.find('.'); dot != std::string::npos) {
    out.key = name.substr(dot + 1);
    name.resize(dot);
  }
  out.name = name;
  const auto lookup = [&](const std::string& candidate) -> const FlagSpec* {
    if (const auto flag = flags.find(candidate); flag != flags.end()) {
      out.name = candidate;
      return &flag->second;
    }
    if (const auto alias = aliases.find(candidate); alias != aliases.end()) {
      out.name = alias->second;
      return &flags.find(alias->second)->second;
    }
    return nullptr;
  };
  out.spec = lookup(name);
  if (out.spec != nullptr) return out;
  if (name.rfind("--no-", 0) == 0) {
    const FlagSpec* spec = lookup("--" + name.substr(5));
    if (spec != nullptr && spec->negatable) {
      out.spec = spec;
      out.negated = true;
      return out;
    }
    out.name = name;
  }
  if (name.size() > 3 && name.rfind("--", 0) == 0) {
    for (const auto& [candidate, spec] : flags) {
      if (candidate.rfind(name, 0) == 0) out.candidates.push_back(candidate);
    }
    if (out.candidates.size() == 1) {
      out.name = out.candidates[0];
      out.spec = &flags.find(out.name)->second;
      out.abbreviated = true;
      out.candidates.clear();
    }
  }
  return out;
}

std::string FlagTable::nearest_flag(std::string_view name) const {
  std::vector<std::string> names;
  names.reserve(flags.size() + aliases.size());
  for (const auto& [flag, spec] : flags) names.push_back(flag);
  for (const auto& [alias, flag] : aliases) names.push_back(alias);
  return nearest(dashed(name), names);
}

Result<const FlagTable*> flag_table(std::string_view name) {
  static std::mutex mutex;
  static std::map<std::string, std::unique_ptr<FlagTable>, std::less<>> tables;
  const std::lock_guard<std::mutex> lock(mutex);
  if (const auto found = tables.find(name); found != tables.end()) return found->second.get();
  for (const EmbeddedTable& file : embedded_flag_tables()) {
    if (file.name != name) continue;
    PERIGEE_ASSIGN_OR_RETURN(FlagTable table, parse_flag_table(file.text, name));
    auto owned = std::make_unique<FlagTable>(std::move(table));
    const FlagTable* raw = owned.get();
    tables.emplace(std::string(name), std::move(owned));
    return raw;
  }
  return invalid_argument("no flag table \"{}\"; known: {}", name, fmt::join(flag_table_names(), ", "));
}

std::vector<std::string> flag_table_names() {
  std::vector<std::string> names;
  for (const EmbeddedTable& file : embedded_flag_tables()) names.emplace_back(file.name);
  return names;
}

int edit_distance(std::string_view a, std::string_view b, int limit) {
  const auto difference = static_cast<int>(a.size()) - static_cast<int>(b.size());
  if (difference > limit || -difference > limit) return limit + 1;
  std::vector<int> before(b.size() + 1);
  std::vector<int> previous(b.size() + 1);
  std::vector<int> current(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) previous[j] = static_cast<int>(j);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    current[0] = static_cast<int>(i);
    int best = current[0];
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const int substitution = previous[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      current[j] = std::min({previous[j] + 1, current[j - 1] + 1, substitution});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        current[j] = std::min(current[j], before[j - 2] + 1);
      }
      best = std::min(best, current[j]);
    }
    if (best > limit) return limit + 1;
    std::swap(before, previous);
    std::swap(previous, current);
  }
  return std::min(previous[b.size()], limit + 1);
}

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  const int limit = std::max(2, static_cast<int>(word.size()) / 5);
  int best = limit + 1;
  std::string result;
  for (const std::string& candidate : candidates) {
    const int distance = edit_distance(word, candidate, limit);
    if (distance < best) {
      best = distance;
      result = candidate;
    }
  }
  return result;
}

}  // namespace perigee::planner
