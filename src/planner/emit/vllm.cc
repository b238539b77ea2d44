// vllm-ascend: `vllm serve` a node (spec ascend.md 2.5 to 2.8).
#include <nlohmann/json.hpp>

#include <algorithm>

#include "planner/emit/command.h"
#include "planner/memory.h"

namespace perigee::planner {

namespace {

std::string dump(const Json& json) {
  return json.dump();
}

class VllmWriter {
 public:
  VllmWriter(const EmitContext& context, const PoolPlan& pool) : context_(context), pool_(pool), plan_(context.plan) {}

  Result<std::vector<ServerCommand>> commands() {
    const Parallel& parallel = pool_.parallel;
    const std::int64_t group = parallel.tp * parallel.pp;
    const std::int64_t devices = plan_.devices_per_node;
    std::vector<ServerCommand> out;
    if (group > devices && parallel.dp > 1) {
      return make_error(StatusCode::kUnimplemented, "pool {}: DP {} with groups of {} devices over several nodes of {}",
                        role_name(pool_.role), parallel.dp, group, devices);
    }
    for (std::int64_t instance = 0; instance < pool_.instances; ++instance) {
      for (std::int64_t node = 0; node < pool_.nodes; ++node) {
        if (group > devices) {
          out.push_back(spanning(instance, node));
        } else if (plan_.disaggregated()) {
          const std::int64_t local = devices / group;
          for (std::int64_t rank = 0; rank < local; ++rank) out.push_back(rank_server(instance, node, rank, local));
        } else {
          out.push_back(front_or_headless(instance, node, devices / group));
        }
      }
    }
    return out;
  }

 private:
  ServerCommand base(std::int64_t instance, std::int64_t node) const {
    ServerCommand command;
    command.pool = &pool_;
    command.instance = instance;
    command.node = node;
    command.name = fmt::format("{}-node{}", instance_name(pool_, instance), node);
    command.host = host_of(pool_, instance, node);
    command.port = api_port(plan_, pool_.role);
    command.environment = environment(command.host);
    return command;
  }

  // One group over several nodes.
  ServerCommand spanning(std::int64_t instance, std::int64_t node) const {
    ServerCommand command = base(instance, node);
    if (node > 0) command.port = 0;
    start(command);
    add(command, "--nnodes", pool_.nodes);
    add(command, "--node-rank", node);
    add(command, "--master-addr", host_of(pool_, instance, 0));
    add(command, "--master-port", plan_.ports.rpc);
    finish(command, instance);
    return command;
  }

  // Prefill and decode: every data-parallel rank has its own front end, the proxy spreads the requests.
  ServerCommand rank_server(std::int64_t instance, std::int64_t node, std::int64_t local, std::int64_t count) const {
    ServerCommand command = base(instance, node);
    command.local_rank = local;
    command.port += local;
    const std::int64_t group = pool_.parallel.tp * pool_.parallel.pp;
    if (count > 1) {
      command.name += fmt::format("-rank{}", local);
      for (std::int64_t i = 0; i < group; ++i)
        command.devices += fmt::format("{}{}", i > 0 ? "," : "", local * group + i);
    }
    start(command);
    if (pool_.parallel.dp > 1) {
      add(command, "--data-parallel-rank", node * count + local);
      add(command, "--data-parallel-address", host_of(pool_, instance, 0));
      add(command, "--data-parallel-rpc-port", rpc_port());
    }
    finish(command, instance);
    return command;
  }

  ServerCommand front_or_headless(std::int64_t instance, std::int64_t node, std::int64_t local) const {
    ServerCommand command = base(instance, node);
    if (node > 0) command.port = 0;
    start(command);
    if (pool_.nodes > 1) {
      add(command, "--data-parallel-size-local", local);
      add(command, "--data-parallel-address", host_of(pool_, instance, 0));
      add(command, "--data-parallel-rpc-port", rpc_port());
      if (node > 0) add(command, "--data-parallel-start-rank", node * local);
    }
    finish(command, instance);
    return command;
  }

  std::int64_t rpc_port() const { return plan_.ports.rpc + (pool_.role == Role::kDecode ? 1 : 0); }

  static void add(ServerCommand& command, const std::string& flag) { command.words.push_back(flag); }
  template <typename T>
  static void add(ServerCommand& command, const std::string& flag, const T& value) {
    command.words.push_back(flag);
    command.words.push_back(fmt::format("{}", value));
  }

  bool has_flag(const std::string& flag) const { return context_.flags->flags.count(flag) != 0; }
  bool newer() const { return compare_versions(plan_.engine_version, "0.26.0rc1") >= 0; }

  void start(ServerCommand& command) const {
    command.words = {"vllm", "serve", plan_.checkpoint};
    add(command, "--served-model-name", plan_.served_name.empty() ? plan_.model : plan_.served_name);
    if (command.port > 0) {
      add(command, "--host", std::string("0.0.0.0"));
      add(command, "--port", command.port);
    } else {
      add(command, "--headless");
    }
    add(command, "--tensor-parallel-size", pool_.parallel.tp);
    if (pool_.parallel.pp > 1) add(command, "--pipeline-parallel-size", pool_.parallel.pp);
    if (pool_.parallel.dp > 1) add(command, "--data-parallel-size", pool_.parallel.dp);
  }

  void finish(ServerCommand& command, std::int64_t instance) const {
    if (pool_.parallel.expert_parallel && context_.model.experts() > 0) add(command, "--enable-expert-parallel");
    if (plan_.format == "w4a8" || plan_.format == "w8a8") add(command, "--quantization", std::string("ascend"));
    if (context_.model.shape_name == "kimi-k2") add(command, "--trust-remote-code");
    add(command, "--max-model-len", pool_.max_model_len);
    add(command, "--max-num-batched-tokens", pool_.max_batched_tokens);
    add(command, "--max-num-seqs", pool_.max_sequences);
    add(command, "--gpu-memory-utilization", pool_.memory_utilization);
    add(command, pool_.prefix_cache ? "--enable-prefix-caching" : "--no-enable-prefix-caching");
    context_parallel(command);
    model_flags(command);
    if (!pool_.graphs) add(command, "--enforce-eager");
    if (pool_.graphs) add(command, "--compilation-config", dump(compilation()));
    if (const Json additional = additional_config(); !additional.empty())
      add(command, "--additional-config", dump(additional));
    if (pool_.draft.enabled()) add(command, "--speculative-config", dump(speculative()));
    if (plan_.disaggregated()) add(command, "--kv-transfer-config", dump(transfer(command, instance)));
  }

  void context_parallel(ServerCommand& command) const {
    if (pool_.parallel.dcp <= 1) return;
    std::int64_t block = 128;
    if (context_.model.hybrid()) block = hybrid_pages(*context_.model.shape, pool_.parallel.tp, 0, 0).block_tokens;
    add(command, "--decode-context-parallel-size", pool_.parallel.dcp);
    if (!plan_.disaggregated()) return;
    add(command, "--block-size", block);
    add(command, "--cp-kv-cache-interleave-size", block);
  }

  void model_flags(ServerCommand& command) const {
    const bool k3 = context_.model.hybrid() && context_.model.experts() > 512;
    if (k3) {
      if (plan_.chip == "a2") {
        add(command, "--language-model-only");
      } else {
        add(command, "--mm-processor-cache-gb", 0);
        add(command, "--mm-encoder-tp-mode", std::string("data"));
      }
      if (pool_.role == Role::kPrefill) {
        if (plan_.chip != "a2") add(command, "--skip-mm-profiling");
        add(command, "--safetensors-load-strategy", std::string("prefetch"));
      }
      if (pool_.role == Role::kPrefill) add(command, "--mamba-cache-mode", std::string("align"));
      const auto mode = context_.flags->flags.find("--tokenizer-mode");
      if (mode != context_.flags->flags.end() &&
          std::count(mode->second.choices.begin(), mode->second.choices.end(), "kimi_k3") > 0) {
        add(command, "--tokenizer-mode", std::string("kimi_k3"));
      }
    }
    const auto registered = [&](const char* registry, const std::vector<std::string>& fitting) -> std::string {
      const auto names = context_.flags->registries.find(registry);
      if (names == context_.flags->registries.end()) return {};
      for (const std::string& name : fitting) {
        if (std::count(names->second.begin(), names->second.end(), name) > 0) return name;
      }
      return {};
    };
    const std::string reasoning = registered("reasoning_parser", context_.model.reasoning);
    const std::string tool = registered("tool_call_parser", context_.model.tool);
    if (!reasoning.empty()) add(command, "--reasoning-parser", reasoning);
    if (!tool.empty()) {
      add(command, "--enable-auto-tool-choice");
      add(command, "--tool-call-parser", tool);
    }
  }

  Json compilation() const {
    Json json = {{"cudagraph_mode", "FULL_DECODE_ONLY"}};
    if (!pool_.graph_sizes.empty()) json["cudagraph_capture_sizes"] = pool_.graph_sizes;
    return json;
  }

  Json additional_config() const {
    Json json = Json::object();
    if (pool_.flashcomm1) json["enable_flashcomm1"] = true;
    if (pool_.multistream_shared_expert) json["multistream_overlap_shared_expert"] = true;
    if (pool_.shared_expert_dp) json["enable_shared_expert_dp"] = true;
    if (pool_.prefill_mc2) json["enable_prefill_mc2"] = true;
    if (pool_.fused_mc2 > 0) json["enable_fused_mc2"] = pool_.fused_mc2;
    if (pool_.mega_moe_max_tokens > 0) json["mega_moe_max_tokens"] = pool_.mega_moe_max_tokens;
    if (pool_.role == Role::kDecode) {
      if (newer()) {
        json["scheduler_config"] = {{"recompute_scheduler_enable", true}};
      } else {
        json["recompute_scheduler_enable"] = true;
      }
    }
    return json;
  }

  Json speculative() const {
    Json json = {{"method", pool_.draft.method}};
    if (!pool_.draft.checkpoint.empty()) json["model"] = pool_.draft.checkpoint;
    json["num_speculative_tokens"] = pool_.draft.tokens;
    if (pool_.draft.method == "dspark") {
      json["draft_tensor_parallel_size"] = pool_.parallel.tp;
      json["max_model_len"] = std::min<std::int64_t>(4096, pool_.max_model_len);
    }
    if (pool_.draft.eager) json["enforce_eager"] = true;
    return json;
  }

  Json transfer(const ServerCommand& command, std::int64_t instance) const {
    const bool prefill = pool_.role == Role::kPrefill;
    const char* role = prefill ? "kv_producer" : "kv_consumer";
    Json sizes = Json::object();
    for (const auto& [name, side] : {std::pair{"prefill", Role::kPrefill}, std::pair{"decode", Role::kDecode}}) {
      const PoolPlan* pool = plan_.pool(side);
      sizes[name] = {{"dp_size", pool->parallel.dp}, {"tp_size", pool->parallel.tp}};
    }
    const std::string port = std::to_string(prefill ? plan_.ports.prefill_kv : plan_.ports.decode_kv);
    // Ids of all servers: prefill first, then decode.
    std::int64_t id = prefill ? 0 : plan_.pool(Role::kPrefill)->instances * plan_.pool(Role::kPrefill)->nodes * 64;
    id += (instance * pool_.nodes + command.node) * 64 + command.local_rank;
    Json inner = {
        {"kv_connector", "MooncakeConnectorV1"}, {"kv_role", role}, {"kv_buffer_device", "npu"}, {"kv_port", port}};
    if (!context_.model.hybrid()) {
      inner["engine_id"] = std::to_string(id);
      inner["kv_connector_extra_config"] = sizes;
      return inner;
    }
    inner["kv_connector_extra_config"] = sizes;
    Json outer = {{"kv_connector", "MultiConnector"}, {"kv_role", role}, {"engine_id", std::to_string(id)}};
    outer["kv_load_failure_policy"] = "fail";
    outer["kv_connector_extra_config"] = sizes;
    outer["kv_connector_extra_config"]["connectors"] = Json::array({inner});
    return outer;
  }

  std::vector<std::pair<std::string, std::string>> environment(const std::string& host) const {
    std::vector<std::pair<std::string, std::string>> out;
    const auto put = [&](const char* name, std::string value) { out.emplace_back(name, std::move(value)); };
    const std::string nic = plan_.network_interface.empty() ? "$NIC" : plan_.network_interface;
    put("HCCL_IF_IP", host);
    put("HCCL_SOCKET_IFNAME", nic);
    put("GLOO_SOCKET_IFNAME", nic);
    put("TP_SOCKET_IFNAME", nic);
    put("HCCL_BUFFSIZE", std::to_string(pool_.hccl_buffer_mib));
    put("HCCL_CONNECT_TIMEOUT", "1800");
    put("PYTORCH_NPU_ALLOC_CONF", "expandable_segments:True");
    put("VLLM_ENGINE_READY_TIMEOUT_S", "7200");
    if (plan_.chip == "a2") put("HCCL_INTRA_ROCE_ENABLE", "1");
    if (plan_.disaggregated()) {
      put("PYTHONHASHSEED", "0");
      if (plan_.chip == "a3") put("ASCEND_ENABLE_USE_FABRIC_MEM", "1");
      if (plan_.chip == "a3" && pool_.role == Role::kDecode) put("HCCL_OP_EXPANSION_MODE", "AIV");
    }
    return out;
  }

  const EmitContext& context_;
  const PoolPlan& pool_;
  const Plan& plan_;
};

}  // namespace

Result<std::vector<ServerCommand>> vllm_commands(const EmitContext& context) {
  std::vector<ServerCommand> out;
  for (const PoolPlan& pool : context.plan.pools) {
    PERIGEE_ASSIGN_OR_RETURN(std::vector<ServerCommand> commands, VllmWriter(context, pool).commands());
    for (ServerCommand& command : commands) out.push_back(std::move(command));
  }
  return out;
}

}  // namespace perigee::planner
