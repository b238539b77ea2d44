// Several processes together: ports, nodes of one instance, prefill and decode sides, proxies, network, Ray.
// Rules 8.11, 8.12, 8.14 (both sides), 8.19, 8.37 to 8.39, 8.42 and 7.12 of spec ascend.md.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "planner/preflight/server.h"

namespace perigee::planner {

namespace {

struct PortUse {
  std::int64_t first = 0, count = 1;
  int line = 0;
  std::string what;
};

bool overlap(const PortUse& a, const PortUse& b) {
  return a.first < b.first + b.count && b.first < a.first + a.count;
}

const Value* kv_port_of(const Server& server) {
  if (server.connector == nullptr) return nullptr;
  const Value* port = server.connector->find("kv_port");
  return port != nullptr ? port : server.transfer->find("kv_port");
}

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

std::string master_of(const Server& server) {
  if (server.sglang()) return server.launch->text("--dist-init-addr");
  const std::string master = server.launch->text("--master-addr");
  return master.empty() ? server.launch->text("--data-parallel-address") : master;
}

std::string host_part(const std::string& address) {
  return address.substr(0, address.find(':'));
}

std::optional<std::int64_t> map_value(const Value* config, std::string_view side, std::string_view key) {
  const Value* value = find_path(config, {"kv_connector_extra_config", side, key});
  return value == nullptr ? std::nullopt : value->integer();
}

}  // namespace

void Rules::ports(const Server& server) {
  const Launch& launch = *server.launch;
  std::vector<PortUse> uses;
  const auto add = [&](const char* flag, const char* what) {
    const Number port = launch.number(flag);
    if (port.known()) uses.push_back({port.value, 1, port.line, what});
  };
  add("--port", "the API port");
  if (server.vllm()) {
    add("--data-parallel-rpc-port", "the data-parallel RPC port");
    add("--master-port", "the master port");
  } else {
    add("--disaggregation-bootstrap-port", "the bootstrap port");
    if (server.disaggregated() && launch.argument("--disaggregation-bootstrap-port") == nullptr && server.prefill()) {
      uses.push_back({8998, 1, server.line(), "the bootstrap port (default)"});
    }
    const std::string init = launch.text("--dist-init-addr");
    const std::size_t colon = init.rfind(':');
    if (colon != std::string::npos && server.node_rank.get(0).value_or(1) == 0) {
      if (const auto port = human_integer(init.substr(colon + 1))) {
        uses.push_back({*port, 1, launch.argument("--dist-init-addr")->value_line(), "the init port"});
      }
    }
    const std::string store = launch.env_text("ASCEND_MF_STORE_URL");
    const std::size_t store_colon = store.rfind(':');
    const std::size_t slashes = store.find("://");
    if (store_colon != std::string::npos && slashes != std::string::npos && store_colon > slashes + 3) {
      const std::string host = store.substr(slashes + 3, store_colon - slashes - 3);
      const auto port = human_integer(store.substr(store_colon + 1));
      if (port && host == server.address())
        uses.push_back({*port, 1, launch.env("ASCEND_MF_STORE_URL")->line, "the store port"});
    }
  }
  const Value* kv = server.vllm() && server.ascend() ? kv_port_of(server) : nullptr;
  const auto kv_port = kv == nullptr ? std::nullopt : kv->integer();
  if (kv_port) {
    const std::int64_t ranks = server.local_ranks().value_or(1);
    if (*kv_port < 1 || *kv_port + ranks - 1 > 65535) {
      report(server, "8.29", Severity::kError, kv->line, fmt::format("kv_port {} is no port.", *kv_port),
             "kv_port 36000");
      return;
    }
    std::int64_t node = context_.devices_per_node;
    if (node == 0 && server.chip != nullptr) node = server.chip->devices;
    const Value* name = server.connector->find("kv_connector");
    const bool mooncake = name != nullptr && name->str().find("Mooncake") != std::string::npos;
    const PortUse range{20000, 1000 * node, 0, ""};
    if (node > 0 && mooncake && overlap({*kv_port, ranks, 0, ""}, range)) {
      report(server, "8.11", Severity::kError, kv->line,
             fmt::format(
                 "On a node of {} devices the direct transport draws ports from 20000 to {}; {} collides now and then "
                 "(\"Address already in use\").",
                 node, 19999 + 1000 * node, *kv_port),
             fmt::format("kv_port {} or higher", 20000 + 1000 * node));
    }
    const Setting* base = launch.env("ASCEND_BASE_PORT");
    const auto base_port = base == nullptr ? std::optional<std::int64_t>(11000) : human_integer(base->text.value);
    uses.push_back({*kv_port, ranks, kv->line, "kv_port with one port a rank"});
    if (base_port) uses.push_back({*base_port, 1, base == nullptr ? 0 : base->line, "ASCEND_BASE_PORT"});
  }
  for (std::size_t i = 0; i < uses.size(); ++i) {
    for (std::size_t j = i + 1; j < uses.size(); ++j) {
      if (!overlap(uses[i], uses[j])) continue;
      const int line = uses[j].line > 0 ? uses[j].line : uses[i].line;
      report(server, "8.11", Severity::kError, line,
             fmt::format("{} ({}) and {} ({}) overlap.", uses[i].what, uses[i].first, uses[j].what, uses[j].first),
             fmt::format("another port than {} for one of them", uses[j].first));
    }
  }
}

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

void Rules::prefill_decode() {
  for (const Server& server : servers_) {
    if (!server.vllm() || server.connector == nullptr || !server.disaggregated()) continue;
    const char* side = server.prefill() ? "prefill" : "decode";
    const auto inner_role = server.connector->find("kv_role");
    const auto outer_role = server.transfer->find("kv_role");
    if (inner_role != nullptr && outer_role != nullptr && inner_role != outer_role &&
        inner_role->str() != outer_role->str() && !inner_role->unknown() && !outer_role->unknown()) {
      report(server, "8.38", Severity::kError, inner_role->line,
             fmt::format("The inner connector is {}, the outer one {}.", inner_role->str(), outer_role->str()),
             fmt::format("\"kv_role\":\"{}\"", outer_role->str()));
    }
    for (const Value* config : {server.connector, server.transfer}) {
      const auto own_tp = server.tp.get(1);
      const auto own_dp = server.dp.get(1);
      bool reported = false;
      for (const auto& [key, own] : {std::pair{"tp_size", own_tp}, std::pair{"dp_size", own_dp}}) {
        const auto stated = map_value(config, side, key);
        if (!stated || !own || *stated == *own || server.launch->open) continue;
        report(server, "8.38", Severity::kError, find_path(config, {"kv_connector_extra_config", side, key})->line,
               fmt::format("The {} map says {} {} while the command runs {}; the engine stops with a conflicting size.",
                           side, key, *stated, *own),
               fmt::format("\"{}\": {}", key, *own));
        reported = true;
      }
      const auto p = map_value(config, "prefill", "tp_size");
      const auto d = map_value(config, "decode", "tp_size");
      if (!reported && p && d && *d > 0 && (*p < *d || *p % *d != 0)) {
        report(server, "8.38", Severity::kError,
               find_path(config, {"kv_connector_extra_config", "decode", "tp_size"})->line,
               fmt::format("Prefill TP {} must be a multiple of decode TP {}.", *p, *d),
               fmt::format("a decode tp_size that divides {}", *p));
      }
      if (config == server.transfer || server.connector == server.transfer) break;
    }
  }
  // Two sides against each other.
  for (std::size_t i = 0; i < servers_.size(); ++i) {
    for (std::size_t j = i + 1; j < servers_.size(); ++j) {
      const Server& a = servers_[i];
      const Server& b = servers_[j];
      if (a.launch->kind != b.launch->kind || !a.vllm() || a.connector == nullptr || b.connector == nullptr) continue;
      if (a.launch->conditional || b.launch->conditional) continue;
      // One host, two servers: handshake ports.
      const Value* a_port = kv_port_of(a);
      const Value* b_port = kv_port_of(b);
      const auto a_kv = a_port == nullptr ? std::nullopt : a_port->integer();
      const auto b_kv = b_port == nullptr ? std::nullopt : b_port->integer();
      const bool same_host = !a.address().empty() && a.address() == b.address();
      // Ranks of one instance share the setting; the engine adds rank x TP.
      const bool one_instance = a.role == b.role && a.dp_rank.state != Number::State::kAbsent &&
                                b.dp_rank.state != Number::State::kAbsent && master_of(a) == master_of(b);
      if (same_host && a_kv && b_kv && !one_instance) {
        const PortUse left{*a_kv, a.local_ranks().value_or(1), 0, ""};
        const PortUse right{*b_kv, b.local_ranks().value_or(1), 0, ""};
        if (overlap(left, right)) {
          report(b, "8.11", Severity::kError, b_port->line,
                 fmt::format("Each server listens on kv_port with one port a rank; {}-{} and {}-{} overlap on {}.",
                             left.first, left.first + left.count - 1, right.first, right.first + right.count - 1,
                             a.address()),
                 fmt::format("kv_port {}", align_up(left.first + left.count, 100)));
        }
      }
      if (same_host) {
        const Number left = a.launch->number("--port");
        const Number right = b.launch->number("--port");
        if (left.known() && right.known() && left.value == right.value && !a.headless && !b.headless) {
          report(b, "8.11", Severity::kError, right.line,
                 fmt::format("Port {} is taken by {} on the same host.", right.value, a.launch->file),
                 fmt::format("--port {}", right.value + 100));
        }
      }
      const Value* a_id = a.transfer->find("engine_id");
      const Value* b_id = b.transfer->find("engine_id");
      if (a_id != nullptr && b_id != nullptr && !a_id->unknown() && a_id->str() == b_id->str() && a.role != b.role) {
        report(b, "8.38", Severity::kError, b_id->line,
               fmt::format("engine_id \"{}\" is used by {} too; it must be unique.", b_id->str(), a.launch->file),
               "\"engine_id\" that no other server has");
      }
      const bool sides = (a.prefill() && b.decode()) || (a.decode() && b.prefill());
      if (!sides) continue;
      const Setting* a_seed = a.launch->env("PYTHONHASHSEED");
      const Setting* b_seed = b.launch->env("PYTHONHASHSEED");
      const bool open = a.launch->environment_open || b.launch->environment_open;
      const std::string a_text = a_seed == nullptr ? std::string() : a_seed->text.value;
      const std::string b_text = b_seed == nullptr ? std::string() : b_seed->text.value;
      if (a_text != b_text && !open && a_text.find(kUnknown) == std::string::npos &&
          b_text.find(kUnknown) == std::string::npos) {
        const Server& wrong = b_seed == nullptr || a_seed != nullptr ? b : a;
        const Setting* seed = &wrong == &b ? b_seed : a_seed;
        report(wrong, "8.12", Severity::kError, seed != nullptr ? seed->line : wrong.line(),
               fmt::format("PYTHONHASHSEED is \"{}\" on one side and \"{}\" on the other: block hashes never meet.",
                           a_text, b_text),
               "export PYTHONHASHSEED=0 on both sides");
      }
      if (a.block.known() && b.block.known() && a.block.value != b.block.value) {
        report(b, "8.12", Severity::kError, b.line_of(b.block),
               fmt::format("Block size {} here and {} on the other side.", b.block.value, a.block.value),
               fmt::format("--block-size {}", a.block.value));
      }
      const auto a_drafts = a.drafts.get(0);
      const auto b_drafts = b.drafts.get(0);
      if (a.model.hybrid() && a_drafts && b_drafts && *a_drafts != *b_drafts) {
        report(b, "8.12", Severity::kError, b.line_of(b.drafts),
               fmt::format("{} drafts here and {} on the other side; a hybrid model needs them equal.", *b_drafts,
                           *a_drafts),
               fmt::format("\"num_speculative_tokens\": {}", *a_drafts));
      }
      const std::string a_quantization = a.launch->text("--quantization");
      const std::string b_quantization = b.launch->text("--quantization");
      const bool hidden = a.launch->open || b.launch->open;
      if (a_quantization != b_quantization && !hidden) {
        const Argument* argument = b.launch->argument("--quantization");
        report(
            b, "8.12", Severity::kError, argument == nullptr ? b.line() : argument->value_line(),
            fmt::format("--quantization is \"{}\" here and \"{}\" on the other side.", b_quantization, a_quantization),
            fmt::format("--quantization {}", a_quantization.empty() ? b_quantization : a_quantization));
      } else if (a.model.name != b.model.name && a.launch->model && b.launch->model &&
                 !b.launch->model->text.unknown() && !a.launch->model->text.unknown()) {
        report(b, "8.12", Severity::kError, b.launch->model->line(),
               fmt::format("This side serves {}, the other one {}.", b.model.name, a.model.name),
               fmt::format("the same checkpoint, {}", a.model.name));
      }
      for (const char* map : {"prefill", "decode"}) {
        for (const char* key : {"tp_size", "dp_size"}) {
          const auto left = map_value(a.connector, map, key);
          const auto right = map_value(b.connector, map, key);
          if (!left || !right || *left == *right) continue;
          // The side that disagrees with its own command has that finding already.
          const Server& owner = (std::string_view(map) == "prefill") == a.prefill() ? a : b;
          const auto own = std::string_view(key) == "tp_size" ? owner.tp.get(1) : owner.dp.get(1);
          const Server& wrong = own && *own == *left ? b : own && *own == *right ? a : b;
          if (&wrong == &owner) continue;
          report(wrong, "8.12", Severity::kError,
                 find_path(wrong.connector, {"kv_connector_extra_config", map, key})->line,
                 fmt::format("The {} map says {} {} here and {} on the other side.", map, key,
                             &wrong == &a ? *left : *right, &wrong == &a ? *right : *left),
                 fmt::format("\"{}\": {}", key, &wrong == &a ? *right : *left));
        }
      }
      const auto a_dcp = a.dcp.get(1);
      const auto b_dcp = b.dcp.get(1);
      if (a.model.sparse && a_dcp && b_dcp && (*a_dcp > 1) != (*b_dcp > 1)) {
        const Server& with = *a_dcp > 1 ? a : b;
        report(with, "8.14", Severity::kError, with.line_of(with.dcp),
               "With sparse attention decode context parallel must be on on both sides or on neither.",
               "--decode-context-parallel-size on both sides");
      }
      const Value* a_name = a.connector->find("kv_connector");
      const Value* b_name = b.connector->find("kv_connector");
      if (a_name != nullptr && b_name != nullptr && a_name->str() != b_name->str() && !a_name->unknown() &&
          !b_name->unknown()) {
        report(b, "8.38", Severity::kError, b_name->line,
               fmt::format("{} here and {} on the other side cannot talk to each other.", b_name->str(), a_name->str()),
               a_name->str());
      }
      const auto a_tp = a.tp.get(1);
      const auto b_tp = b.tp.get(1);
      const auto p = a.prefill() ? a_tp : b_tp;
      const auto d = a.prefill() ? b_tp : a_tp;
      const bool mapped = map_value(a.connector, "prefill", "tp_size") || map_value(b.connector, "prefill", "tp_size");
      if (!mapped && p && d && *d > 0 && *p > 0 && (*p < *d || *p % *d != 0) && !hidden) {
        const Server& decode = a.prefill() ? b : a;
        report(decode, "8.38", Severity::kError, decode.line_of(decode.tp),
               fmt::format("Prefill TP {} must be a multiple of decode TP {}.", *p, *d),
               fmt::format("a --tensor-parallel-size that divides {}", *p));
      }
    }
  }
}

void Rules::proxies() {
  for (const Launch& launch : in_.launches) {
    if (launch.kind != LaunchKind::kProxy && launch.kind != LaunchKind::kRouter) continue;
    const auto fail = [&](int line, std::string message, std::string fix) {
      report("8.39", Severity::kError, launch.file, line, std::move(message), std::move(fix));
    };
    if (launch.kind == LaunchKind::kRouter) {
      const Argument* prefill = launch.argument("--prefill");
      if (prefill != nullptr && !launch.flag("--pd-disaggregation") && !launch.open) {
        fail(prefill->line, "--prefill and --decode need --pd-disaggregation.", "add --pd-disaggregation");
      }
      for (const Argument& argument : launch.arguments) {
        const bool is_prefill = argument.flag.name == "--prefill";
        if ((!is_prefill && argument.flag.name != "--decode") || argument.values.empty()) continue;
        const std::string& url = argument.values[0].text.value;
        const std::size_t slashes = url.find("://");
        const std::size_t colon = url.rfind(':');
        if (slashes == std::string::npos || colon <= slashes + 2 || argument.values[0].text.unknown()) continue;
        const std::string host = url.substr(slashes + 3, colon - slashes - 3);
        const auto port = human_integer(url.substr(colon + 1));
        for (const Server& server : servers_) {
          if (!server.sglang() || server.address() != host || server.prefill() != is_prefill || !server.disaggregated())
            continue;
          const Number own = server.launch->number("--port");
          if (port && own.known() && own.value != *port) {
            fail(argument.value_line(),
                 fmt::format("The server on {} listens on {}, the router asks {}.", host, own.value, *port),
                 fmt::format("{} http://{}:{}", argument.flag.name, host, own.value));
          }
          const Number bootstrap = server.launch->number("--disaggregation-bootstrap-port");
          const auto expected = bootstrap.get(8998);
          if (is_prefill && argument.values.size() > 1 && expected) {
            const auto stated = human_integer(argument.values[1].text.value);
            if (stated && *stated != *expected) {
              fail(argument.values[1].line(),
                   fmt::format("The bootstrap port of {} is {}, the router asks {}.", host, *expected, *stated),
                   std::to_string(*expected));
            }
          }
        }
      }
      continue;
    }
    std::set<std::string> seen;
    for (const auto& [role, hosts_flag, ports_flag] :
         {std::tuple{"prefiller", "--prefiller-hosts", "--prefiller-ports"},
          std::tuple{"decoder", "--decoder-hosts", "--decoder-ports"}}) {
      const Argument* hosts = launch.argument(hosts_flag);
      const Argument* ports = launch.argument(ports_flag);
      if (hosts == nullptr || ports == nullptr) {
        if ((hosts == nullptr) != (ports == nullptr) && !launch.open) {
          fail((hosts != nullptr ? hosts : ports)->line,
               fmt::format("{} and {} belong together.", hosts_flag, ports_flag),
               fmt::format("add {}", hosts == nullptr ? hosts_flag : ports_flag));
        }
        continue;
      }
      const auto open = [](const Argument& argument) {
        return std::any_of(argument.values.begin(), argument.values.end(), [](const Word& word) { return word.open; });
      };
      if (open(*hosts) || open(*ports)) continue;
      if (hosts->values.size() != ports->values.size()) {
        const std::size_t have = ports->values.size();
        std::vector<std::string> fixed;
        for (std::size_t i = 0; i < hosts->values.size() && have > 0; ++i)
          fixed.push_back(ports->values[i % have].text.value);
        fail(
            ports->line,
            fmt::format("{} {} hosts but {} ports: the lists are paired one to one.", hosts->values.size(), role, have),
            fmt::format("{} {}", ports_flag, fmt::join(fixed, " ")));
        continue;
      }
      for (std::size_t i = 0; i < hosts->values.size(); ++i) {
        const std::string& host = hosts->values[i].text.value;
        const std::string& port_text = ports->values[i].text.value;
        const auto port = human_integer(port_text);
        if (hosts->values[i].text.unknown() || !port) continue;
        if (!seen.insert(host + ":" + port_text).second) {
          fail(ports->values[i].line(), fmt::format("{}:{} is listed twice.", host, port_text), "each server once");
        }
        const Number own = launch.number("--port");
        if (own.known() && own.value == *port && launch.text("--host") == host) {
          fail(own.line, fmt::format("The proxy's own port {} is that of a server on the same host.", own.value),
               "another --port for the proxy");
        }
        // Servers that are shown on that host.
        bool any = false;
        bool match = false;
        std::int64_t real = 0;
        for (const Server& server : servers_) {
          if (!server.vllm() || server.address() != host || server.headless || !server.disaggregated()) continue;
          if (server.prefill() != (std::string_view(role) == "prefiller")) continue;
          const Number server_port = server.launch->number("--port");
          const auto value = server_port.get(8000);
          if (!value) continue;
          any = true;
          real = *value;
          match = match || *value == *port;
        }
        if (any && !match) {
          fail(ports->values[i].line(),
               fmt::format("The {} on {} listens on {}, the proxy asks {}.", role, host, real, *port),
               fmt::format("{} with {} for {}", ports_flag, real, host));
        }
      }
    }
    // Which proxy belongs to which connector.
    const bool layerwise = launch.program.find("layerwise") != std::string::npos;
    for (const Server& server : servers_) {
      const Value* name = server.connector == nullptr ? nullptr : server.connector->find("kv_connector");
      if (name == nullptr || !server.disaggregated()) continue;
      const bool layer_connector = name->str() == "MooncakeLayerwiseConnector";
      if (layer_connector == layerwise || name->unknown()) continue;
      fail(launch.first_line,
           fmt::format("{} goes with {}, the servers use {}.", launch.program,
                       layerwise ? "MooncakeLayerwiseConnector" : "the pull connectors", name->str()),
           layer_connector ? "load_balance_proxy_layerwise_server_example.py" : "load_balance_proxy_server_example.py");
      break;
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
