#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "planner/preflight/extractor.h"

namespace perigee::planner {

namespace {

constexpr std::size_t kMaxVisited = 400000;

bool docker_switch(const std::string& option) {
  static const std::set<std::string> names = {
      "--rm",        "--detach",         "--interactive",      "--tty",        "--privileged", "--init", "--quiet",
      "--read-only", "--no-healthcheck", "--oom-kill-disable", "--publish-all"};
  if (names.count(option) != 0) return true;
  // Short switches in one word: -it, -itd.
  return option.size() > 1 && option[0] == '-' && option.find_first_not_of("ditPq", 1) == std::string::npos;
}

Setting setting_of(const Text& text) {
  return {text, text.line()};
}

// source:target[:options], or a path alone.
Mount mount_of(const Text& text) {
  Mount mount;
  mount.line = text.line();
  const std::string& value = text.value;
  const std::size_t first = value.find(':');
  mount.source = value.substr(0, first);
  if (first == std::string::npos) {
    mount.target = mount.source;
    return mount;
  }
  const std::size_t second = value.find(':', first + 1);
  mount.target = value.substr(first + 1, second == std::string::npos ? std::string::npos : second - first - 1);
  return mount;
}

Word word_of(const Value& value) {
  Word word;
  word.text = value.text;
  return word;
}

// $VAR and ${VAR} of compose, $(VAR) of Kubernetes: filled in by somebody else.
void mark_interpolation(Text& text, bool compose) {
  std::string& value = text.value;
  for (std::size_t i = 0; i + 1 < value.size(); ++i) {
    if (value[i] != '$') continue;
    if (value[i + 1] == '$') {
      ++i;
      continue;
    }
    const bool braces = value[i + 1] == '{';
    const bool hit = compose
                         ? braces || std::isalpha(static_cast<unsigned char>(value[i + 1])) != 0 || value[i + 1] == '_'
                         : value[i + 1] == '(';
    if (!hit) continue;
    std::size_t end = i + 1;
    if (braces || !compose) {
      end = value.find(braces ? '}' : ')', i);
      if (end == std::string::npos) return;
      ++end;
      // ${VAR:-default} of compose
      const std::size_t fallback = value.find(":-", i);
      if (braces && fallback != std::string::npos && fallback < end) {
        const std::string kept = value.substr(fallback + 2, end - fallback - 3);
        value.replace(i, end - i, kept);
        i += kept.size();
        if (i > 0) --i;
        continue;
      }
    } else {
      while (end < value.size() && (std::isalnum(static_cast<unsigned char>(value[end])) != 0 || value[end] == '_'))
        ++end;
    }
    value.replace(i, end - i, 1, kUnknown);
  }
}

}  // namespace

void Extractor::docker_run(const std::vector<Word>& words, std::size_t first, const ShellCommand& found, int depth) {
  Container container;
  container.kind = Container::Kind::kDocker;
  container.file = file_;
  container.first_line = found.first_line;
  container.last_line = found.last_line;
  std::string entrypoint;
  std::size_t i = first;
  for (; i < words.size(); ++i) {
    const std::string& text = words[i].text.value;
    if (words[i].open) {
      container.open = true;
      continue;
    }
    if (text.empty() || text[0] != '-') break;
    std::string option = text;
    Text value;
    const std::size_t equals = text.find('=');
    if (equals != std::string::npos && text.rfind("--", 0) == 0) {
      option = text.substr(0, equals);
      value = words[i].text.sub(equals + 1, std::string::npos);
    } else if (!docker_switch(option) && i + 1 < words.size()) {
      value = words[++i].text;
    }
    if (option == "--device") {
      // HOST:CONTAINER[:rwm]
      value.value = value.value.substr(0, value.value.find(':'));
      container.devices.push_back(setting_of(value));
    } else if (option == "-v" || option == "--volume") {
      container.mounts.push_back(mount_of(value));
    } else if (option == "--mount") {
      Mount mount;
      mount.line = value.line();
      for (const auto& [key, field] : {std::pair{"source=", &mount.source},
                                       {"src=", &mount.source},
                                       {"target=", &mount.target},
                                       {"dst=", &mount.target},
                                       {"destination=", &mount.target}}) {
        const std::size_t at = value.value.find(key);
        if (at == std::string::npos) continue;
        const std::size_t begin = at + std::string_view(key).size();
        *field = value.value.substr(begin, std::min(value.value.find(',', begin), value.value.size()) - begin);
      }
      container.mounts.push_back(std::move(mount));
    } else if (option == "-e" || option == "--env") {
      const std::size_t sign = value.value.find('=');
      const std::string name = value.value.substr(0, sign);
      Text content = sign == std::string::npos ? Text(std::string(1, kUnknown), value.line())
                                               : value.sub(sign + 1, std::string::npos);
      if (container.environment.count(name) != 0) {
        container.duplicate_environment.push_back({name, value.line(), nullptr});
      }
      container.environment[name] = {std::move(content), value.line()};
    } else if (option == "--env-file") {
      container.open = true;
    } else if (option == "--shm-size") {
      container.shm = setting_of(value);
    } else if (option == "--ipc") {
      container.host_ipc = value.value == "host" || value.unknown();
    } else if (option == "--privileged") {
      container.privileged = value.value != "false";
    } else if (option == "--runtime") {
      container.ascend_runtime = value.value == "ascend" || value.unknown();
    } else if (option == "--entrypoint") {
      entrypoint = value.value;
    }
  }
  if (i >= words.size()) return;
  container.image = words[i].text;
  container.ascend_runtime = container.ascend_runtime || container.environment.count("ASCEND_VISIBLE_DEVICES") != 0;
  const int index = static_cast<int>(out_.containers.size());
  const Environment environment = container.environment;
  out_.containers.push_back(std::move(container));
  std::vector<Word> rest;
  if (!entrypoint.empty()) {
    Word word;
    word.text = Text(entrypoint, words[i].line());
    rest.push_back(word);
  }
  rest.insert(rest.end(), words.begin() + static_cast<std::ptrdiff_t>(i) + 1, words.end());
  if (rest.empty()) return;
  ShellCommand inner = found;
  inner.exported = nullptr;
  inner.local = environment;
  inner.first_line = rest[0].line();
  inner.environment_open = out_.containers[static_cast<std::size_t>(index)].open;
  this->words(rest, inner, index, depth + 1);
}

void Extractor::duplicate_keys(const ValuePtr& value, int depth) {
  if (value == nullptr || depth > 64 || ++visited_ > kMaxVisited) return;
  for (const Member& member : value->duplicates) out_.duplicate_keys.push_back({file_, member.key, member.line});
  for (const Member& member : value->members) duplicate_keys(member.value, depth + 1);
  for (const ValuePtr& item : value->items) duplicate_keys(item, depth + 1);
}

void Extractor::read_yaml(const InputFile& file) {
  ParseFailure failure;
  const std::vector<ValuePtr> documents = parse_located_yaml(file.content, failure);
  if (!failure.message.empty()) {
    problem(failure.line, failure.message);
    return;
  }
  for (const ValuePtr& document : documents) {
    duplicate_keys(document, 0);
    const Value* services = document->find("services");
    if (services != nullptr && services->kind == ValueKind::kMap) {
      for (const Member& member : services->members) compose_service(*member.value);
      continue;
    }
    if (engine_config(*document)) continue;
    yaml_value(document, 0, 0, 0);
  }
}

// Finds pod templates wherever a kind keeps them, scripts in ConfigMaps and command lines in other documents.
void Extractor::yaml_value(const ValuePtr& value, std::int64_t group, int group_line, int depth) {
  if (value == nullptr || depth > 64 || ++visited_ > kMaxVisited) return;
  if (value->kind == ValueKind::kMap) {
    const Value* containers = value->find("containers");
    if (containers != nullptr && containers->kind == ValueKind::kList) {
      pod(*value, group, group_line);
      return;
    }
    for (const Member& member : value->members) {
      if (member.key == "leaderWorkerTemplate") {
        const Value* size = member.value->find("size");
        const std::int64_t count = size == nullptr ? 1 : size->integer().value_or(0);
        yaml_value(member.value, count, size == nullptr ? member.line : size->line, depth + 1);
        continue;
      }
      const bool script = member.key.size() > 3 && member.key.substr(member.key.size() - 3) == ".sh";
      const bool json = member.key.size() > 5 && member.key.substr(member.key.size() - 5) == ".json";
      if (member.value->scalar() && script) {
        read_script(member.value->text, {}, -1, 1);
      } else if (member.value->scalar() && json) {
        ParseFailure failure;
        const ValuePtr root = parse_located_json(member.value->text, failure);
        if (root == nullptr) {
          problem(failure.line, failure.message);
        } else {
          out_.json_files.push_back({file_, root});
        }
      } else {
        yaml_value(member.value, group, group_line, depth + 1);
      }
    }
    return;
  }
  for (const ValuePtr& item : value->items) yaml_value(item, group, group_line, depth + 1);
  if (value->scalar() && (value->str().find("vllm serve ") != std::string::npos ||
                          value->str().find("sglang.launch_server") != std::string::npos)) {
    read_script(value->text, {}, -1, 1);
  }
}

void Extractor::environment_of(const Value* value, Container& container) const {
  if (value == nullptr) return;
  const bool compose = container.kind == Container::Kind::kCompose;
  const auto put = [&](const std::string& name, Text text, int line) {
    mark_interpolation(text, compose);
    if (container.environment.count(name) != 0) container.duplicate_environment.push_back({name, line, nullptr});
    container.environment[name] = {std::move(text), line};
  };
  for (const Member& member : value->members) put(member.key, member.value->text, member.line);
  for (const ValuePtr& item : value->items) {
    if (item->scalar()) {
      const std::size_t equals = item->str().find('=');
      if (equals != std::string::npos) {
        put(item->str().substr(0, equals), item->text.sub(equals + 1, std::string::npos), item->line);
      } else {
        put(item->str(), Text(std::string(1, kUnknown), item->line), item->line);
      }
      continue;
    }
    const Value* name = item->find("name");
    if (name == nullptr) continue;
    const Value* text = item->find("value");
    put(name->str(), text != nullptr ? text->text : Text(std::string(1, kUnknown), item->line),
        text != nullptr ? text->line : item->line);
  }
}

void Extractor::compose_service(const Value& service) {
  if (service.kind != ValueKind::kMap) return;
  Container container;
  container.kind = Container::Kind::kCompose;
  container.file = file_;
  container.first_line = service.line;
  container.last_line = service.last_line;
  if (const Value* image = service.find("image")) {
    container.image = image->text;
    mark_interpolation(container.image, true);
  }
  if (const Value* devices = service.find("devices")) {
    for (const ValuePtr& item : devices->items) {
      Text text = item->text;
      text.value = text.value.substr(0, text.value.find(':'));
      mark_interpolation(text, true);
      container.devices.push_back({text, item->line});
    }
  }
  if (const Value* volumes = service.find("volumes")) {
    for (const ValuePtr& item : volumes->items) {
      if (item->scalar()) {
        container.mounts.push_back(mount_of(item->text));
        continue;
      }
      Mount mount;
      mount.line = item->line;
      if (const Value* source = item->find("source")) mount.source = source->str();
      if (const Value* target = item->find("target")) mount.target = target->str();
      container.mounts.push_back(std::move(mount));
    }
  }
  environment_of(service.find("environment"), container);
  container.open =
      service.find("env_file") != nullptr || service.find("extends") != nullptr || service.find("<<") != nullptr;
  if (const Value* shm = service.find("shm_size")) container.shm = setting_of(shm->text);
  if (const Value* ipc = service.find("ipc")) container.host_ipc = ipc->str() == "host";
  if (const Value* privileged = service.find("privileged")) container.privileged = privileged->str() == "true";
  if (const Value* runtime = service.find("runtime")) container.ascend_runtime = runtime->str() == "ascend";
  container.ascend_runtime = container.ascend_runtime || container.environment.count("ASCEND_VISIBLE_DEVICES") != 0;
  const int index = static_cast<int>(out_.containers.size());
  out_.containers.push_back(std::move(container));
  container_command({service.find("entrypoint"), service.find("command")}, index, true);
}

void Extractor::container_command(const std::vector<const Value*>& parts, int index, bool compose) {
  std::vector<Word> words;
  bool list_form = true;
  for (const Value* part : parts) {
    if (part == nullptr) continue;
    if (part->kind == ValueKind::kList) {
      for (const ValuePtr& item : part->items) {
        if (!item->scalar()) continue;
        Word word = word_of(*item);
        const bool script = !words.empty() && word.text.value.find('\n') != std::string::npos;
        if (!script && word.text.value.find(' ') == std::string::npos) mark_interpolation(word.text, compose);
        words.push_back(std::move(word));
      }
      continue;
    }
    if (!part->scalar()) continue;
    // A string is split as a shell does it.
    list_form = false;
    Text text = part->text;
    mark_interpolation(text, compose);
    std::replace(text.value.begin(), text.value.end(), '\n', ' ');
    ParseFailure failure;
    const ShellList list = parse_shell(text, failure);
    if (!failure.message.empty()) problem(failure.line, failure.message);
    ShellHandlers handlers;
    handlers.command = [&](const ShellCommand& found) {
      words.insert(words.end(), found.words.begin(), found.words.end());
    };
    Environment none;
    evaluate_shell(list, handlers, none, failure);
  }
  if (words.empty()) return;
  ShellCommand command;
  command.local = out_.containers[static_cast<std::size_t>(index)].environment;
  command.first_line = words.front().line();
  command.last_line = words.back().text.last_line();
  command.environment_open = out_.containers[static_cast<std::size_t>(index)].open;
  const std::size_t before = out_.launches.size();
  this->words(words, command, index, 1);
  for (std::size_t i = before; i < out_.launches.size(); ++i) out_.launches[i].list_form = list_form;
}

void Extractor::pod(const Value& spec, std::int64_t group, int group_line) {
  for (const char* key : {"initContainers", "containers"}) {
    const Value* list = spec.find(key);
    if (list == nullptr) continue;
    for (const ValuePtr& item : list->items) {
      if (item->kind == ValueKind::kMap) pod_container(spec, *item, group, group_line);
    }
  }
}

void Extractor::pod_container(const Value& spec, const Value& item, std::int64_t group, int group_line) {
  Container container;
  container.kind = Container::Kind::kKubernetes;
  container.file = file_;
  container.first_line = item.line;
  container.last_line = item.last_line;
  container.group_size = group;
  container.group_line = group_line;
  if (const Value* image = item.find("image")) container.image = image->text;
  environment_of(item.find("env"), container);
  container.open = item.find("envFrom") != nullptr;
  if (const Value* resources = item.find("resources")) {
    container.resources_line = resources->line;
    for (const auto& [key, target] : {std::pair{"requests", &container.requests}, {"limits", &container.limits}}) {
      const Value* map = resources->find(key);
      if (map == nullptr) continue;
      for (const Member& member : map->members) (*target)[member.key] = {member.value->text, member.value->line};
    }
  }
  const Value* volumes = spec.find("volumes");
  const Value* mounts = item.find("volumeMounts");
  for (const ValuePtr& mount : mounts != nullptr ? mounts->items : std::vector<ValuePtr>{}) {
    const Value* path = mount->find("mountPath");
    const Value* name = mount->find("name");
    if (path == nullptr || name == nullptr) continue;
    container.mounts.push_back({{}, path->str(), mount->line});
    for (const ValuePtr& volume : volumes != nullptr ? volumes->items : std::vector<ValuePtr>{}) {
      const Value* volume_name = volume->find("name");
      if (volume_name == nullptr || volume_name->str() != name->str()) continue;
      if (const Value* host = find_path(volume.get(), {"hostPath", "path"}))
        container.mounts.back().source = host->str();
      if (path->str() != "/dev/shm") continue;
      container.shm_mounted = true;
      container.shm_line = volume->line;
      const Value* medium = find_path(volume.get(), {"emptyDir", "medium"});
      container.shm_in_memory = medium != nullptr && medium->str() == "Memory";
      if (const Value* limit = find_path(volume.get(), {"emptyDir", "sizeLimit"})) container.shm_limit = limit->str();
      if (volume->find("hostPath") != nullptr) container.shm_in_memory = true;
    }
  }
  const int index = static_cast<int>(out_.containers.size());
  out_.containers.push_back(std::move(container));
  container_command({item.find("command"), item.find("args")}, index, false);
}

// A file for `vllm serve --config`: flags as keys.
bool Extractor::engine_config(const Value& root) {
  if (root.kind != ValueKind::kMap || tables_.vllm == nullptr || root.find("kind") != nullptr) return false;
  std::size_t known = 0;
  for (const Member& member : root.members) {
    const ResolvedFlag flag = tables_.vllm->resolve("--" + member.key);
    if (flag.spec != nullptr && !flag.abbreviated) ++known;
  }
  if (known < 3 || known * 2 < root.members.size()) return false;
  Launch launch;
  launch.kind = LaunchKind::kVllm;
  launch.file = file_;
  launch.program = "vllm serve --config";
  launch.first_line = root.line;
  launch.last_line = root.last_line;
  launch.table = tables_.vllm;
  launch.environment_open = true;
  for (const Member& member : root.members) {
    Argument argument;
    argument.written = "--" + member.key;
    argument.line = member.line;
    argument.flag = tables_.vllm->resolve(argument.written);
    argument.glued = true;
    if (member.value->kind == ValueKind::kMap) {
      launch.configs[argument.flag.name] = member.value;
      launch.config_arguments[argument.flag.name] = argument;
    } else if (member.value->kind == ValueKind::kList) {
      for (const ValuePtr& item : member.value->items) argument.values.push_back(word_of(*item));
    } else if (argument.flag.spec != nullptr && argument.flag.spec->boolean) {
      argument.flag.negated = member.value->str() == "false";
    } else {
      argument.values.push_back(word_of(*member.value));
    }
    if (argument.flag.name == "--model" && !argument.values.empty()) launch.model = argument.values[0];
    launch.add(std::move(argument));
  }
  out_.launches.push_back(std::move(launch));
  return true;
}

}  // namespace perigee::planner
