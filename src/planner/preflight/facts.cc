#include "planner/preflight/facts.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cctype>

#include "planner/preflight/preflight_data.h"

namespace perigee::planner {

namespace {

std::vector<std::string> strings(const Json& json, const char* key) {
  std::vector<std::string> out;
  if (!json.contains(key)) return out;
  for (const Json& item : json[key]) out.push_back(item.get<std::string>());
  return out;
}

std::map<std::string, std::string, std::less<>> texts(const Json& json, const char* key) {
  std::map<std::string, std::string, std::less<>> out;
  if (!json.contains(key)) return out;
  for (const auto& [name, value] : json[key].items()) out.emplace(name, value.get<std::string>());
  return out;
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

// Model names come with dots, dashes and underscores in every mixture.
std::string plain(std::string_view text) {
  std::string out = lower(text);
  std::replace(out.begin(), out.end(), '_', '-');
  return out;
}

ModelFacts read_model(const Json& json) {
  ModelFacts model;
  model.shape_name = json.value("shape", std::string());
  for (const ModelShape& shape : built_in_catalogue().models) {
    if (shape.name == model.shape_name) model.shape = &shape;
  }
  model.native = json.value("native", std::string());
  model.needs = json.value("needs", std::string());
  model.sparse = json.value("sparse", false);
  model.guide_without_aiv_on_a2 = json.value("guide_without_aiv_on_a2", false);
  model.load_tb = json.value("load_tb", 0.0);
  model.tool = strings(json, "tool");
  model.reasoning = strings(json, "reasoning");
  model.sglang_tool = strings(json, "sglang_tool");
  model.sglang_reasoning = strings(json, "sglang_reasoning");
  return model;
}

PreflightFacts read_facts() {
  PreflightFacts facts;
  const auto parsed = parse_json(embedded_preflight_facts());
  const auto rules = parse_json(embedded_rules());
  if (!parsed.ok() || !rules.ok()) return facts;
  const Json& json = *parsed;
  for (const Json& entry : json["engines"]) {
    EngineFacts engine;
    engine.engine = entry["engine"].get<std::string>();
    engine.version = entry["version"].get<std::string>();
    engine.flags = entry["flags"].get<std::string>();
    engine.keys = entry.value("keys", std::string());
    engine.cann = entry.value("cann", std::string());
    engine.hdk = strings(entry, "hdk");
    engine.additional_keys = strings(entry, "additional_keys");
    engine.forbidden_keys = strings(entry, "forbidden_keys");
    facts.engines.push_back(std::move(engine));
  }
  for (const Json& entry : json["chips"]) {
    ChipFacts chip;
    chip.name = entry["name"].get<std::string>();
    chip.match = strings(entry, "match");
    chip.hardware = entry["hardware"].get<std::string>();
    chip.devices = entry["devices"].get<std::int64_t>();
    chip.images = strings(entry, "images");
    chip.formats_refused = strings(entry, "formats_refused");
    chip.container_devices = strings(entry, "container_devices");
    chip.whole_driver = entry.value("whole_driver", false);
    chip.die_pairs = entry.value("die_pairs", false);
    facts.chips.push_back(std::move(chip));
  }
  for (const Json& entry : json["models"]) facts.models.push_back({strings(entry, "match"), read_model(entry)});
  for (const Json& entry : json["formats"]) {
    for (const std::string& match : strings(entry, "match")) {
      facts.formats.emplace_back(match, entry["format"].get<std::string>());
    }
  }
  for (const Json& entry : (*rules)["rules"]) {
    facts.rules.push_back({entry["id"].get<std::string>(), entry["name"].get<std::string>(),
                           entry["title"].get<std::string>(), entry["source"].get<std::string>()});
  }
  facts.removed_flags = texts(json, "removed_flags");
  facts.moved_environment = texts(json, "moved_environment");
  facts.removed_keys = texts(json, "removed_keys");
  facts.removed_connectors = texts(json, "removed_connectors");
  facts.known_environment = strings(json, "known_environment");
  facts.npu_resources = strings(json, "npu_resources");
  for (const auto& [name, values] : json["enum_names"].items()) {
    std::vector<std::string>& names = facts.enum_names[name];
    for (const Json& value : values) names.push_back(value.get<std::string>());
  }
  return facts;
}

}  // namespace

int compare_versions(std::string_view a, std::string_view b) {
  struct Parts {
    long numbers[4] = {0, 0, 0, 0};
    long candidate = 1000000;  // a release is newer than its candidates
  };
  const auto split = [](std::string_view text) {
    Parts parts;
    if (!text.empty() && text.front() == 'v') text.remove_prefix(1);
    std::size_t index = 0;
    for (std::size_t i = 0; i < text.size() && index < 4;) {
      if (std::isdigit(static_cast<unsigned char>(text[i])) != 0) {
        long value = 0;
        while (i < text.size() && std::isdigit(static_cast<unsigned char>(text[i])) != 0 && value < 100000000) {
          value = value * 10 + (text[i++] - '0');
        }
        parts.numbers[index++] = value;
      } else if (text[i] == '.') {
        ++i;
      } else if (text.substr(i, 2) == "rc") {
        i += 2;
        long value = 0;
        while (i < text.size() && std::isdigit(static_cast<unsigned char>(text[i])) != 0 && value < 100000) {
          value = value * 10 + (text[i++] - '0');
        }
        parts.candidate = value;
        break;
      } else {
        break;
      }
    }
    return parts;
  };
  const Parts left = split(a);
  const Parts right = split(b);
  for (int i = 0; i < 4; ++i) {
    if (left.numbers[i] != right.numbers[i]) return left.numbers[i] < right.numbers[i] ? -1 : 1;
  }
  if (left.candidate == right.candidate) return 0;
  return left.candidate < right.candidate ? -1 : 1;
}

const EngineFacts* PreflightFacts::engine(std::string_view name, std::string_view version, bool& exact) const {
  const EngineFacts* best = nullptr;
  const EngineFacts* oldest = nullptr;
  exact = false;
  for (const EngineFacts& candidate : engines) {
    if (candidate.engine != name) continue;
    if (oldest == nullptr || compare_versions(candidate.version, oldest->version) < 0) oldest = &candidate;
    if (!version.empty() && compare_versions(candidate.version, version) > 0) continue;
    if (best == nullptr || compare_versions(candidate.version, best->version) > 0) best = &candidate;
  }
  if (best == nullptr) best = oldest;
  exact = best != nullptr && !version.empty() && compare_versions(best->version, version) == 0;
  return best;
}

const ChipFacts* PreflightFacts::chip(std::string_view name) const {
  const std::string text = lower(name);
  if (text.empty()) return nullptr;
  for (const ChipFacts& candidate : chips) {
    if (candidate.name == text) return &candidate;
  }
  for (const ChipFacts& candidate : chips) {
    for (const std::string& match : candidate.match) {
      if (text.find(match) != std::string::npos) return &candidate;
    }
  }
  return nullptr;
}

ModelFacts PreflightFacts::model(std::string_view path) const {
  std::string_view trimmed = path;
  while (!trimmed.empty() && trimmed.back() == '/') trimmed.remove_suffix(1);
  const std::size_t slash = trimmed.rfind('/');
  const std::string name = plain(slash == std::string_view::npos ? trimmed : trimmed.substr(slash + 1));
  ModelFacts model;
  for (const ModelEntry& entry : models) {
    const bool fits = std::any_of(entry.match.begin(), entry.match.end(),
                                  [&](const std::string& text) { return name.find(plain(text)) != std::string::npos; });
    if (!fits) continue;
    model = entry.facts;
    break;
  }
  model.name = std::string(slash == std::string_view::npos ? trimmed : trimmed.substr(slash + 1));
  model.format = model.native;
  for (const auto& [text, format] : formats) {
    if (name.find(text) == std::string::npos) continue;
    model.format = format;
    break;
  }
  return model;
}

const RuleFacts* PreflightFacts::rule(std::string_view id) const {
  for (const RuleFacts& candidate : rules) {
    if (candidate.id == id) return &candidate;
  }
  return nullptr;
}

const PreflightFacts& preflight_facts() {
  static const PreflightFacts facts = read_facts();
  return facts;
}

}  // namespace perigee::planner
