// What the engines' own parsers say to a command line: rules 8.27 to 8.31.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <set>

#include "planner/preflight/server.h"

namespace perigee::planner {

namespace {

std::optional<double> to_number(const std::string& text) {
  double out = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error != std::errc() || stop != text.data() + text.size() || text.empty()) return std::nullopt;
  return out;
}

std::string bounds_text(const FlagSpec& spec) {
  std::vector<std::string> parts;
  if (spec.ge) parts.push_back(fmt::format(">= {}", *spec.ge));
  if (spec.gt) parts.push_back(fmt::format("> {}", *spec.gt));
  if (spec.le) parts.push_back(fmt::format("<= {}", *spec.le));
  if (spec.lt) parts.push_back(fmt::format("< {}", *spec.lt));
  return fmt::format("{}", fmt::join(parts, " and "));
}

bool within(const FlagSpec& spec, double value) {
  return !((spec.ge && value < *spec.ge) || (spec.gt && value <= *spec.gt) || (spec.le && value > *spec.le) ||
           (spec.lt && value >= *spec.lt));
}

// A choice that a plug-in of the platform adds at run time is never refused.
bool platform_flag(std::string_view name) {
  return name == "--quantization" || name == "--device" || name == "--speculative-draft-model-quantization";
}

// Where another flag begins inside a value that was typed without a blank.
std::size_t glued_flag(const FlagTable& table, const std::string& text) {
  for (std::size_t at = text.find("--", 1); at != std::string::npos; at = text.find("--", at + 2)) {
    const std::size_t end = text.find_first_of("= ", at);
    const std::string name = text.substr(at, end == std::string::npos ? std::string::npos : end - at);
    const ResolvedFlag flag = table.resolve(name);
    if (flag.spec != nullptr && !flag.abbreviated) return at;
  }
  return std::string::npos;
}

// Text of a guide that was never replaced.
bool placeholder(const std::string& text, bool wants_address) {
  if (text.find(kUnknown) != std::string::npos) return false;
  std::string lower = text;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  for (const std::string_view phrase :
       {"/path/to", "path/to/", "your_", "your-", "/your/", "<your", "changeme", "replace_me", "todo"}) {
    const std::size_t at = lower.find(phrase);
    if (at == std::string::npos) continue;
    if (phrase == "todo" && lower != "todo") continue;
    return true;
  }
  const std::size_t open = text.find('<');
  const std::size_t close = open == std::string::npos ? open : text.find('>', open);
  if (close != std::string::npos && close > open + 1 && std::isalpha(static_cast<unsigned char>(text[open + 1])) != 0) {
    return true;
  }
  if (text.size() > 2 && text.front() == '{' && text.back() == '}' &&
      text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-", 1) ==
          text.size() - 1) {
    return true;
  }
  if (text.find("{{") != std::string::npos && text.find("}}") != std::string::npos) return true;
  // x.x.x.x, xx.xx.xx.xx, xxx
  if (lower.find("x.x") != std::string::npos && lower.find_first_not_of("x.0123456789:/tcphs") == std::string::npos) {
    return true;
  }
  if (lower.size() >= 2 && lower.find_first_not_of('x') == std::string::npos) return true;
  // tcp://PIP:PORT
  std::size_t begin = text.find("://");
  begin = begin == std::string::npos ? 0 : begin + 3;
  const std::string rest = text.substr(begin, text.find('/', begin) - begin);
  const auto capitals = [](const std::string& part) {
    return part.size() >= 2 && std::isupper(static_cast<unsigned char>(part[0])) != 0 &&
           std::all_of(part.begin(), part.end(),
                       [](unsigned char c) { return std::isupper(c) != 0 || std::isdigit(c) != 0 || c == '_'; });
  };
  const std::size_t colon = rest.find(':');
  if (begin > 0 && capitals(rest.substr(0, colon))) return true;
  if (colon != std::string::npos && capitals(rest.substr(0, colon)) && capitals(rest.substr(colon + 1))) return true;
  if (begin > 0 && colon != std::string::npos && capitals(rest.substr(colon + 1))) return true;
  if (!wants_address) return false;
  for (const std::string_view word : {"ip", "addr", "host", "node", "master", "local"}) {
    if (capitals(text) && lower.find(word) != std::string::npos) return true;
  }
  return lower == "local_ip" || lower == "nic_name" || lower == "node0_ip" || lower == "node_ip" ||
         lower == "master_ip";
}

}  // namespace

void Rules::stray_commands() {
  for (const LaunchSet::StrayCommand& command : in_.flag_commands) {
    int line = command.line;
    for (const Launch& launch : in_.launches) {
      if (launch.file == command.file && launch.last_line < command.line) line = std::max(launch.last_line, 1);
    }
    report("8.31", Severity::kError, command.file, line,
           fmt::format("\"{}\" on line {} begins a command of its own: the line before it does not end in a backslash "
                       "(or a blank or a comment follows the backslash).",
                       command.word, command.line),
           fmt::format("end the line before {} with a backslash and nothing behind it", command.word));
  }
  for (const LaunchSet::Problem& problem : in_.problems) {
    report("8.31", Severity::kError, problem.file, problem.line, problem.message, "correct the syntax of this line");
  }
  for (const LaunchSet::DuplicateKey& key : in_.duplicate_keys) {
    report("8.30", Severity::kWarning, key.file, key.line,
           fmt::format("\"{}\" is given twice in the same object; one of the two has no effect.", key.key), "keep one");
  }
}

void Rules::command_text(const Server& server) {
  const Launch& launch = *server.launch;
  for (const auto& [name, failure] : launch.broken_configs) {
    report(server, "8.31", Severity::kError, failure.line,
           fmt::format("The value of {} is not JSON: {}.", name, failure.message), "correct the JSON text");
  }
  bool glued = false;
  for (const Argument& argument : launch.arguments) {
    for (const Word& value : argument.values) {
      if (value.single_quoted_dollar && value.text.value.find('$') != std::string::npos) {
        const std::size_t at = value.text.value.find('$');
        report(server, "8.31", Severity::kError, value.text.line_at(at),
               fmt::format("A shell variable inside single quotes is not replaced: {} gets the text \"{}\".",
                           argument.written, shown(value.text.sub(at, 24))),
               "close the quotes around it: '...'\"$NAME\"'...'");
      }
      if (launch.table == nullptr) continue;
      const bool json = !value.text.value.empty() && value.text.value[0] == '{';
      const std::size_t at = json ? std::string::npos : glued_flag(*launch.table, value.text.value);
      if (at == std::string::npos) continue;
      glued = true;
      const std::string head = value.text.value.substr(0, at);
      report(server, "8.31", Severity::kError, value.text.line_at(at),
             fmt::format("A blank is missing inside \"{}\": {} gets the whole text and {} is not seen.",
                         shown(value.text), argument.written, value.text.value.substr(at)),
             fmt::format("write {} {} {}", argument.written, head, value.text.value.substr(at)));
    }
    const std::size_t blank = argument.written.find_first_of(" \t\n");
    if (blank != std::string::npos) {
      glued = true;
      const std::string head = argument.written.substr(0, blank);
      const std::string tail =
          argument.written.substr(argument.written.find_first_not_of(" \t\n", blank) == std::string::npos
                                      ? blank
                                      : argument.written.find_first_not_of(" \t\n", blank));
      report(server, "8.31", Severity::kError, argument.line,
             fmt::format("One {} is one argument: the parser sees a flag called \"{}\".",
                         launch.list_form ? "list item" : "quoted word", argument.written),
             fmt::format("two items, or {}={}", head, tail));
    }
  }
  for (const Word& word : launch.stray) {
    const std::string& text = word.text.value;
    if (word.text.unknown() || glued) continue;
    if (text.find_first_not_of(" \t\r\n") == std::string::npos) {
      report(server, "8.31", Severity::kError, word.line(),
             "A blank behind the backslash ends the command here; the next line is not part of it.",
             "remove the blank behind the backslash");
      continue;
    }
    const bool model = launch.module_launcher && (text.find('/') != std::string::npos || !launch.model);
    report(
        server, "8.31", Severity::kError, word.line(),
        model ? fmt::format("Only `vllm serve` takes the model as a positional word; the module launcher does not know "
                            "\"{}\" and loads its default model or stops.",
                            shown(word.text))
              : fmt::format("\"{}\" is a stray word that no flag takes.", shown(word.text)),
        model ? fmt::format("write --model {} (or use vllm serve)", shown(word.text))
              : "remove it, or write the flag that it belongs to");
  }
}

void Rules::flags(const Server& server) {
  const Launch& launch = *server.launch;
  if (launch.table == nullptr) return;
  static const std::set<std::string> always = {"--help", "-h", "--version", "-v", "--config"};
  const Severity severity = server.exact_version ? Severity::kError : Severity::kWarning;
  std::map<std::string, const Argument*> seen;
  for (const Argument& argument : launch.arguments) {
    const std::string& written = argument.written;
    const ResolvedFlag& flag = argument.flag;
    if (written.find_first_of(" \t\n") != std::string::npos || always.count(written) != 0) continue;
    if (written.find(kUnknown) != std::string::npos) continue;
    if (flag.spec == nullptr) {
      if (written.size() <= 4 && written[1] != '-') continue;  // -O3 and other short options with a value
      if (written.rfind("-O", 0) == 0) continue;
      // Digits or another flag typed right behind a known flag.
      std::size_t cut = written.find("--", 2);
      if (cut == std::string::npos) cut = written.find_last_not_of("0123456789") + 1;
      if (cut < written.size()) {
        const ResolvedFlag head = launch.table->resolve(written.substr(0, cut));
        if (head.spec != nullptr && !head.abbreviated) {
          report(server, "8.31", Severity::kError, argument.line,
                 fmt::format("A blank is missing inside \"{}\".", written),
                 fmt::format("write {} {}", written.substr(0, cut), written.substr(cut)));
          continue;
        }
      }
      std::string fix;
      if (const auto removed = facts_.removed_flags.find(flag.name); removed != facts_.removed_flags.end()) {
        fix = removed->second;
      } else if (!flag.candidates.empty()) {
        fix = fmt::format("write {}", fmt::join(flag.candidates, " or "));
      } else if (const std::string near = launch.table->nearest_flag(written[1] == '-' ? flag.name : "-" + flag.name);
                 !near.empty()) {
        fix = near;
      } else {
        fix = fmt::format("delete {}", written);
      }
      const std::string message =
          flag.candidates.empty()
              ? fmt::format("{} is no flag of {} {}; the parser stops with \"unrecognized arguments\".", written,
                            launch.table->package, launch.table->version)
              : fmt::format("{} is no flag of {} {} and fits several: {}.", written, launch.table->package,
                            launch.table->version, fmt::join(flag.candidates, ", "));
      report(server, "8.27", severity, argument.line, message, fix);
      continue;
    }
    if (flag.abbreviated) {
      report(server, "8.27", Severity::kNote, argument.line,
             fmt::format("{} is an abbreviation of {}; a later version may have two such flags.", written, flag.name),
             fmt::format("write {}", flag.name));
    }
    if (!flag.key.empty()) continue;
    if (!flag.spec->boolean && argument.values.empty() && !launch.open && !flag.spec->has_type("bool")) {
      report(server, "8.31", Severity::kError, argument.line, fmt::format("{} needs a value and gets none.", written),
             fmt::format("write {} VALUE", flag.name));
    }
    const auto [first, fresh] = seen.emplace(flag.name, &argument);
    if (fresh) continue;
    report(server, "8.30", Severity::kWarning, argument.line,
           fmt::format("{} is given twice (line {} too); the last one replaces the first.", flag.name,
                       first->second->line),
           "keep one");
  }
}

void Rules::values(const Server& server) {
  const Launch& launch = *server.launch;
  if (launch.table == nullptr) return;
  for (const Argument& argument : launch.arguments) {
    const FlagSpec* spec = argument.flag.spec;
    if (spec == nullptr || !argument.flag.key.empty() || platform_flag(argument.flag.name)) continue;
    if (launch.configs.count(argument.flag.name) != 0) continue;
    for (const Word& word : argument.values) {
      if (word.text.unknown() || glued_flag(*launch.table, word.text.value) != std::string::npos) continue;
      Value value;
      value.kind = ValueKind::kString;
      value.text = word.text;
      value.line = word.line();
      check_value(server, argument.flag.name, *spec, value);
    }
  }
  // Parsers have their own registry.
  for (const auto& [flag, registry, plugin] :
       {std::tuple{"--tool-call-parser", "tool_call_parser", "--tool-parser-plugin"},
        std::tuple{"--reasoning-parser", "reasoning_parser", "--reasoning-parser-plugin"}}) {
    const Argument* argument = launch.argument(flag);
    const auto names = launch.table->registries.find(registry);
    if (argument == nullptr || argument->values.empty() || names == launch.table->registries.end() || !server.vllm())
      continue;
    const std::string& name = argument->values[0].text.value;
    if (argument->values[0].text.unknown() || contains(names->second, name) || launch.argument(plugin) != nullptr)
      continue;
    const std::vector<std::string>& fitting =
        std::string_view(flag) == "--tool-call-parser" ? server.model.tool : server.model.reasoning;
    std::string fix;
    for (const std::string& candidate : fitting) {
      if (fix.empty() && contains(names->second, candidate)) fix = candidate;
    }
    if (fix.empty()) fix = nearest(name, names->second);
    report(server, "8.29", server.exact_version ? Severity::kError : Severity::kWarning, argument->value_line(),
           fmt::format("\"{}\" is not among the values of {} in {} {}.", name, flag, launch.table->package,
                       launch.table->version),
           fix.empty() ? fmt::format("one of {}", fmt::join(names->second, ", ")) : fmt::format("{} {}", flag, fix));
  }
}

void Rules::check_value(const Server& server, const std::string& name, const FlagSpec& spec, const Value& value) {
  if (value.unknown() || !value.scalar() || value.kind == ValueKind::kNull) return;
  const std::string& text = value.str();
  const Severity severity = server.exact_version ? Severity::kError : Severity::kWarning;
  if (spec.closed && !spec.choices.empty()) {
    const bool optional = spec.has_type("None") && (text == "None" || text.empty());
    if (optional || contains(spec.choices, text) || spec.has_type("bool")) return;
    const std::string near = nearest(text, spec.choices);
    report(server, "8.29", severity, value.line,
           fmt::format("\"{}\" is not among the choices of {}: {}.", shown(value.text), name,
                       fmt::join(spec.choices, ", ")),
           near.empty() ? fmt::format("{} {}", name, spec.choices.front()) : fmt::format("{} {}", name, near));
    return;
  }
  if (!spec.closed && !spec.choices.empty()) {
    // Plug-ins add names, so only a misspelling or the name of another release is worth a warning.
    if (contains(spec.choices, text)) return;
    std::string near = nearest(text, spec.choices);
    std::string release;
    for (const std::string& other : flag_table_names()) {
      if (other.rfind("vllm-ascend", 0) == 0 || other.rfind("vllm-", 0) != 0 || !server.vllm()) continue;
      const auto table = flag_table(other);
      if (!table.ok()) continue;
      const auto flag = (*table)->flags.find(name);
      if (flag != (*table)->flags.end() && contains(flag->second.choices, text)) release = (*table)->version;
    }
    if (near.empty() && release.empty()) return;
    report(server, "8.29", Severity::kWarning, value.line,
           fmt::format("\"{}\" is not among the known values of {} in this version{}.", shown(value.text), name,
                       release.empty() ? std::string() : fmt::format(" ({} has it)", release)),
           fmt::format("{} {}", name, near.empty() ? spec.choices.front() : near));
    return;
  }
  if (spec.integer() || spec.real()) {
    if (spec.has_type("None") && (text == "None" || text.empty())) return;
    if (name == "--max-model-len" && text == "auto") return;
    std::optional<double> number = to_number(text);
    if (spec.integer()) {
      const auto integer = human_integer(text);
      number = integer ? std::optional<double>(static_cast<double>(*integer)) : std::nullopt;
      if (value.kind == ValueKind::kNumber && !value.integer()) number.reset();
    }
    if (!number || value.kind == ValueKind::kBool) {
      report(server, "8.29", severity, value.line,
             fmt::format("{} wants {}, found \"{}\".", name, spec.integer() ? "a whole number" : "a number",
                         shown(value.text)),
             fmt::format("{} with {}", name, spec.integer() ? "a whole number" : "a number"));
      return;
    }
    if (!within(spec, *number)) {
      report(server, "8.29", severity, value.line,
             fmt::format("{} {} is outside its bounds ({}).", name, text, bounds_text(spec)),
             fmt::format("{} {}", name, bounds_text(spec)));
      return;
    }
    const bool port = name.size() > 4 && name.substr(name.size() - 4) == "port" && spec.integer();
    if (port && (*number > 65535 || *number < 0)) {
      report(server, "8.29", severity, value.line, fmt::format("{} {} is no port.", name, text),
             fmt::format("{} between 1 and 65535", name));
    }
    return;
  }
  // JSON only: a word of a command line is always text.
  const bool json = name.rfind("--", 0) != 0;
  if (json && spec.types.size() == 1 && spec.has_type("bool") && value.kind != ValueKind::kBool && !value.boolean()) {
    report(server, "8.29", severity, value.line,
           fmt::format("{} wants true or false, found \"{}\".", name, shown(value.text)),
           fmt::format("\"{}\": true", name));
  }
}

// `classes` lists the keys of nested objects.
void Rules::check_fields(const Server& server, const std::string& where, const FieldTable& fields,
                         const FlagTable& classes, const Value& value, Severity severity,
                         const std::vector<std::string>& extra) {
  std::vector<std::string> names;
  for (const auto& [name, spec] : fields) {
    if (!spec.internal && name[0] != '_') names.push_back(name);
  }
  names.insert(names.end(), extra.begin(), extra.end());
  for (const Member& member : value.members) {
    if (member.key.find(kUnknown) != std::string::npos || contains(extra, member.key)) continue;
    const auto field = fields.find(member.key);
    if (field == fields.end()) {
      const std::string near = nearest(member.key, names);
      const auto removed = facts_.removed_keys.find(member.key);
      std::string fix = removed != facts_.removed_keys.end() ? removed->second : near;
      if (fix.empty()) fix = fmt::format("delete \"{}\"", member.key);
      report(server, "8.28", severity, member.line,
             fmt::format("\"{}\" is no key of {} in this version{}.", member.key, where,
                         severity == Severity::kError ? " and is refused" : "; it is ignored"),
             fix);
      continue;
    }
    if (const auto choices = facts_.enum_names.find(member.key);
        choices != facts_.enum_names.end() && member.value->kind == ValueKind::kString) {
      FlagSpec spec;
      spec.choices = choices->second;
      check_value(server, member.key, spec, *member.value);
      continue;
    }
    check_value(server, member.key, field->second, *member.value);
    if (member.value->kind != ValueKind::kMap) continue;
    for (const std::string& type : field->second.types) {
      const auto nested = classes.classes.find(type);
      if (nested == classes.classes.end() || nested->second.empty()) continue;
      check_fields(server, where + "." + member.key, nested->second, classes, *member.value, severity, {});
    }
  }
}

void Rules::config_keys(const Server& server) {
  const Launch& launch = *server.launch;
  if (launch.table == nullptr || !server.vllm()) return;
  const Severity refused = server.exact_version ? Severity::kError : Severity::kWarning;
  for (const auto& [name, value] : launch.configs) {
    if (value == nullptr || value->kind != ValueKind::kMap) continue;
    const auto flag = launch.table->flags.find(name);
    if (flag == launch.table->flags.end()) continue;
    for (const std::string& type : flag->second.types) {
      const auto fields = launch.table->classes.find(type);
      if (fields != launch.table->classes.end() && !fields->second.empty()) {
        check_fields(server, name, fields->second, *launch.table, *value, refused, {});
      }
    }
  }
  if (server.transfer != nullptr) connectors(server, *server.transfer, 0);
  if (server.additional == nullptr || server.facts == nullptr || server.facts->keys.empty()) return;
  const auto table = flag_table(server.facts->keys);
  if (!table.ok()) return;
  const FlagTable& keys = **table;
  const bool rejects = keys.unknown_keys_rejected;
  const Severity severity = rejects ? refused : Severity::kWarning;
  for (const std::string& forbidden : server.facts->forbidden_keys) {
    const Member* member = server.additional->member(forbidden);
    if (member == nullptr) continue;
    report(server, "8.28", refused, member->line,
           fmt::format("\"{}\" is computed by the engine and must not be set.", forbidden),
           fmt::format("delete \"{}\"", forbidden));
  }
  check_fields(server, "--additional-config", keys.additional_config, keys, *server.additional, severity,
               server.facts->additional_keys);
}

void Rules::connectors(const Server& server, const Value& transfer, int depth) {
  if (depth > 4) return;
  const Value* name = transfer.find("kv_connector");
  std::vector<std::string> known;
  if (const auto found = server.launch->table->registries.find("kv_connector");
      found != server.launch->table->registries.end()) {
    known = found->second;
  }
  const FlagTable* keys = nullptr;
  if (server.facts != nullptr && !server.facts->keys.empty()) {
    const auto table = flag_table(server.facts->keys);
    if (table.ok()) keys = *table;
  }
  if (keys != nullptr) known.insert(known.end(), keys->connectors.begin(), keys->connectors.end());
  if (name != nullptr && !name->unknown() && !contains(known, name->str()) &&
      transfer.find("kv_connector_module_path") == nullptr) {
    const auto removed = facts_.removed_connectors.find(name->str());
    const std::string near = nearest(name->str(), known);
    report(server, "8.29", server.exact_version ? Severity::kError : Severity::kWarning, name->line,
           fmt::format("{} is no connector of this release.", name->str()),
           removed != facts_.removed_connectors.end() ? removed->second
           : near.empty()                             ? fmt::format("one of {}", fmt::join(known, ", "))
                                                      : near);
  }
  const Value* extra = transfer.find("kv_connector_extra_config");
  if (extra == nullptr || extra->kind != ValueKind::kMap) return;
  if (keys != nullptr) {
    // Unknown extra keys are ignored without a word, so only a near miss is worth saying.
    for (const Member& member : extra->members) {
      if (contains(keys->connector_keys, member.key)) continue;
      for (const std::string& candidate : keys->connector_keys) {
        if (member.key.size() < 6 || edit_distance(member.key, candidate, 2) > 2) continue;
        report(server, "8.28", Severity::kWarning, member.line,
               fmt::format("\"{}\" is no key of kv_connector_extra_config; it is ignored.", member.key), candidate);
        break;
      }
    }
  }
  const Value* inner = extra->find("connectors");
  for (const ValuePtr& item : inner != nullptr ? inner->items : std::vector<ValuePtr>{})
    connectors(server, *item, depth + 1);
}

void Rules::environment_names(const Server& server) {
  const Launch& launch = *server.launch;
  if (launch.table == nullptr) return;
  const FlagTable* keys = nullptr;
  if (server.facts != nullptr && !server.facts->keys.empty()) {
    const auto table = flag_table(server.facts->keys);
    if (table.ok()) keys = *table;
  }
  std::vector<std::string> known = facts_.known_environment;
  for (const auto& [name, fallback] : launch.table->environment) known.push_back(name);
  if (keys != nullptr) {
    for (const auto& [name, fallback] : keys->environment) known.push_back(name);
  }
  const std::set<std::string> names(known.begin(), known.end());
  for (const auto& [name, setting] : launch.environment) {
    if (names.count(name) != 0) continue;
    const bool own = server.vllm() && name.rfind("VLLM_", 0) == 0;
    const auto moved = facts_.moved_environment.find(name);
    if (own || (server.vllm() && moved != facts_.moved_environment.end())) {
      const std::string near = nearest(name, known);
      report(server, "8.30", server.exact_version ? Severity::kWarning : Severity::kNote, setting.line,
             fmt::format("This release does not read {}; it has no effect.", name),
             moved != facts_.moved_environment.end() ? moved->second
             : near.empty()                          ? fmt::format("delete {}", name)
                                                     : near);
      continue;
    }
    // Other programs read variables that no table lists: only a near miss of a known name is a finding.
    if (name.size() < 8) continue;
    for (const std::string& candidate : known) {
      if (candidate.size() < 8 || edit_distance(name, candidate, 2) > 2) continue;
      // Families differ in one letter by design (HCCL_RDMA_TC and _SL, ASCEND_RDMA_..., GLOO_/TP_).
      const bool family = name.substr(0, 3) != candidate.substr(0, 3) ||
                          name.substr(name.size() - 2) != candidate.substr(candidate.size() - 2);
      if (family && edit_distance(name, candidate, 1) > 1) continue;
      report(server, "8.30", Severity::kWarning, setting.line,
             fmt::format("{} is read by nobody; {} was probably meant.", name, candidate), candidate);
      break;
    }
  }
}

void Rules::placeholders(const Server& server) {
  const Launch& launch = *server.launch;
  const auto check = [&](const std::string& what, const Text& text, bool address) {
    if (!placeholder(text.value, address)) return;
    report(server, "8.31", Severity::kError, text.line(),
           fmt::format("{} still holds the placeholder \"{}\".", what, shown(text)),
           fmt::format("{} with the real value", what));
  };
  for (const auto& [name, setting] : launch.environment) {
    const bool address = name.find("IP") != std::string::npos || name.find("ADDR") != std::string::npos ||
                         name.find("IFNAME") != std::string::npos || name.find("URL") != std::string::npos;
    check(name, setting.text, address);
  }
  for (const Argument& argument : launch.arguments) {
    const std::string& name = argument.flag.name;
    const bool address = name.find("address") != std::string::npos || name.find("host") != std::string::npos ||
                         name.find("addr") != std::string::npos;
    for (const Word& value : argument.values) {
      if (!value.text.value.empty() && value.text.value[0] == '{' && value.text.value.find('"') != std::string::npos) {
        // Only the address-like strings inside a JSON value can be placeholders.
        const std::size_t at = value.text.value.find("/path/to");
        if (at != std::string::npos) check(argument.written, value.text.sub(at, 24), false);
        continue;
      }
      check(argument.written, value.text, address);
    }
  }
  if (launch.model && launch.kind == LaunchKind::kVllm && launch.argument("--model") == nullptr) {
    check("the model", launch.model->text, false);
  }
}

}  // namespace perigee::planner
