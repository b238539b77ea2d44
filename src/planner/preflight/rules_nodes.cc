// Nodes of one instance, their network and Ray: rules 8.19, 8.36 (launch_online_dp), 8.37, 8.42 and 7.12 of spec
// ascend.md.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "planner/preflight/server.h"

namespace perigee::planner {

namespace {

// A scalar flag or number of two servers that must be equal; "" when one side is not known.
struct SharedFlag {
  const char* label;
  const char* vllm;
  const char* sglang;
};

constexpr SharedFlag kShapeFlags[] = {
    {"data parallel size", "--data-parallel-size", "--dp-size"},
    {"tensor parallel size", "--tensor-parallel-size", "--tp-size"},
    {"pipeline parallel size", "--pipeline-parallel-size", "--pp-size"},
    {"number of nodes", "--nnodes", "--nnodes"},
    {"batched tokens", "--max-num-batched-tokens", "--chunked-prefill-size"},
    {"sequences", "--max-num-seqs", "--max-running-requests"},
    {"context length", "--max-model-len", "--context-length"},
    {"block size", "--block-size", "--page-size"},
    {"decode context parallel size", "--decode-context-parallel-size", "--dcp-size"},
    {"RPC port", "--data-parallel-rpc-port", ""},
    {"master port", "--master-port", ""},
    {"memory fraction", "", "--mem-fraction-static"},
    {"quantization", "--quantization", "--quantization"},
    {"data type", "--dtype", "--dtype"},
};

std::string graph_text(const Server& server) {
  if (!server.graph_sizes_known) return "?";
  std::vector<std::int64_t> sizes;
  for (const auto& [size, line] : server.graph_sizes) sizes.push_back(size);
  return fmt::format("{}", fmt::join(sizes, ","));
}

std::int64_t first_rank(const Server& server) {
  if (server.dp_start.known()) return server.dp_start.value;
  if (server.dp_rank.known()) return server.dp_rank.value;
  return server.node_rank.known() ? server.node_rank.value : 0;
}

// A command that is one of several nodes of an instance.
bool multi_node(const Server& server) {
  if (server.nnodes.get(1).value_or(1) > 1) return true;
  if (!server.vllm()) return false;
  if (!server.dp_rank.absent() || !server.dp_start.absent()) return true;
  const auto dp = server.dp.get(1);
  return server.dp_local.known() && dp && *dp > server.dp_local.value;
}

std::string host_part(const std::string& address) {
  return address.substr(0, address.find(':'));
}

}  // namespace

void Rules::nodes() {
  // One node alone.
  for (const Server& server : servers_) {
    if (!server.vllm() && !server.sglang()) continue;
    const auto dp = server.dp.get(1);
    const auto nodes = server.nnodes.get(1);
    if (server.node_rank.known() && nodes && server.node_rank.value >= *nodes) {
      report(server, "8.37", Severity::kError, server.line_of(server.node_rank),
             fmt::format("Node rank {} of {} nodes: ranks begin with 0.", server.node_rank.value, *nodes),
             fmt::format("--node-rank between 0 and {}", *nodes - 1));
    }
    if (server.vllm() && dp) {
      const std::int64_t local = server.dp_local.get(1).value_or(1);
      if (server.dp_rank.known() && server.dp_rank.value >= *dp) {
        report(server, "8.37", Severity::kError, server.line_of(server.dp_rank),
               fmt::format("Data-parallel rank {} of {}: ranks begin with 0.", server.dp_rank.value, *dp),
               fmt::format("--data-parallel-rank between 0 and {}", *dp - 1));
      }
      if (server.dp_start.known() && server.dp_start.value + local > *dp) {
        report(server, "8.37", Severity::kError, server.line_of(server.dp_start),
               fmt::format("Ranks {} to {} go beyond the data-parallel size {}.", server.dp_start.value,
                           server.dp_start.value + local - 1, *dp),
               fmt::format("--data-parallel-start-rank {} or less", *dp - local));
      }
      if (server.dp_local.known() && server.dp_local.value > *dp) {
        report(server, "8.37", Severity::kError, server.line_of(server.dp_local),
               fmt::format("--data-parallel-size-local {} is larger than --data-parallel-size {}.",
                           server.dp_local.value, *dp),
               fmt::format("--data-parallel-size-local {}", *dp));
      }
    }
    if (!server.vllm() || server.launch->open) continue;
    const bool own_front = server.launch->flag("--data-parallel-hybrid-lb") ||
                           server.launch->flag("--data-parallel-external-lb") || !server.dp_rank.absent();
    const bool later = (server.node_rank.known() && server.node_rank.value > 0) ||
                       (server.dp_start.known() && server.dp_start.value > 0);
    if (later && !server.headless && !own_front) {
      report(server, "8.37", Severity::kError,
             server.node_rank.known() ? server.line_of(server.node_rank) : server.line_of(server.dp_start),
             "Nodes after the first must run --headless; this one would open a second API server and wait.",
             "add --headless on this node");
    }
    if (server.headless && !later && multi_node(server) && server.dp_start.absent() && server.node_rank.absent()) {
      report(server, "8.37", Severity::kError, server.launch->argument("--headless")->line,
             "A headless node needs its rank: without it the node takes rank 0, which is the first node's.",
             "--data-parallel-start-rank (or --node-rank) of this node");
    } else if (server.headless && !later && (server.node_rank.known() || server.dp_start.known()) &&
               multi_node(server)) {
      report(server, "8.37", Severity::kError, server.launch->argument("--headless")->line,
             "The first node of an instance holds the API server and must not be headless.", "drop --headless here");
    }
    const std::string master = host_part(master_of(server));
    const std::string own = server.address();
    if (multi_node(server) && server.dp_rank.absent() && is_address(master) && is_address(own)) {
      const Argument* argument = server.launch->argument(
          server.launch->argument("--master-addr") != nullptr ? "--master-addr" : "--data-parallel-address");
      if (later && master == own) {
        report(server, "8.37", Severity::kError, argument->value_line(),
               fmt::format("{} is this node's own address; it must be that of the first node.", master),
               "the address of the first node");
      } else if (!later && !server.headless && master != own && server.launch->env("HCCL_IF_IP") != nullptr) {
        report(server, "8.37", Severity::kError, argument->value_line(),
               fmt::format("The first node runs on {}, but the address that all nodes connect to is {}.", own, master),
               fmt::format("{} {}", argument->flag.name, own));
      }
    }
  }
  // Nodes of one instance against each other.
  std::vector<std::vector<const Server*>> instances;
  for (const Server& server : servers_) {
    if (!multi_node(server) || server.launch->conditional) continue;
    std::vector<const Server*>* home = nullptr;
    for (auto& instance : instances) {
      const Server& first = *instance.front();
      if (first.launch->kind != server.launch->kind || first.role != server.role) continue;
      if (first.model.name != server.model.name) continue;
      const std::string mine = master_of(server);
      const std::string theirs = master_of(first);
      // Another master is another instance, unless this node would then be without a first one.
      const bool same = mine.empty() || theirs.empty() || host_part(mine) == host_part(theirs);
      const bool orphan =
          first_rank(server) > 0 && std::none_of(servers_.begin(), servers_.end(), [&](const Server& other) {
            return &other != &server && multi_node(other) && first_rank(other) == 0 &&
                   host_part(master_of(other)) == host_part(mine);
          });
      const bool taken = std::any_of(instance.begin(), instance.end(), [&](const Server* other) {
        return first_rank(*other) == first_rank(server) && !same;
      });
      if (same || (orphan && !taken)) home = &instance;
    }
    if (home == nullptr) {
      instances.push_back({&server});
    } else {
      home->push_back(&server);
    }
  }
  for (const auto& instance : instances) {
    for (std::size_t i = 1; i < instance.size(); ++i) {
      const Server& first = *instance.front();
      const Server& server = *instance[i];
      const std::string mine = master_of(server);
      const std::string theirs = master_of(first);
      if (!mine.empty() && !theirs.empty() && mine != theirs) {
        const char* flag = server.sglang()                                       ? "--dist-init-addr"
                           : server.launch->argument("--master-addr") != nullptr ? "--master-addr"
                                                                                 : "--data-parallel-address";
        report(server, "8.37", Severity::kError, server.launch->argument(flag)->value_line(),
               fmt::format("This node connects to {}, the first one to {}.", mine, theirs),
               fmt::format("{} {}", flag, theirs));
      }
      for (const SharedFlag& shared : kShapeFlags) {
        const char* flag = server.vllm() ? shared.vllm : shared.sglang;
        if (*flag == '\0') continue;
        const Argument* a = first.launch->argument(flag);
        const Argument* b = server.launch->argument(flag);
        const std::string left = first.launch->text(flag);
        const std::string right = server.launch->text(flag);
        if (a != nullptr && b != nullptr && (left.empty() || right.empty())) continue;
        if (a == nullptr && b == nullptr) continue;
        if ((a == nullptr && first.launch->open) || (b == nullptr && server.launch->open)) continue;
        const FlagSpec* spec = (a != nullptr ? a : b)->flag.spec;
        const std::string fallback = spec != nullptr ? spec->fallback : std::string();
        const std::string left_value = a == nullptr ? fallback : left;
        const std::string right_value = b == nullptr ? fallback : right;
        if (left_value == right_value ||
            human_integer(left_value).value_or(-1) == human_integer(right_value).value_or(-2))
          continue;
        report(
            server, "8.37", Severity::kError, b == nullptr ? server.line() : b->value_line(),
            fmt::format("The first node has {} {}, this one {}: collectives get different shapes and the start hangs "
                        "without a message.",
                        shared.label, left_value.empty() ? "by default" : left_value,
                        right_value.empty() ? "by default" : right_value),
            fmt::format("{} {}", flag, left_value.empty() ? "on both nodes alike" : left_value));
      }
      if (graph_text(first) != graph_text(server) && graph_text(first) != "?" && graph_text(server) != "?") {
        report(server, "8.37", Severity::kError,
               server.graph_sizes.empty() ? server.line() : server.graph_sizes.front().second,
               fmt::format("The first node captures [{}], this one [{}].", graph_text(first), graph_text(server)),
               fmt::format("[{}] on both nodes", graph_text(first)));
      }
      for (const auto& [label, left, right] :
           {std::tuple{"--enable-expert-parallel", first.expert_parallel, server.expert_parallel},
            std::tuple{"--enforce-eager", first.eager, server.eager}}) {
        if (left == right || !server.vllm() || first.launch->open || server.launch->open) continue;
        report(server, "8.37", Severity::kError, server.line(),
               fmt::format("{} is {} on the first node and {} here.", label, left ? "set" : "not set",
                           right ? "set" : "not"),
               fmt::format("{} on both nodes or on none", label));
      }
      if (first.drafts.known() && server.drafts.known() && first.drafts.value != server.drafts.value) {
        report(server, "8.37", Severity::kError, server.line_of(server.drafts),
               fmt::format("The first node drafts {} tokens, this one {}.", first.drafts.value, server.drafts.value),
               fmt::format("\"num_speculative_tokens\": {}", first.drafts.value));
      }
      // Ranks are disjoint.
      for (std::size_t k = 0; k < i; ++k) {
        const Server& other = *instance[k];
        const bool data = !server.dp_rank.absent() || !server.dp_start.absent() || !other.dp_start.absent();
        const std::int64_t a = first_rank(other);
        const std::int64_t b = first_rank(server);
        const std::int64_t a_count = data ? other.dp_local.get(1).value_or(1) : 1;
        const std::int64_t b_count = data ? server.dp_local.get(1).value_or(1) : 1;
        const bool hidden =
            server.dp_rank.state == Number::State::kHidden || server.dp_start.state == Number::State::kHidden ||
            other.dp_rank.state == Number::State::kHidden || other.dp_start.state == Number::State::kHidden ||
            server.node_rank.state == Number::State::kHidden || other.node_rank.state == Number::State::kHidden;
        if (hidden || a >= b + b_count || b >= a + a_count) continue;
        // A headless node without a rank has its own finding.
        if (server.headless && server.dp_start.absent() && server.node_rank.absent()) continue;
        const Number& number = server.dp_start.known()  ? server.dp_start
                               : server.dp_rank.known() ? server.dp_rank
                                                        : server.node_rank;
        report(server, "8.37", Severity::kError, server.line_of(number),
               fmt::format("Rank {} is taken by {} line {} already.", b, other.launch->file, other.line()),
               "another rank on each node");
        break;
      }
    }
  }
}

void Rules::online_dp() {
  for (const Launch& launch : in_.launches) {
    if (launch.kind != LaunchKind::kOnlineDp) continue;
    const auto dp = launch.number("--dp-size").get(1);
    const auto tp = launch.number("--tp-size").get(1);
    const auto pp = launch.number("--pp-size").get(1);
    const Number local = launch.number("--dp-size-local");
    const Number start = launch.number("--dp-rank-start");
    const ChipFacts* chip = facts_.chip(context_.chip);
    const std::int64_t node = context_.devices_per_node > 0 ? context_.devices_per_node
                              : chip != nullptr             ? chip->devices
                                                            : 0;
    const auto ranks = local.absent() ? dp : local.get(1);
    if (node > 0 && tp && pp && ranks && *tp * *pp * *ranks > node) {
      report("8.36", Severity::kError, launch.file, local.known() ? local.line : launch.first_line,
             fmt::format("{} local ranks of {} devices need {}, the node has {}.", *ranks, *tp * *pp,
                         *tp * *pp * *ranks, node),
             fmt::format("--dp-size-local {}", std::max<std::int64_t>(1, node / (*tp * *pp))));
    }
    if (dp && ranks && start.known() && start.value + *ranks > *dp) {
      report("8.37", Severity::kError, launch.file, start.line,
             fmt::format("Ranks {} to {} go beyond --dp-size {}.", start.value, start.value + *ranks - 1, *dp),
             fmt::format("--dp-rank-start {}", std::max<std::int64_t>(0, *dp - *ranks)));
    }
  }
}

void Rules::network() {
  const Server* first = nullptr;
  for (const Server& server : servers_) {
    const Launch& launch = *server.launch;
    const Setting* hccl = launch.env("HCCL_SOCKET_IFNAME");
    for (const char* name : {"GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"}) {
      const Setting* other = launch.env(name);
      if (hccl == nullptr || other == nullptr || hccl->text.unknown() || other->text.unknown()) continue;
      if (hccl->text.value == other->text.value) continue;
      report(server, "8.19", Severity::kWarning, other->line,
             fmt::format("{} is {} and HCCL_SOCKET_IFNAME is {}: the ranks announce different interfaces.", name,
                         other->text.value, hccl->text.value),
             fmt::format("export {}={}", name, hccl->text.value));
    }
    if (!multi_node(server)) continue;
    if (first != nullptr && first->launch->file != launch.file) {
      const Setting* mine = launch.env("HCCL_IF_IP");
      const Setting* theirs = first->launch->env("HCCL_IF_IP");
      if (mine != nullptr && theirs != nullptr && !mine->text.unknown() && mine->text.value == theirs->text.value &&
          first->role == server.role && first_rank(*first) != first_rank(server)) {
        report(server, "8.19", Severity::kError, mine->line,
               fmt::format("HCCL_IF_IP {} is that of {} already.", mine->text.value, first->launch->file),
               "export HCCL_IF_IP with this node's own address");
      }
    } else {
      first = &server;
    }
  }
  // TLS is equal on all devices.
  std::string state;
  for (const NetworkCommand& command : in_.network_commands) {
    if (command.text.find("-tls") == std::string::npos || command.text.find("enable") == std::string::npos) continue;
    const std::size_t at = command.text.find("enable");
    const std::string value = command.text.substr(at + 7, 1);
    if (value != "0" && value != "1") continue;
    if (state.empty()) {
      state = value;
    } else if (state != value) {
      report("8.19", Severity::kError, command.file, command.line, "The TLS switch differs between devices or nodes.",
             fmt::format("hccn_tool ... -tls -s enable {}", state));
    }
  }
  // Rank tables of the old flow.
  for (const JsonFile& json : in_.json_files) {
    const Value* list = json.root->find("server_list");
    if (list == nullptr) {
      const Value* groups = json.root->find("server_group_list");
      if (groups != nullptr && !groups->items.empty()) list = groups->items.front()->find("server_list");
    }
    for (const ValuePtr& entry : list != nullptr ? list->items : std::vector<ValuePtr>{}) {
      const Value* devices = entry->find("device");
      for (const ValuePtr& device : devices != nullptr ? devices->items : std::vector<ValuePtr>{}) {
        if (device->kind != ValueKind::kMap || device->find("device_ip") != nullptr) continue;
        report("7.12", Severity::kError, json.file, device->line, "A device of the rank table has no device_ip.",
               "\"device_ip\" from hccn_tool -i N -ip -g");
        break;
      }
    }
  }
}

void Rules::ray() {
  for (const Launch& launch : in_.launches) {
    if (launch.kind != LaunchKind::kRayStart || launch.environment_open) continue;
    const Setting* noset = launch.env("RAY_EXPERIMENTAL_NOSET_ASCEND_RT_VISIBLE_DEVICES");
    if (noset != nullptr && (noset->text.value == "1" || noset->text.unknown())) continue;
    report("8.42", Severity::kError, launch.file, launch.first_line,
           "This node starts Ray without RAY_EXPERIMENTAL_NOSET_ASCEND_RT_VISIBLE_DEVICES=1: Ray gives each worker one "
           "visible "
           "device and device 1 is \"invalid\".",
           "export RAY_EXPERIMENTAL_NOSET_ASCEND_RT_VISIBLE_DEVICES=1 before ray start, on every node");
  }
}

}  // namespace perigee::planner
