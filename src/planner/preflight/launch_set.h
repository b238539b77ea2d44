// What a set of launch files starts: servers, proxies, containers, pools; with the line of everything. Built from the
// files by extract.cc and containers.cc, read by the rules.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "planner/preflight/flag_table.h"
#include "planner/preflight/node_report.h"
#include "planner/preflight/shell.h"
#include "planner/preflight/value.h"

namespace perigee::planner {

enum class LaunchKind : std::uint8_t {
  kVllm,
  kSglang,
  kProxy,     // load_balance_proxy_*_example.py
  kRouter,    // sglang_router.launch_router
  kOnlineDp,  // launch_online_dp.py
  kRayStart,
};

struct Argument {
  ResolvedFlag flag;
  std::string written;
  std::vector<Word> values;
  int line = 0;
  bool glued = false;  // --flag=value

  int value_line() const { return values.empty() ? line : values[0].line(); }
};

struct Mount {
  std::string source, target;
  int line = 0;
};

struct Container {
  enum class Kind : std::uint8_t { kDocker, kCompose, kKubernetes };
  Kind kind = Kind::kDocker;
  std::string file;
  int first_line = 0, last_line = 0;
  Text image;
  bool open = false;             // options that are not known: nothing can be said to be missing
  std::vector<Setting> devices;  // host paths
  std::vector<Mount> mounts;
  Environment environment;
  bool privileged = false, host_ipc = false, ascend_runtime = false;
  std::optional<Setting> shm;
  // Kubernetes
  std::map<std::string, Setting> requests, limits;
  int resources_line = 0;
  bool shm_in_memory = false, shm_mounted = false;
  std::string shm_limit;
  int shm_line = 0;
  std::int64_t group_size = 0;  // LeaderWorkerSet; 0: not in a group
  int group_line = 0;
  std::vector<Member> duplicate_environment;
};

struct Number {
  enum class State : std::uint8_t { kAbsent, kHidden, kKnown };
  State state = State::kAbsent;
  std::int64_t value = 0;
  int line = 0;

  bool known() const { return state == State::kKnown; }
  bool absent() const { return state == State::kAbsent; }
  // The number, or `fallback` when it is absent; nullopt when it is given but not known.
  std::optional<std::int64_t> get(std::int64_t fallback) const {
    if (state == State::kHidden) return std::nullopt;
    return state == State::kKnown ? value : fallback;
  }
};

enum class PdRole : std::uint8_t { kNone, kProducer, kConsumer, kBoth, kHidden };

struct Launch {
  LaunchKind kind = LaunchKind::kVllm;
  std::string file;
  int first_line = 0, last_line = 0;
  bool conditional = false;
  bool open = false;  // unknown words: a missing flag proves nothing
  bool environment_open = false;
  bool module_launcher = false;  // python -m vllm.entrypoints.openai.api_server
  bool list_form = false;        // words come from a YAML list: one item is one argument
  std::string program;           // proxy script
  Environment environment;
  std::vector<Argument> arguments;
  std::vector<Word> stray;
  std::vector<std::string> mistaken;  // flags that unknown ones may have meant: their numbers are not known
  std::optional<Word> model;
  int container = -1;  // index into LaunchSet::containers
  const FlagTable* table = nullptr;

  // JSON configurations by flag, dotted keys merged; absent when not given, null when not readable.
  std::map<std::string, ValuePtr> configs;
  std::vector<std::pair<std::string, ParseFailure>> broken_configs;
  std::map<std::string, Argument> config_arguments;

  void add(Argument argument);
  const Argument* argument(std::string_view name) const;  // the last one, as the parser takes it
  bool flag(std::string_view name) const;                 // boolean flag given and not negated
  Number number(std::string_view name) const;
  std::string text(std::string_view name) const;  // "" when absent or unknown
  const Value* config(std::string_view name) const;
  const Setting* env(std::string_view name) const;
  std::string env_text(std::string_view name) const;  // "" when absent or unknown
};

struct JsonFile {
  std::string file;
  ValuePtr root;
};

struct NetworkCommand {  // hccn_tool
  std::string file;
  int line = 0;
  std::string text;
};

struct LaunchSet {
  std::vector<std::string> files;
  std::vector<Launch> launches;
  std::vector<Container> containers;
  std::vector<JsonFile> json_files;
  std::vector<NetworkCommand> network_commands;
  std::vector<NodeReport> node_reports;
  std::vector<Setting> versions;           // CANN versions in paths; text = version
  std::vector<std::string> version_files;  // their files
  // Problems of reading, with file and line.
  struct Problem {
    std::string file, message;
    int line = 0;
  };
  struct StrayCommand {  // a command line that begins with a flag
    std::string file, word;
    int line = 0;
  };
  std::vector<Problem> problems;
  std::vector<StrayCommand> flag_commands;
  struct DuplicateKey {
    std::string file, key;
    int line = 0;
  };
  std::vector<DuplicateKey> duplicate_keys;
};

struct InputFile {
  std::string name;  // as findings show it
  std::string content;
};

// `table` gives the flag tables for vLLM and SGLang command lines (either may be nullptr: words stay unresolved).
struct ExtractTables {
  const FlagTable* vllm = nullptr;
  const FlagTable* sglang = nullptr;
};

LaunchSet read_launch_set(const std::vector<InputFile>& files, const ExtractTables& tables);

// "8", "32k" (1000), "32K" (1024): as vLLM reads whole numbers.
std::optional<std::int64_t> human_integer(std::string_view text);

}  // namespace perigee::planner
