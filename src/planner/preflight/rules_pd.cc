// Prefill and decode sides, their ports and the proxy in front: rules 8.11, 8.12, 8.14 (both sides), 8.38 and 8.39 of
// spec ascend.md.
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

}  // namespace perigee::planner
