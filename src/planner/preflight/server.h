// One engine server as the rules see it: the numbers of its command line under one name for both engines.
// Internal to the rules.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "base/checked.h"
#include "planner/preflight/check.h"
#include "planner/preflight/facts.h"

namespace perigee::planner {

inline bool contains(const std::vector<std::string>& list, const std::string& item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

struct Server {
  const Launch* launch = nullptr;
  const Container* container = nullptr;
  ModelFacts model;
  const ChipFacts* chip = nullptr;
  std::string engine;   // "vllm-ascend", "vllm", "sglang"
  std::string version;  // of the image when it names one, else of the context; "" unknown
  const EngineFacts* facts = nullptr;
  bool exact_version = false;  // the flag table is that of this version

  Number tp, pp, dp, dp_local, dp_rank, dp_start, nnodes, node_rank, dcp, pcp;
  Number batched, sequences, context, block, drafts;
  bool expert_parallel = false, eager = false, headless = false, ray = false;
  std::vector<std::pair<std::int64_t, int>> graph_sizes;  // size, line
  bool graph_sizes_given = false, graph_sizes_known = true;

  const Value* additional = nullptr;
  const Value* speculative = nullptr;
  const Value* compilation = nullptr;
  const Value* transfer = nullptr;
  const Value* connector = nullptr;  // the point-to-point connector, inside MultiConnector too
  const Value* pool = nullptr;       // AscendStore or Mooncake store connector
  PdRole role = PdRole::kNone;

  bool vllm() const { return launch->kind == LaunchKind::kVllm; }
  bool sglang() const { return launch->kind == LaunchKind::kSglang; }
  bool ascend() const { return engine != "vllm"; }
  bool chip_is(std::string_view name) const { return chip != nullptr && chip->name == name; }
  int line() const { return launch->first_line; }
  // Ranks of this command on its own node; nullopt when it is not known.
  std::optional<std::int64_t> local_ranks() const;
  // Ranks of the whole instance.
  std::optional<std::int64_t> world() const;
  // Experts over TP x DP; 1 without expert parallelism. nullopt: not known.
  std::optional<std::int64_t> ep() const;
  // additional_config key, or nullptr.
  const Value* key(std::initializer_list<std::string_view> path) const { return find_path(additional, path); }
  bool switched_on(std::initializer_list<std::string_view> path) const;
  // FlashComm1 by key or environment; `line` gets where.
  bool flashcomm(int& line) const;
  bool prefill() const { return role == PdRole::kProducer; }
  bool decode() const { return role == PdRole::kConsumer; }
  bool disaggregated() const { return prefill() || decode(); }
  std::string address() const;  // of its node: HCCL_IF_IP or VLLM_HOST_IP; "" unknown
  int line_of(const Number& number) const { return number.line > 0 ? number.line : line(); }
};

class Rules {
 public:
  Rules(const LaunchSet& deployment, const CheckContext& context, CheckReport& report);
  void run();

 private:
  void report(std::string_view rule, Severity severity, const std::string& file, int line, std::string message,
              std::string fix);
  void report(const Server& server, std::string_view rule, Severity severity, int line, std::string message,
              std::string fix) {
    report(rule, severity, server.launch->file, line, std::move(message), std::move(fix));
  }
  Server make_server(const Launch& launch) const;

  // rules_text.cc: what the parsers say (8.27 to 8.31)
  void command_text(const Server& server);
  void flags(const Server& server);
  void values(const Server& server);
  void config_keys(const Server& server);
  void environment_names(const Server& server);
  void stray_commands();
  void placeholders(const Server& server);
  void check_value(const Server& server, const std::string& name, const FlagSpec& spec, const Value& value);
  void check_fields(const Server& server, const std::string& where, const FieldTable& fields, const FlagTable& classes,
                    const Value& value, Severity severity, const std::vector<std::string>& extra);
  void connectors(const Server& server, const Value& transfer, int depth);

  // rules_layout.cc: sizes
  void layout(const Server& server);
  void context_parallel(const Server& server);
  void mc2(const Server& server);
  void mega_moe(const Server& server);
  void graphs(const Server& server);
  void memory(const Server& server);
  void devices(const Server& server);

  // rules_engine.cc: settings that need or exclude each other
  void formats(const Server& server);
  void versions(const Server& server);
  void companions(const Server& server);
  void parsers(const Server& server);
  void transfer_rules(const Server& server);
  void environment_rules(const Server& server);
  void pool_rules(const Server& server);

  // rules_pd.cc and rules_nodes.cc: several processes together
  void ports(const Server& server);
  void prefill_decode();
  void proxies();
  void nodes();
  void network();
  void superpods();
  void node_reports();
  void ray();
  void online_dp();

  // rules_container.cc
  void containers();
  void container_devices(const Container& container, const Server* server);
  void kubernetes(const Container& container, const Server* server);

  // rules_sglang.cc
  void sglang(const Server& server);
  void sglang_pd();

  const LaunchSet& in_;
  const CheckContext& context_;
  CheckReport& out_;
  const PreflightFacts& facts_;
  std::vector<Server> servers_;
};

// Small helpers shared by the rule files.
std::string shown(const Text& text);
bool is_address(std::string_view text);  // dotted IPv4
// Address (and port) of the first node that this command names, "" when it names none.
std::string master_of(const Server& server);

}  // namespace perigee::planner
