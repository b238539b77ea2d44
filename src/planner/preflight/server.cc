#include "planner/preflight/server.h"

#include <algorithm>
#include <cctype>

namespace perigee::planner {

namespace {

// "v0.30.0rc2-a3-openeuler": version, rest. Names without a version ("kimi-k3-a3", "latest") give "".
std::string image_version(const std::string& image, std::string& rest) {
  const std::size_t colon = image.rfind(':');
  if (colon == std::string::npos || image.find(static_cast<char>(kUnknown)) != std::string::npos) return {};
  std::string tag = image.substr(colon + 1);
  if (!tag.empty() && tag[0] == 'v') tag.erase(0, 1);
  const std::size_t dash = tag.find('-');
  rest = dash == std::string::npos ? std::string() : tag.substr(dash);
  std::string version = tag.substr(0, dash);
  if (version.empty() || std::isdigit(static_cast<unsigned char>(version[0])) == 0) return {};
  return version;
}

Number number_of(const Value* value) {
  Number out;
  if (value == nullptr) return out;
  out.line = value->line;
  out.state = Number::State::kHidden;
  if (const auto integer = value->integer()) {
    out.value = *integer;
    out.state = Number::State::kKnown;
  }
  return out;
}

PdRole role_of(const Value* transfer) {
  const Value* role = transfer->find("kv_role");
  if (role == nullptr) return PdRole::kHidden;
  if (role->str() == "kv_producer") return PdRole::kProducer;
  if (role->str() == "kv_consumer") return PdRole::kConsumer;
  if (role->str() == "kv_both") return PdRole::kBoth;
  return PdRole::kHidden;
}

bool store_connector(const std::string& name) {
  return name.find("Store") != std::string::npos;
}

void find_connectors(Server& server, const Value* transfer) {
  const Value* name = transfer->find("kv_connector");
  if (name == nullptr) return;
  if (name->str() != "MultiConnector") {
    (store_connector(name->str()) ? server.pool : server.connector) = transfer;
    return;
  }
  const Value* inner = find_path(transfer, {"kv_connector_extra_config", "connectors"});
  for (const ValuePtr& item : inner != nullptr ? inner->items : std::vector<ValuePtr>{}) {
    const Value* inner_name = item->find("kv_connector");
    if (inner_name == nullptr) continue;
    const Value*& target = store_connector(inner_name->str()) ? server.pool : server.connector;
    if (target == nullptr) target = item.get();
  }
}

void read_graph_sizes(Server& server) {
  const auto add = [&](const Word& word) {
    server.graph_sizes_given = true;
    if (const auto size = human_integer(word.text.value)) {
      server.graph_sizes.emplace_back(*size, word.line());
    } else {
      server.graph_sizes_known = false;
    }
  };
  for (const char* name : {"--cudagraph-capture-sizes", "--cuda-graph-bs-decode"}) {
    const Argument* argument = server.launch->argument(name);
    for (const Word& word : argument != nullptr ? argument->values : std::vector<Word>{}) add(word);
  }
  const Value* sizes = server.compilation == nullptr ? nullptr : server.compilation->find("cudagraph_capture_sizes");
  if (sizes == nullptr) return;
  server.graph_sizes_given = true;
  for (const ValuePtr& item : sizes->items) {
    if (const auto size = item->integer()) {
      server.graph_sizes.emplace_back(*size, item->line);
    } else {
      server.graph_sizes_known = false;
    }
  }
}

void read_vllm(Server& server) {
  const Launch& launch = *server.launch;
  server.tp = launch.number("--tensor-parallel-size");
  server.pp = launch.number("--pipeline-parallel-size");
  server.dp = launch.number("--data-parallel-size");
  server.dp_local = launch.number("--data-parallel-size-local");
  server.dp_rank = launch.number("--data-parallel-rank");
  server.dp_start = launch.number("--data-parallel-start-rank");
  server.nnodes = launch.number("--nnodes");
  server.node_rank = launch.number("--node-rank");
  server.dcp = launch.number("--decode-context-parallel-size");
  server.pcp = launch.number("--prefill-context-parallel-size");
  server.batched = launch.number("--max-num-batched-tokens");
  server.sequences = launch.number("--max-num-seqs");
  server.context = launch.number("--max-model-len");
  server.block = launch.number("--block-size");
  server.expert_parallel = launch.flag("--enable-expert-parallel");
  server.eager = launch.flag("--enforce-eager");
  server.headless = launch.flag("--headless");
  server.ray =
      launch.text("--distributed-executor-backend") == "ray" || launch.text("--data-parallel-backend") == "ray";
  server.additional = launch.config("--additional-config");
  server.speculative = launch.config("--speculative-config");
  server.compilation = launch.config("--compilation-config");
  server.transfer = launch.config("--kv-transfer-config");
  if (const Value* mode = server.compilation == nullptr ? nullptr : server.compilation->find("cudagraph_mode")) {
    if (mode->str() == "NONE") server.eager = true;
  }
  server.drafts = launch.number("--spec-tokens");
  if (server.speculative != nullptr) {
    server.drafts = number_of(server.speculative->find("num_speculative_tokens"));
    // A method alone takes the number from the draft's own configuration.
    if (server.drafts.absent()) server.drafts = {Number::State::kHidden, 0, server.speculative->line};
  } else if (launch.configs.count("--speculative-config") != 0) {
    server.drafts.state = Number::State::kHidden;
  }
  if (server.transfer != nullptr) {
    server.role = role_of(server.transfer);
    find_connectors(server, server.transfer);
  } else if (launch.configs.count("--kv-transfer-config") != 0) {
    server.role = PdRole::kHidden;
  }
}

void read_sglang(Server& server) {
  const Launch& launch = *server.launch;
  server.tp = launch.number("--tp-size");
  server.pp = launch.number("--pp-size");
  server.dp = launch.number("--dp-size");
  server.nnodes = launch.number("--nnodes");
  server.node_rank = launch.number("--node-rank");
  server.dcp = launch.number("--dcp-size");
  server.batched = launch.number("--chunked-prefill-size");
  server.sequences = launch.number("--max-running-requests");
  server.context = launch.number("--context-length");
  server.block = launch.number("--page-size");
  server.eager = launch.flag("--disable-cuda-graph");
  server.drafts = launch.number("--speculative-num-draft-tokens");
  if (server.drafts.known()) {
    server.drafts.value -= 1;
  } else if (launch.argument("--speculative-algorithm") != nullptr) {
    server.drafts = launch.number("--speculative-num-steps");
    if (server.drafts.absent()) server.drafts.state = Number::State::kHidden;
  }
  const std::string mode = launch.text("--disaggregation-mode");
  if (mode == "prefill") server.role = PdRole::kProducer;
  if (mode == "decode") server.role = PdRole::kConsumer;
}

}  // namespace

std::string shown(const Text& text) {
  std::string out = text.value.substr(0, 80);
  std::replace(out.begin(), out.end(), kUnknown, '?');
  std::replace(out.begin(), out.end(), '\n', ' ');
  return out;
}

bool is_address(std::string_view text) {
  int dots = 0;
  for (const char c : text) {
    if (c == '.') ++dots;
    if (c != '.' && std::isdigit(static_cast<unsigned char>(c)) == 0) return false;
  }
  return dots == 3;
}

std::string master_of(const Server& server) {
  if (server.sglang()) return server.launch->text("--dist-init-addr");
  const std::string master = server.launch->text("--master-addr");
  return master.empty() ? server.launch->text("--data-parallel-address") : master;
}

std::optional<std::int64_t> Server::local_ranks() const {
  const auto tp_value = tp.get(1);
  const auto pp_value = pp.get(1);
  const auto nodes = nnodes.get(1);
  if (!tp_value || !pp_value || !nodes || *nodes < 1 || launch->open) return std::nullopt;
  if (ray) return std::nullopt;
  const std::int64_t group = *tp_value * *pp_value;
  if (sglang())
    return *nodes > 1 ? group / *nodes : group * (launch->flag("--enable-dp-attention") ? 1 : dp.get(1).value_or(1));
  if (dp_rank.state != Number::State::kAbsent) return group;
  const auto dp_value = dp.get(1);
  if (*nodes > 1) {
    if (!dp_value) return std::nullopt;
    return group * *dp_value / *nodes;
  }
  if (dp_local.known()) return group * dp_local.value;
  if (dp_local.state == Number::State::kHidden || !dp_value) return std::nullopt;
  // With a start rank the local size follows from the load balancer's mode.
  if (dp_start.state != Number::State::kAbsent) return std::nullopt;
  return group * *dp_value;
}

std::optional<std::int64_t> Server::world() const {
  const auto tp_value = tp.get(1);
  const auto pp_value = pp.get(1);
  const auto dp_value = dp.get(1);
  if (!tp_value || !pp_value || !dp_value || launch->open) return std::nullopt;
  if (sglang()) return *tp_value * *pp_value * (launch->flag("--enable-dp-attention") ? 1 : *dp_value);
  return *tp_value * *pp_value * *dp_value;
}

std::optional<std::int64_t> Server::ep() const {
  const auto tp_value = tp.get(1);
  const auto dp_value = dp.get(1);
  if (!tp_value || !dp_value) return std::nullopt;
  const auto pcp_value = pcp.get(1);
  if (!pcp_value) return std::nullopt;
  return expert_parallel ? *tp_value * *dp_value * *pcp_value : 1;
}

bool Server::switched_on(std::initializer_list<std::string_view> path) const {
  const Value* value = find_path(additional, path);
  if (value == nullptr) return false;
  if (const auto boolean = value->boolean()) return *boolean;
  const auto integer = value->integer();
  return integer.has_value() && *integer > 0;
}

bool Server::flashcomm(int& line) const {
  const Value* value = key({"enable_flashcomm1"});
  if (value != nullptr && value->boolean().value_or(false)) {
    line = value->line;
    return true;
  }
  const Setting* setting = launch->env("VLLM_ASCEND_ENABLE_FLASHCOMM1");
  if (setting != nullptr && setting->text.value == "1") {
    line = setting->line;
    return true;
  }
  return false;
}

std::string Server::address() const {
  for (const char* name : {"HCCL_IF_IP", "VLLM_HOST_IP"}) {
    const std::string text = launch->env_text(name);
    if (!text.empty()) return text;
  }
  const std::string host = launch->text("--host");
  return host == "0.0.0.0" || host == "::" || host == "localhost" || host == "127.0.0.1" ? std::string() : host;
}

Server Rules::make_server(const Launch& launch) const {
  Server server;
  server.launch = &launch;
  if (launch.container >= 0) server.container = &in_.containers[static_cast<std::size_t>(launch.container)];
  server.engine = launch.kind == LaunchKind::kSglang ? "sglang" : "vllm-ascend";
  if (launch.kind == LaunchKind::kVllm && context_.engine == "vllm") server.engine = "vllm";
  if (context_.engine == server.engine || context_.engine.empty()) server.version = context_.engine_version;
  server.chip = facts_.chip(context_.chip);
  if (server.container != nullptr) {
    std::string rest;
    const std::string version = image_version(server.container->image.value, rest);
    if (!version.empty() && server.engine == "vllm-ascend") server.version = version;
    if (server.chip == nullptr && !version.empty() && server.engine == "vllm-ascend") {
      for (const ChipFacts& chip : facts_.chips) {
        if (std::find(chip.images.begin(), chip.images.end(), rest) != chip.images.end()) server.chip = &chip;
      }
    }
  }
  server.facts = facts_.engine(server.engine, server.version, server.exact_version);
  const bool named = launch.model && !launch.model->text.unknown();
  server.model = facts_.model(named ? launch.model->text.value : context_.model);
  if (server.model.shape_name.empty() && server.model.tool.empty() && !context_.model.empty()) {
    server.model = facts_.model(context_.model);
  }
  if (launch.kind == LaunchKind::kSglang) {
    read_sglang(server);
  } else {
    read_vllm(server);
  }
  read_graph_sizes(server);
  return server;
}

}  // namespace perigee::planner
