#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "planner/preflight/extractor.h"

namespace perigee::planner {

namespace {

constexpr int kMaxNesting = 8;
constexpr std::size_t kMaxLaunches = 5000;
// Endings of files that are neither launch files nor known reports.
constexpr std::string_view kNoScripts[] = {".py", ".md", ".log", ".out", ".info", ".conf"};

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

// Words that may stand before a program without changing what it is.
bool wrapper(const std::string& program) {
  static const std::set<std::string> names = {"env",  "exec",    "nohup",  "sudo",   "numactl", "taskset", "time",
                                              "nice", "timeout", "stdbuf", "setsid", "command", "eval",    "screen",
                                              "tmux", "then",    "do",     "srun",   "mpirun",  "xargs"};
  return names.count(program) != 0;
}

bool python(const std::string& program) {
  return program.rfind("python", 0) == 0 && program.find_first_not_of("python0123456789.") == std::string::npos;
}

bool shell(const std::string& program) {
  return program == "bash" || program == "sh" || program == "zsh" || program == "dash";
}

// CANN folders carry their version: /usr/local/Ascend/cann-9.1.0, .../ascend-toolkit/8.5.1.
std::string cann_version(const std::string& path) {
  for (const std::string_view marker : {"/cann-", "/ascend-toolkit/", "/cann/"}) {
    const std::size_t at = path.find(marker);
    if (at == std::string::npos) continue;
    std::size_t end = at + marker.size();
    const std::size_t begin = end;
    while (end < path.size() && (std::isdigit(static_cast<unsigned char>(path[end])) != 0 || path[end] == '.')) ++end;
    if (end > begin && std::isdigit(static_cast<unsigned char>(path[begin])) != 0 &&
        path.substr(begin, end - begin).find('.') != std::string::npos) {
      return path.substr(begin, end - begin);
    }
  }
  return {};
}

}  // namespace

std::string base_name(std::string_view path) {
  while (!path.empty() && path.back() == '/') path.remove_suffix(1);
  const std::size_t slash = path.rfind('/');
  return std::string(slash == std::string_view::npos ? path : path.substr(slash + 1));
}

Extractor::Extractor(const std::vector<InputFile>& files, const ExtractTables& tables, LaunchSet& out)
    : files_(files), tables_(tables), out_(out) {}

void Extractor::run() {
  for (const InputFile& file : files_) {
    out_.files.push_back(file.name);
    file_ = file.name;
    read(file);
  }
}

void Extractor::problem(int line, std::string message) {
  out_.problems.push_back({file_, std::move(message), line});
}

void Extractor::read(const InputFile& file) {
  ParseFailure failure;
  if (!plain_text(file.content, failure)) {
    problem(failure.line, failure.message);
    return;
  }
  const std::string& name = file.name;
  if (!ends_with(name, ".sh") && !ends_with(name, ".yaml") && !ends_with(name, ".yml") && !ends_with(name, ".json")) {
    if (auto report = read_node_report(name, file.content)) {
      out_.node_reports.push_back(std::move(*report));
      return;
    }
  }
  const std::size_t first = file.content.find_first_not_of(" \t\r\n");
  const char head = first == std::string::npos ? '\0' : file.content[first];
  if (ends_with(name, ".json") || (head == '{' && !ends_with(name, ".sh"))) {
    read_json(file);
  } else if (ends_with(name, ".yaml") || ends_with(name, ".yml")) {
    read_yaml(file);
  } else if (std::any_of(std::begin(kNoScripts), std::end(kNoScripts),
                         [&](std::string_view end) { return ends_with(name, end); })) {
    return;
  } else {
    read_script(Text::of_lines(file.content, 1), {}, -1, 0);
  }
}

void Extractor::read_json(const InputFile& file) {
  ParseFailure failure;
  const ValuePtr root = parse_located_json(Text::of_lines(file.content, 1), failure);
  if (root == nullptr) {
    problem(failure.line, failure.message);
    return;
  }
  duplicate_keys(root, 0);
  out_.json_files.push_back({file.name, root});
}

void Extractor::read_script(const Text& script, const Environment& environment, int container, int depth) {
  if (depth > kMaxNesting) return;
  ParseFailure failure;
  const ShellList list = parse_shell(script, failure);
  if (!failure.message.empty()) problem(failure.line, failure.message);
  if (const std::size_t at = script.value.find("\r\n"); at != std::string::npos) {
    problem(script.line_at(at), "the script has Windows line ends: the shell passes the carriage return on as text");
  }
  ShellHandlers handlers;
  handlers.command = [&](const ShellCommand& found) { command(found, container, depth); };
  handlers.source = [&](const std::string& name) -> const std::string* {
    for (const InputFile& file : files_) {
      if (file.name != file_ && base_name(file.name) == base_name(name)) return &file.content;
    }
    return nullptr;
  };
  Environment variables = environment;
  ParseFailure limits;
  evaluate_shell(list, handlers, variables, limits);
  if (!limits.message.empty()) problem(limits.line, limits.message);
}

void Extractor::command(const ShellCommand& found, int container, int depth) {
  for (const Word& word : found.words) {
    const std::string version = cann_version(word.text.value);
    if (version.empty()) continue;
    out_.versions.push_back({Text(version, word.line()), word.line()});
    out_.version_files.push_back(file_);
  }
  // A file written by a here-document is read like the file itself.
  for (std::size_t i = 0; i < found.heredocs.size() && !found.output_files.empty(); ++i) {
    const std::string& target = found.output_files.front();
    if (ends_with(target, ".sh")) {
      read_script(found.heredocs[i], {}, -1, depth + 1);
    } else if (ends_with(target, ".json")) {
      ParseFailure failure;
      const ValuePtr root = parse_located_json(found.heredocs[i], failure);
      if (root != nullptr) {
        out_.json_files.push_back({file_, root});
      } else if (!found.heredocs[i].unknown()) {
        problem(failure.line, failure.message);
      }
    }
  }
  for (std::size_t i = 0; i < found.heredocs.size() && found.output_files.empty(); ++i) {
    if (shell(found.words[0].text.value) || found.words[0].text.value == "ssh") {
      read_script(found.heredocs[i], {}, container, depth + 1);
    }
  }
  words(found.words, found, container, depth);
}

void Extractor::words(const std::vector<Word>& list, const ShellCommand& found, int container, int depth) {
  if (list.empty() || depth > kMaxNesting || out_.launches.size() >= kMaxLaunches) return;
  const std::string& head = list[0].text.value;
  if (head.size() > 2 && head[0] == '-' && (head[1] == '-' || list[0].literal)) {
    out_.flag_commands.push_back({file_, head, list[0].line()});
    return;
  }
  if (launch_at(list, 0, found, container, depth)) return;
  if (!wrapper(base_name(head))) return;
  ShellCommand inner = found;
  for (std::size_t i = 1; i < list.size(); ++i) {
    const std::string& text = list[i].text.value;
    const std::size_t equals = text.find('=');
    if (equals != std::string::npos && equals > 0 && text[0] != '-' && base_name(head) == "env") {
      inner.local[text.substr(0, equals)] = {list[i].text.sub(equals + 1, std::string::npos), list[i].line()};
      continue;
    }
    if (launch_at(list, i, inner, container, depth)) return;
  }
}

bool Extractor::launch_at(const std::vector<Word>& list, std::size_t at, const ShellCommand& found, int container,
                          int depth) {
  const auto text = [&](std::size_t index) -> const std::string& {
    static const std::string none;
    return index < list.size() ? list[index].text.value : none;
  };
  const std::string program = base_name(text(at));
  if (program == "vllm" && text(at + 1) == "serve") {
    add_launch(LaunchKind::kVllm, list, at + 2, found, container, "vllm serve");
    return true;
  }
  if (program == "vllm" && (text(at + 1).rfind("--", 0) == 0 || text(at + 1).rfind('/', 0) == 0)) {
    problem(list[at].line(), fmt::format("`vllm {}`: the word serve is missing", text(at + 1)));
    return true;
  }
  if (program == "sglang" && text(at + 1) == "serve") {
    add_launch(LaunchKind::kSglang, list, at + 2, found, container, "sglang serve");
    return true;
  }
  if (python(program)) {
    std::size_t i = at + 1;
    while (i < list.size() && text(i).size() == 2 && text(i)[0] == '-' && text(i) != "-m" && text(i) != "-c") ++i;
    if (text(i) == "-m") {
      const std::string& module = text(i + 1);
      if (module == "vllm.entrypoints.openai.api_server") {
        add_launch(LaunchKind::kVllm, list, i + 2, found, container, module);
        return true;
      }
      if (module == "vllm.entrypoints.cli.main" && text(i + 2) == "serve") {
        add_launch(LaunchKind::kVllm, list, i + 3, found, container, "vllm serve");
        return true;
      }
      if (module == "sglang.launch_server") {
        add_launch(LaunchKind::kSglang, list, i + 2, found, container, module);
        return true;
      }
      if (module == "sglang_router.launch_router") {
        add_launch(LaunchKind::kRouter, list, i + 2, found, container, module);
        return true;
      }
      return true;
    }
    const std::string script = base_name(text(i));
    if (script.rfind("load_balance_proxy", 0) == 0) {
      add_launch(LaunchKind::kProxy, list, i + 1, found, container, script);
    } else if (script == "launch_online_dp.py") {
      add_launch(LaunchKind::kOnlineDp, list, i + 1, found, container, script);
    }
    return true;
  }
  if (program == "sglang-router" || program == "sglang_router") {
    add_launch(LaunchKind::kRouter, list, at + 1, found, container, program);
    return true;
  }
  if (program == "ray" && text(at + 1) == "start") {
    add_launch(LaunchKind::kRayStart, list, at + 2, found, container, "ray start");
    return true;
  }
  if ((program == "docker" || program == "podman" || program == "nerdctl") && text(at + 1) == "run") {
    docker_run(list, at + 2, found, depth);
    return true;
  }
  if ((program == "docker" || program == "podman" || program == "kubectl") && text(at + 1) == "exec") {
    for (std::size_t i = at + 2; i < list.size(); ++i) {
      if (shell(base_name(text(i))) || text(i) == "vllm") return launch_at(list, i, found, container, depth + 1);
    }
    return true;
  }
  if (program == "hccn_tool") {
    std::string line;
    for (std::size_t i = at; i < list.size(); ++i) line += text(i) + " ";
    out_.network_commands.push_back({file_, list[at].line(), line});
    return true;
  }
  if (shell(program)) {
    for (std::size_t i = at + 1; i + 1 < list.size(); ++i) {
      const std::string& option = text(i);
      if (option.size() > 1 && option[0] == '-' && option.back() == 'c') {
        Environment environment = found.exported != nullptr ? *found.exported : Environment{};
        for (const auto& [name, setting] : found.local) environment[name] = setting;
        read_script(list[i + 1].text, environment, container, depth + 1);
        return true;
      }
    }
    return true;
  }
  if (program == "ssh" && list.size() > at + 2) {
    read_script(list.back().text, {}, container, depth + 1);
    return true;
  }
  return false;
}

LaunchSet read_launch_set(const std::vector<InputFile>& files, const ExtractTables& tables) {
  LaunchSet out;
  Extractor(files, tables, out).run();
  return out;
}

}  // namespace perigee::planner
