#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

#include "base/checked.h"
#include "planner/preflight/extractor.h"

namespace perigee::planner {

namespace {

constexpr std::size_t kMostMistaken = 32;  // looking for the nearest flag goes through the whole table

// Flags of the small programs that come with the engines; they have no table of their own.
const FlagTable& helper_table(LaunchKind kind) {
  const auto make = [](std::initializer_list<std::pair<const char*, const char*>> flags) {
    FlagTable table;
    for (const auto& [name, type] : flags) {
      FlagSpec spec;
      spec.types = {type};
      spec.boolean = spec.types[0] == "bool";
      spec.list = spec.types[0] == "list";
      table.flags.emplace(name, spec);
    }
    return table;
  };
  static const FlagTable proxy = make({{"--host", "str"},
                                       {"--port", "int"},
                                       {"--prefiller-hosts", "list"},
                                       {"--prefiller-ports", "list"},
                                       {"--decoder-hosts", "list"},
                                       {"--decoder-ports", "list"},
                                       {"--max-retries", "int"},
                                       {"--retry-delay", "float"}});
  static const FlagTable online = make({{"--dp-size", "int"},
                                        {"--tp-size", "int"},
                                        {"--pp-size", "int"},
                                        {"--dp-size-local", "int"},
                                        {"--dp-rank-start", "int"},
                                        {"--dp-address", "str"},
                                        {"--dp-rpc-port", "int"},
                                        {"--vllm-start-port", "int"}});
  static const FlagTable router = make({{"--host", "str"},
                                        {"--port", "int"},
                                        {"--prefill", "list"},
                                        {"--decode", "list"},
                                        {"--worker-urls", "list"},
                                        {"--policy", "str"},
                                        {"--pd-disaggregation", "bool"}});
  static const FlagTable ray = make({{"--head", "bool"},
                                     {"--num-gpus", "int"},
                                     {"--port", "int"},
                                     {"--address", "str"},
                                     {"--node-ip-address", "str"},
                                     {"--resources", "str"}});
  switch (kind) {
    case LaunchKind::kOnlineDp:
      return online;
    case LaunchKind::kRouter:
      return router;
    case LaunchKind::kRayStart:
      return ray;
    default:
      return proxy;
  }
}

bool looks_like_flag(const std::string& text) {
  if (text.size() < 2 || text[0] != '-') return false;
  return std::isdigit(static_cast<unsigned char>(text[1])) == 0 && text[1] != '.' && text[1] != ' ';
}

// A value written by --flag.a.b: the nested maps are made on the way.
void put_key(Value& root, const std::string& path, const ValuePtr& value, int line) {
  const std::size_t dot = path.find('.');
  const std::string key = path.substr(0, dot);
  Member* found = nullptr;
  for (Member& member : root.members) {
    if (member.key == key) found = &member;
  }
  if (found == nullptr) {
    root.members.push_back({key, line, nullptr});
    found = &root.members.back();
  }
  if (dot == std::string::npos) {
    found->value = value;
    return;
  }
  auto inner = std::make_shared<Value>();
  if (found->value != nullptr && found->value->kind == ValueKind::kMap) *inner = *found->value;
  inner->kind = ValueKind::kMap;
  inner->line = line;
  put_key(*inner, path.substr(dot + 1), value, line);
  found->value = inner;
}

ValuePtr key_value(const Argument& argument) {
  if (argument.values.empty()) {
    auto value = std::make_shared<Value>();
    value->kind = ValueKind::kBool;
    value->text = Text("true", argument.line);
    value->line = value->last_line = argument.line;
    return value;
  }
  ParseFailure failure;
  const Text& text = argument.values[0].text;
  ValuePtr parsed = parse_located_json(text, failure);
  if (parsed != nullptr) return parsed;
  auto value = std::make_shared<Value>();
  value->kind = ValueKind::kString;
  value->text = text;
  value->line = value->last_line = text.line();
  return value;
}

bool is_config(const Argument& argument, const FlagTable& table) {
  const FlagSpec* spec = argument.flag.spec;
  if (spec == nullptr) return false;
  return spec->has_type("dict") || std::any_of(spec->types.begin(), spec->types.end(),
                                               [&](const std::string& type) { return table.classes.count(type) != 0; });
}

}  // namespace

std::optional<std::int64_t> human_integer(std::string_view text) {
  if (text.empty()) return std::nullopt;
  std::int64_t scale = 1;
  bool decimal = false;
  switch (text.back()) {
    case 'k':
      scale = 1000, decimal = true;
      break;
    case 'm':
      scale = 1000000, decimal = true;
      break;
    case 'g':
      scale = 1000000000, decimal = true;
      break;
    case 'K':
      scale = std::int64_t{1} << 10;
      break;
    case 'M':
      scale = std::int64_t{1} << 20;
      break;
    case 'G':
      scale = std::int64_t{1} << 30;
      break;
    default:
      break;
  }
  if (scale != 1) text.remove_suffix(1);
  std::int64_t whole = 0;
  const char* end = text.data() + text.size();
  if (const auto [stop, error] = std::from_chars(text.data(), end, whole);
      error == std::errc() && stop == end && !text.empty()) {
    return checked_mul(whole, scale);
  }
  double number = 0;
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (!decimal || error != std::errc() || stop != end || std::abs(number) > 1e9) return std::nullopt;
  return static_cast<std::int64_t>(number * static_cast<double>(scale));
}

void Extractor::add_launch(LaunchKind kind, const std::vector<Word>& words, std::size_t first,
                           const ShellCommand& found, int container, const std::string& program) {
  Launch launch;
  launch.kind = kind;
  launch.file = file_;
  launch.program = program;
  launch.first_line = found.first_line;
  launch.last_line = std::max(found.last_line, words.back().text.last_line());
  launch.conditional = found.conditional;
  launch.environment_open = found.environment_open;
  launch.module_launcher = program == "vllm.entrypoints.openai.api_server";
  launch.container = container;
  if (found.exported != nullptr) launch.environment = *found.exported;
  for (const auto& [name, setting] : found.local) launch.environment[name] = setting;
  if (kind == LaunchKind::kVllm) {
    launch.table = tables_.vllm;
  } else if (kind == LaunchKind::kSglang) {
    launch.table = tables_.sglang;
  } else {
    launch.table = &helper_table(kind);
  }
  read_arguments(launch, words, first);
  read_configs(launch);
  out_.launches.push_back(std::move(launch));
}

void Extractor::read_arguments(Launch& launch, const std::vector<Word>& words, std::size_t first) const {
  static const FlagTable empty;
  const FlagTable& table = launch.table != nullptr ? *launch.table : empty;
  for (std::size_t i = first; i < words.size(); ++i) {
    const Word& word = words[i];
    const std::string& text = word.text.value;
    if (word.open) {
      launch.open = true;
      continue;
    }
    if (!looks_like_flag(text)) {
      launch.stray.push_back(word);
      continue;
    }
    Argument argument;
    const std::size_t equals = text.find('=');
    // "--flag value" in one word keeps its blank: the rule for it looks at `written`.
    argument.written = text.substr(0, equals);
    argument.line = word.line();
    argument.flag = table.resolve(argument.written);
    argument.glued = equals != std::string::npos;
    if (argument.glued) {
      Word value = word;
      value.text = word.text.sub(equals + 1, std::string::npos);
      argument.values.push_back(std::move(value));
    }
    const FlagSpec* spec = argument.flag.spec;
    const bool boolean = spec != nullptr && spec->boolean && argument.flag.key.empty();
    const bool list = spec == nullptr || spec->list;
    if (!argument.glued && !boolean && argument.written.find(' ') == std::string::npos) {
      while (i + 1 < words.size() && !looks_like_flag(words[i + 1].text.value) && (list || argument.values.empty())) {
        // A list of unknown length ends at an open word.
        if (words[i + 1].open && !argument.values.empty()) break;
        argument.values.push_back(words[++i]);
        if (spec == nullptr && launch.table != nullptr) continue;
      }
    }
    launch.add(std::move(argument));
  }
  // The model: a positional word of `vllm serve`, or --model.
  const char* flag = launch.kind == LaunchKind::kSglang ? "--model-path" : "--model";
  for (const Argument& argument : launch.arguments) {
    if ((argument.flag.name == flag || argument.written == flag || argument.written == "--model") &&
        !argument.values.empty()) {
      launch.model = argument.values[0];
    }
  }
  if (launch.kind == LaunchKind::kVllm && !launch.module_launcher && !launch.stray.empty()) {
    // The parser takes the first positional word as the model.
    if (!launch.model) {
      launch.model = launch.stray[0];
      launch.stray.erase(launch.stray.begin());
    }
  }
}

void Extractor::read_configs(Launch& launch) const {
  if (launch.table == nullptr) return;
  for (const Argument& argument : launch.arguments) {
    if (!is_config(argument, *launch.table)) continue;
    const std::string& name = argument.flag.name;
    if (argument.flag.key.empty()) {
      if (argument.values.empty()) continue;
      launch.config_arguments[name] = argument;
      const Text& text = argument.values[0].text;
      ParseFailure failure;
      ValuePtr parsed = parse_located_json(text, failure);
      if (parsed == nullptr && !text.unknown()) launch.broken_configs.emplace_back(name, failure);
      launch.configs[name] = std::move(parsed);
      continue;
    }
    launch.config_arguments.emplace(name, argument);
    auto root = std::make_shared<Value>();
    if (const auto old = launch.configs.find(name); old != launch.configs.end() && old->second != nullptr) {
      *root = *old->second;
    }
    root->kind = ValueKind::kMap;
    root->line = argument.line;
    put_key(*root, argument.flag.key, key_value(argument), argument.line);
    launch.configs[name] = root;
  }
}

const Argument* Launch::argument(std::string_view name) const {
  const Argument* found = nullptr;
  for (const Argument& candidate : arguments) {
    if (candidate.flag.name == name && candidate.flag.key.empty()) found = &candidate;
  }
  return found;
}

bool Launch::flag(std::string_view name) const {
  const Argument* found = argument(name);
  if (found == nullptr) return false;
  if (!found->values.empty()) return found->values[0].text.value != "false" && found->values[0].text.value != "False";
  return !found->flag.negated;
}

void Launch::add(Argument argument) {
  if (argument.flag.spec == nullptr && table != nullptr && mistaken.size() < kMostMistaken) {
    std::string meant = table->nearest_flag(argument.flag.name);
    if (!meant.empty()) mistaken.push_back(std::move(meant));
  }
  arguments.push_back(std::move(argument));
}

Number Launch::number(std::string_view name) const {
  Number out;
  const Argument* found = argument(name);
  if (found == nullptr) {
    const bool meant = std::find(mistaken.begin(), mistaken.end(), name) != mistaken.end();
    if (open || meant) out.state = Number::State::kHidden;
    return out;
  }
  out.line = found->value_line();
  out.state = Number::State::kHidden;
  if (found->values.empty()) return out;
  if (const auto value = human_integer(found->values[0].text.value)) {
    out.value = *value;
    out.state = Number::State::kKnown;
  }
  return out;
}

std::string Launch::text(std::string_view name) const {
  const Argument* found = argument(name);
  if (found == nullptr || found->values.empty() || found->values[0].text.unknown()) return {};
  return found->values[0].text.value;
}

const Value* Launch::config(std::string_view name) const {
  const auto found = configs.find(std::string(name));
  return found == configs.end() ? nullptr : found->second.get();
}

const Setting* Launch::env(std::string_view name) const {
  const auto found = environment.find(std::string(name));
  return found == environment.end() ? nullptr : &found->second;
}

std::string Launch::env_text(std::string_view name) const {
  const Setting* found = env(name);
  if (found == nullptr || found->text.unknown()) return {};
  return found->text.value;
}

}  // namespace perigee::planner
