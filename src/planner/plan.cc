#include "planner/plan.h"

#include <array>

#include "base/file.h"
#include "planner/yaml_fields.h"

namespace perigee::planner {
namespace {

constexpr std::size_t kPlanLimit = std::size_t{1} << 20;
constexpr std::int64_t kManyDevices = 1 << 20;
constexpr std::int64_t kManyTokens = std::int64_t{1} << 40;
constexpr std::array<std::string_view, 3> kRoles = {"mixed", "prefill", "decode"};
constexpr std::array<std::string_view, 2> kEngines = {"vllm-ascend", "sglang"};

template <std::size_t N, typename E>
void read_choice(Fields& fields, const char* key, const std::array<std::string_view, N>& names, E& out) {
  std::string text;
  fields.require(key);
  fields.read(key, text);
  for (std::size_t i = 0; i < N; ++i) {
    if (names[i] == text) {
      out = static_cast<E>(i);
      return;
    }
  }
  fields.fail(fields.child(key), fmt::format("'{}': '{}' is not one of {}", key, text, fmt::join(names, ", ")));
}

void read_parallel(const YAML::Node& node, std::string_view origin, Status& status, Parallel& out) {
  Fields fields(node, origin, status);
  fields.read("tp", out.tp, 1, kManyDevices);
  fields.read("dp", out.dp, 1, kManyDevices);
  fields.read("pp", out.pp, 1, 1024);
  fields.read("dcp", out.dcp, 1, 1024);
  fields.read("expert_parallel", out.expert_parallel);
  fields.done();
}

void read_draft(const YAML::Node& node, std::string_view origin, Status& status, DraftPlan& out) {
  Fields fields(node, origin, status);
  fields.require("method");
  fields.read("method", out.method);
  fields.read("checkpoint", out.checkpoint);
  fields.read("tokens", out.tokens, 1, 64);
  fields.read("eager", out.eager);
  fields.read("accepted", out.accepted, 1.0, 65.0);
  fields.done();
}

void read_pool(const YAML::Node& node, std::string_view origin, Status& status, PoolPlan& out) {
  Fields fields(node, origin, status);
  read_choice(fields, "role", kRoles, out.role);
  fields.read("instances", out.instances, 1, 65536);
  fields.read("nodes", out.nodes, 1, 65536);
  fields.read("hosts", out.hosts);
  fields.require("parallel");
  if (fields.has("parallel")) read_parallel(fields.child("parallel"), origin, status, out.parallel);
  fields.read("max_model_len", out.max_model_len, 1, kManyTokens);
  fields.read("max_batched_tokens", out.max_batched_tokens, 1, kManyTokens);
  fields.read("max_sequences", out.max_sequences, 1, kManyTokens);
  fields.read("memory_utilization", out.memory_utilization, 0.01, 1.0);
  fields.read("hccl_buffer_mib", out.hccl_buffer_mib, 1, 1 << 20);
  fields.read("prefix_cache", out.prefix_cache);
  fields.read("graphs", out.graphs);
  fields.read("graph_sizes", out.graph_sizes);
  fields.read("flashcomm1", out.flashcomm1);
  fields.read("prefill_mc2", out.prefill_mc2);
  fields.read("fused_mc2", out.fused_mc2, 0, 2);
  fields.read("mega_moe_max_tokens", out.mega_moe_max_tokens);
  fields.read("shared_expert_dp", out.shared_expert_dp);
  fields.read("multistream_shared_expert", out.multistream_shared_expert);
  if (fields.has("draft")) read_draft(fields.child("draft"), origin, status, out.draft);
  fields.done();
}

void read_ports(const YAML::Node& node, std::string_view origin, Status& status, Ports& out) {
  Fields fields(node, origin, status);
  fields.read("api", out.api, 1, 65535);
  fields.read("rpc", out.rpc, 1, 65535);
  fields.read("proxy", out.proxy, 1, 65535);
  fields.read("prefill_kv", out.prefill_kv, 1, 65535);
  fields.read("decode_kv", out.decode_kv, 1, 65535);
  fields.read("bootstrap", out.bootstrap, 1, 65535);
  fields.read("transfer_store", out.transfer_store, 1, 65535);
  fields.done();
}

void read_range(Fields& fields, const char* key, Forecast::Range& out) {
  std::vector<double> values;
  fields.read(key, values);
  if (values.empty()) return;
  if (values.size() != 3) {
    return fields.fail(fields.child(key), fmt::format("'{}': expected [value, low, high]", key));
  }
  out = {values[0], values[1], values[2]};
}

void read_forecast(const YAML::Node& node, std::string_view origin, Status& status, Forecast& out) {
  Fields fields(node, origin, status);
  read_range(fields, "ttft_ms", out.ttft_ms);
  read_range(fields, "tpot_ms", out.tpot_ms);
  read_range(fields, "output_tokens_per_second", out.output_tokens_per_second);
  fields.read("cost_per_million_tokens", out.cost_per_million_tokens);
  fields.read("dominated_by", out.dominated_by);
  fields.done();
}

void emit_range(YAML::Emitter& out, const char* key, const Forecast::Range& range) {
  out << YAML::Key << key << YAML::Value << YAML::Flow << YAML::BeginSeq << range.value << range.low << range.high
      << YAML::EndSeq;
}

template <typename T>
void emit(YAML::Emitter& out, const char* key, const T& value) {
  out << YAML::Key << key << YAML::Value << value;
}

// Text always in quotes: "0.30" or "yes" must come back as text in every YAML reader.
void emit(YAML::Emitter& out, const char* key, const std::string& value) {
  out << YAML::Key << key << YAML::Value << YAML::DoubleQuoted << value;
}

void emit_pool(YAML::Emitter& out, const PoolPlan& pool) {
  out << YAML::BeginMap;
  emit(out, "role", std::string(role_name(pool.role)));
  emit(out, "instances", pool.instances);
  emit(out, "nodes", pool.nodes);
  out << YAML::Key << "hosts" << YAML::Value << YAML::Flow << YAML::BeginSeq;
  for (const auto& host : pool.hosts) out << YAML::DoubleQuoted << host;
  out << YAML::EndSeq;
  out << YAML::Key << "parallel" << YAML::Value << YAML::Flow << YAML::BeginMap;
  emit(out, "tp", pool.parallel.tp);
  emit(out, "dp", pool.parallel.dp);
  emit(out, "pp", pool.parallel.pp);
  emit(out, "dcp", pool.parallel.dcp);
  emit(out, "expert_parallel", pool.parallel.expert_parallel);
  out << YAML::EndMap;
  if (pool.max_model_len > 0) emit(out, "max_model_len", pool.max_model_len);
  if (pool.max_batched_tokens > 0) emit(out, "max_batched_tokens", pool.max_batched_tokens);
  if (pool.max_sequences > 0) emit(out, "max_sequences", pool.max_sequences);
  emit(out, "memory_utilization", pool.memory_utilization);
  emit(out, "hccl_buffer_mib", pool.hccl_buffer_mib);
  emit(out, "prefix_cache", pool.prefix_cache);
  emit(out, "graphs", pool.graphs);
  out << YAML::Key << "graph_sizes" << YAML::Value << YAML::Flow << pool.graph_sizes;
  emit(out, "flashcomm1", pool.flashcomm1);
  emit(out, "prefill_mc2", pool.prefill_mc2);
  emit(out, "fused_mc2", pool.fused_mc2);
  emit(out, "mega_moe_max_tokens", pool.mega_moe_max_tokens);
  emit(out, "shared_expert_dp", pool.shared_expert_dp);
  emit(out, "multistream_shared_expert", pool.multistream_shared_expert);
  if (pool.draft.enabled()) {
    out << YAML::Key << "draft" << YAML::Value << YAML::BeginMap;
    emit(out, "method", pool.draft.method);
    emit(out, "checkpoint", pool.draft.checkpoint);
    emit(out, "tokens", pool.draft.tokens);
    emit(out, "eager", pool.draft.eager);
    emit(out, "accepted", pool.draft.accepted);
    out << YAML::EndMap;
  }
  out << YAML::EndMap;
}

Status check_pool(const Plan& plan, const PoolPlan& pool) {
  const Parallel& p = pool.parallel;
  const auto role = role_name(pool.role);
  if (p.tp < 1 || p.dp < 1 || p.pp < 1 || p.dcp < 1 || pool.nodes < 1 || pool.instances < 1) {
    return invalid_argument("{} pool: every parallel size, nodes and instances must be at least 1", role);
  }
  if (p.devices() != pool.nodes * plan.devices_per_node) {
    return invalid_argument("{} pool: tp {} x dp {} x pp {} = {} devices, but {} nodes of {} devices give {}", role,
                            p.tp, p.dp, p.pp, p.devices(), pool.nodes, plan.devices_per_node,
                            pool.nodes * plan.devices_per_node);
  }
  if (p.tp % p.dcp != 0) return invalid_argument("{} pool: tp {} is not a multiple of dcp {}", role, p.tp, p.dcp);
  const auto hosts = static_cast<std::size_t>(pool.nodes * pool.instances);
  if (!pool.hosts.empty() && pool.hosts.size() != hosts) {
    return invalid_argument("{} pool: {} hosts are listed, {} instances of {} nodes need {}", role, pool.hosts.size(),
                            pool.instances, pool.nodes, hosts);
  }
  return {};
}

}  // namespace

std::string_view role_name(Role role) {
  return kRoles[static_cast<std::size_t>(role)];
}
std::string_view engine_name(Engine engine) {
  return kEngines[static_cast<std::size_t>(engine)];
}

const PoolPlan* Plan::pool(Role role) const {
  for (const auto& candidate : pools) {
    if (candidate.role == role) return &candidate;
  }
  return nullptr;
}

Status check_plan(const Plan& plan) {
  if (plan.devices_per_node < 1) return invalid_argument("plan: devices_per_node must be at least 1");
  const bool mixed = plan.pools.size() == 1 && plan.pool(Role::kMixed) != nullptr;
  const bool split =
      plan.pools.size() == 2 && plan.pool(Role::kPrefill) != nullptr && plan.pool(Role::kDecode) != nullptr;
  if (!mixed && !split) {
    return invalid_argument("plan: expected one mixed pool, or one prefill and one decode pool; found {} pools",
                            plan.pools.size());
  }
  for (const auto& pool : plan.pools) PERIGEE_RETURN_IF_ERROR(check_pool(plan, pool));
  return {};
}

Result<Plan> parse_plan(std::string_view yaml, std::string_view origin) {
  PERIGEE_ASSIGN_OR_RETURN(const YAML::Node node, load_yaml(yaml, origin, kPlanLimit));
  Status status;
  Plan plan;
  Fields fields(node, origin, status);
  std::int64_t version = 0;
  fields.require("perigee_plan");
  fields.read("perigee_plan", version, 1, 1);
  fields.read("name", plan.name);
  for (const char* key : {"model", "format", "hardware", "devices_per_node", "pools"}) fields.require(key);
  fields.read("model", plan.model);
  fields.read("checkpoint", plan.checkpoint);
  fields.read("format", plan.format);
  fields.read("served_name", plan.served_name);
  read_choice(fields, "engine", kEngines, plan.engine);
  fields.read("engine_version", plan.engine_version);
  fields.read("hardware", plan.hardware);
  fields.read("devices_per_node", plan.devices_per_node, 1, 4096);
  fields.read("chip", plan.chip);
  fields.read("network_interface", plan.network_interface);
  const YAML::Node pools = fields.child("pools");
  if (status.ok() && (!pools.IsSequence() || pools.size() > 16)) fields.fail(pools, "'pools': expected a short list");
  if (status.ok()) {
    for (const auto& pool : pools) read_pool(pool, origin, status, plan.pools.emplace_back());
  }
  if (fields.has("ports")) read_ports(fields.child("ports"), origin, status, plan.ports);
  if (fields.has("forecast")) read_forecast(fields.child("forecast"), origin, status, plan.forecast);
  fields.read("notes", plan.notes);
  fields.done();
  PERIGEE_RETURN_IF_ERROR(status);
  if (auto check = check_plan(plan); !check.ok()) return check.with_context(origin);
  return plan;
}

Result<Plan> read_plan_file(const std::string& path) {
  PERIGEE_ASSIGN_OR_RETURN(const std::string text, read_file(path, kPlanLimit));
  return parse_plan(text, path);
}

std::string format_plan(const Plan& plan) {
  YAML::Emitter out;
  out.SetDoublePrecision(17);
  out << YAML::BeginMap;
  emit(out, "perigee_plan", 1);
  emit(out, "name", plan.name);
  emit(out, "model", plan.model);
  emit(out, "checkpoint", plan.checkpoint);
  emit(out, "format", plan.format);
  emit(out, "served_name", plan.served_name);
  emit(out, "engine", std::string(engine_name(plan.engine)));
  emit(out, "engine_version", plan.engine_version);
  emit(out, "hardware", plan.hardware);
  emit(out, "devices_per_node", plan.devices_per_node);
  emit(out, "chip", plan.chip);
  emit(out, "network_interface", plan.network_interface);
  out << YAML::Key << "pools" << YAML::Value << YAML::BeginSeq;
  for (const auto& pool : plan.pools) emit_pool(out, pool);
  out << YAML::EndSeq;
  out << YAML::Key << "ports" << YAML::Value << YAML::BeginMap;
  emit(out, "api", plan.ports.api);
  emit(out, "rpc", plan.ports.rpc);
  emit(out, "proxy", plan.ports.proxy);
  emit(out, "prefill_kv", plan.ports.prefill_kv);
  emit(out, "decode_kv", plan.ports.decode_kv);
  emit(out, "bootstrap", plan.ports.bootstrap);
  emit(out, "transfer_store", plan.ports.transfer_store);
  out << YAML::EndMap;
  out << YAML::Key << "forecast" << YAML::Value << YAML::BeginMap;
  emit_range(out, "ttft_ms", plan.forecast.ttft_ms);
  emit_range(out, "tpot_ms", plan.forecast.tpot_ms);
  emit_range(out, "output_tokens_per_second", plan.forecast.output_tokens_per_second);
  emit(out, "cost_per_million_tokens", plan.forecast.cost_per_million_tokens);
  emit(out, "dominated_by", plan.forecast.dominated_by);
  out << YAML::EndMap;
  out << YAML::Key << "notes" << YAML::Value << YAML::BeginSeq;
  for (const auto& note : plan.notes) out << YAML::DoubleQuoted << note;
  out << YAML::EndSeq << YAML::EndMap;
  return std::string(out.c_str()) + "\n";
}

Status write_plan_file(const Plan& plan, const std::string& path) {
  return write_file(path, format_plan(plan));
}

}  // namespace perigee::planner
