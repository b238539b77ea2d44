// SGLang on Ascend: one launch_server a node (spec ascend.md 3).
#include <algorithm>
#include <cmath>

#include "planner/emit/command.h"
#include "planner/memory.h"

namespace perigee::planner {

namespace {

constexpr std::int64_t kInitPort = 5000;

// SGLang's own names of the draft methods.
std::string algorithm(const std::string& method) {
  if (method == "mtp") return "NEXTN";
  if (method == "eagle3") return "EAGLE3";
  if (method == "dspark") return "DSPARK";
  return {};
}

Result<ServerCommand> server(const EmitContext& context, const PoolPlan& pool, std::int64_t instance,
                             std::int64_t node) {
  const Plan& plan = context.plan;
  const Parallel& parallel = pool.parallel;
  ServerCommand command;
  command.pool = &pool;
  command.instance = instance;
  command.node = node;
  command.name = fmt::format("{}-node{}", instance_name(pool, instance), node);
  command.host = host_of(pool, instance, node);
  command.port = node == 0 ? api_port(plan, pool.role) : 0;
  const std::int64_t width = 1 + pool.draft.tokens;
  const std::int64_t tokens_per_rank = std::max<std::int64_t>(32, pool.max_sequences * width);
  if (tokens_per_rank > 512) {
    return invalid_argument("pool {}: {} sequences with {} drafts are {} tokens a rank; DeepEP takes 512",
                            role_name(pool.role), pool.max_sequences, pool.draft.tokens, tokens_per_rank);
  }
  const bool experts = context.model.experts() > 0;

  auto& environment = command.environment;
  const auto put = [&](const char* name, std::string value) { environment.emplace_back(name, std::move(value)); };
  const std::string nic = plan.network_interface.empty() ? "$NIC" : plan.network_interface;
  put("HCCL_SOCKET_IFNAME", nic);
  put("GLOO_SOCKET_IFNAME", nic);
  put("HCCL_BUFFSIZE", std::to_string(pool.hccl_buffer_mib));
  put("PYTORCH_NPU_ALLOC_CONF", "expandable_segments:True");
  put("STREAMS_PER_DEVICE", "32");
  if (experts) {
    if (context.model.shape != nullptr && pool.role != Role::kPrefill) {
      const double need = mc2_buffer_mib(*context.model.shape, plan.chip, parallel.tp * parallel.dp, tokens_per_rank);
      const auto rounded = static_cast<std::int64_t>(std::ceil(std::max(200.0, need) / 100.0)) * 100;
      put("DEEPEP_HCCL_BUFFSIZE", std::to_string(rounded));
    }
    put("SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK", std::to_string(tokens_per_rank));
    if (pool.role != Role::kDecode) {
      put("DEEPEP_NORMAL_LONG_SEQ_ROUND", "64");
      put("DEEPEP_NORMAL_LONG_SEQ_PER_ROUND_TOKENS", "512");
    }
    if (plan.chip == "a3") put("HCCL_OP_EXPANSION_MODE", "AIV");
  }
  if (plan.disaggregated()) {
    put("ASCEND_MF_STORE_URL",
        fmt::format("tcp://{}:{}", host_of(*plan.pool(Role::kPrefill), 0, 0), plan.ports.transfer_store));
    if (plan.chip == "a2") put("ASCEND_MF_TRANSFER_PROTOCOL", "device_rdma");
  }

  auto& words = command.words;
  const auto flag = [&](const char* name) { words.emplace_back(name); };
  const auto add = [&](const char* name, const auto& value) {
    words.emplace_back(name);
    words.push_back(fmt::format("{}", value));
  };
  words = {"python3", "-m", "sglang.launch_server"};
  add("--model-path", plan.checkpoint);
  add("--served-model-name", plan.served_name.empty() ? plan.model : plan.served_name);
  flag("--trust-remote-code");
  add("--host", plan.disaggregated() ? command.host : std::string("0.0.0.0"));
  add("--port", api_port(plan, pool.role));
  add("--device", "npu");
  add("--attention-backend", "ascend");
  if (plan.format == "w4a8" || plan.format == "w8a8") add("--quantization", "modelslim");
  add("--dtype", "bfloat16");
  if (pool.nodes > 1) {
    add("--nnodes", pool.nodes);
    add("--node-rank", node);
    add("--dist-init-addr", fmt::format("{}:{}", host_of(pool, instance, 0), kInitPort));
  }
  add("--tp-size", parallel.tp * parallel.dp);
  if (parallel.pp > 1) add("--pp-size", parallel.pp);
  if (parallel.dp > 1) {
    add("--dp-size", parallel.dp);
    flag("--enable-dp-attention");
    flag("--enable-dp-lm-head");
  }
  if (experts) {
    add("--moe-a2a-backend", "deepep");
    add("--deepep-mode", pool.role == Role::kMixed ? "auto" : pool.role == Role::kPrefill ? "normal" : "low_latency");
  }
  add("--mem-fraction-static", pool.memory_utilization);
  add("--context-length", pool.max_model_len);
  add("--chunked-prefill-size", pool.max_batched_tokens);
  add("--max-running-requests", pool.max_sequences * parallel.dp);
  if (context.model.hybrid()) add("--max-mamba-cache-size", pool.max_sequences * parallel.dp);
  if (!pool.prefix_cache) flag("--disable-radix-cache");
  if (!pool.graphs) {
    flag("--disable-cuda-graph");
  } else if (!pool.graph_sizes.empty()) {
    flag("--cuda-graph-bs-decode");
    std::vector<std::int64_t> sizes;
    for (const std::int64_t size : pool.graph_sizes) sizes.push_back(std::max<std::int64_t>(1, size / width));
    sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
    for (const std::int64_t size : sizes) words.push_back(std::to_string(size));
  }
  if (pool.draft.enabled()) {
    const std::string name = algorithm(pool.draft.method);
    if (name.empty())
      return invalid_argument("pool {}: SGLang has no draft method \"{}\"", role_name(pool.role), pool.draft.method);
    add("--speculative-algorithm", name);
    if (!pool.draft.checkpoint.empty()) add("--speculative-draft-model-path", pool.draft.checkpoint);
    if (name == "DSPARK") {
      add("--speculative-dspark-block-size", pool.draft.tokens);
    } else {
      add("--speculative-num-steps", pool.draft.tokens);
      add("--speculative-eagle-topk", 1);
    }
    add("--speculative-num-draft-tokens", width);
  }
  if (!context.model.sglang_reasoning.empty()) add("--reasoning-parser", context.model.sglang_reasoning.front());
  if (!context.model.sglang_tool.empty()) add("--tool-call-parser", context.model.sglang_tool.front());
  add("--watchdog-timeout", 9000);
  if (plan.disaggregated()) {
    add("--disaggregation-mode", pool.role == Role::kPrefill ? "prefill" : "decode");
    add("--disaggregation-transfer-backend", "ascend");
    if (pool.role == Role::kPrefill) add("--disaggregation-bootstrap-port", plan.ports.bootstrap);
  }
  return command;
}

}  // namespace

Result<std::vector<ServerCommand>> sglang_commands(const EmitContext& context) {
  std::vector<ServerCommand> out;
  for (const PoolPlan& pool : context.plan.pools) {
    for (std::int64_t instance = 0; instance < pool.instances; ++instance) {
      for (std::int64_t node = 0; node < pool.nodes; ++node) {
        PERIGEE_ASSIGN_OR_RETURN(ServerCommand command, server(context, pool, instance, node));
        out.push_back(std::move(command));
      }
    }
  }
  return out;
}

}  // namespace perigee::planner
