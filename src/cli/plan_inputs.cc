#include "cli/plan_inputs.h"

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>

namespace perigee::cli {

void add_plan_options(CLI::App& command, PlanArguments& a) {
  command.add_option("plan", a.plan_file, "Plan file (YAML); without one the flags below describe one mixed pool");
  command.add_option("--data", a.data, "Folder that replaces the built-in catalogues");
  command.add_option("--model", a.model, "Model of the catalogue, for example kimi-k3");
  command.add_option("--checkpoint", a.checkpoint, "Folder whose config.json gives the shape instead");
  command.add_option("--format", a.format, "Weights: bf16, w4a8, w8a8, w4a16, mxfp4-mxfp8, ...");
  command.add_option("--node", a.node, "Node of the catalogue, for example atlas-800-a3");
  command.add_option("--engine", a.engine, "vllm-ascend or sglang");
  command.add_option("--nodes", a.nodes, "Nodes of the instance");
  command.add_option("--tensor-parallel-size", a.tp, "TP of a data-parallel group");
  command.add_option("--data-parallel-size", a.dp, "Data-parallel groups");
  command.add_option("--decode-context-parallel-size", a.dcp, "DCP, shards the latent cache inside TP");
  command.add_option("--max-model-len", a.max_model_len, "Longest request");
  command.add_option("--max-num-batched-tokens", a.max_batched_tokens, "Tokens of a step in one group");
  command.add_option("--max-num-seqs", a.max_sequences, "Sequences of one group");
  command.add_option("--gpu-memory-utilization", a.memory_utilization, "Share of the device that may be used");
  command.add_option("--hccl-buffsize", a.hccl_buffer_mib, "HCCL_BUFFSIZE in MiB");
  command.add_option("--graph-sizes", a.graph_sizes, "Captured sizes in tokens")->delimiter(',');
  command.add_flag("--eager", a.eager, "No captured graphs");
  command.add_option("--draft-method", a.draft_method, "dspark, dflash, eagle3 or mtp");
  command.add_option("--drafts", a.drafts, "Drafted tokens a step");
  command.add_option("--accepted", a.accepted, "Measured tokens that leave a step with drafts");
  command.add_flag("--eager-draft", a.eager_draft, "The draft runs outside the graph");
  command.add_flag("--json", a.json, "Machine-readable output");
}

void add_traffic_options(CLI::App& command, TrafficArguments& a) {
  command.add_option("--trace", a.trace, "JSON lines: timestamp, input_length, output_length, hash_ids");
  command.add_option("--prompts", a.prompts, "Number of requests");
  command.add_option("--input", a.input, "Mean prompt tokens");
  command.add_option("--output", a.output, "Mean answer tokens");
  command.add_option("--input-spread", a.input_spread, "Sigma of the log-normal; 0: constant");
  command.add_option("--output-spread", a.output_spread, "Sigma of the log-normal; 0: constant");
  command.add_option("--rate", a.per_second, "Requests a second, Poisson");
  command.add_option("--concurrency", a.concurrency, "Requests that clients keep in flight");
  command.add_option("--shared-prefix", a.shared_prefix, "Share of the prompt that requests have in common");
  command.add_option("--prefixes", a.prefixes, "Distinct shared prefixes");
  command.add_flag("--warm", a.warm, "Shared prefixes are cached before the run");
  command.add_flag("--cold", a.cold, "Caches start empty");
  command.add_option("--slo-ttft", a.ttft_target_ms, "Target in ms, 90th percentile");
  command.add_option("--slo-tpot", a.tpot_target_ms, "Target in ms, 90th percentile");
  command.add_option("--price", a.price, "Price of a node-hour");
  command.add_option("--seed", a.seed, "Seed of arrivals, lengths and failures");
}

namespace {

Status missing(const std::vector<std::string>& inputs) {
  if (inputs.empty()) return {};
  return invalid_argument("these inputs decide the answer and are never guessed: {}", fmt::join(inputs, "; "));
}

Result<planner::Plan> plan_from_flags(const PlanArguments& a, const planner::Catalogue& catalogue, bool for_speed) {
  std::vector<std::string> needed;
  const auto need = [&needed](bool given, const char* what) {
    if (!given) needed.emplace_back(what);
  };
  need(!a.model.empty() || !a.checkpoint.empty(), "--model or --checkpoint");
  need(!a.format.empty(), "--format");
  need(!a.node.empty(), "--node");
  need(a.nodes > 0, "--nodes");
  need(a.tp > 0, "--tensor-parallel-size");
  need(a.dp > 0, "--data-parallel-size");
  need(a.max_model_len > 0, "--max-model-len");
  need(a.max_batched_tokens > 0, "--max-num-batched-tokens");
  need(a.max_sequences > 0, "--max-num-seqs");
  if (for_speed) need(a.eager || !a.graph_sizes.empty(), "--graph-sizes (captured sizes in tokens) or --eager");
  if (a.drafts > 0) {
    need(!a.draft_method.empty(), "--draft-method");
    if (for_speed) need(a.accepted > 1, "--accepted (tokens that leave a step with these drafts, measured)");
  }
  PERIGEE_RETURN_IF_ERROR(missing(needed));
  PERIGEE_ASSIGN_OR_RETURN(const planner::Node* node, catalogue.node(a.node));
  PERIGEE_ASSIGN_OR_RETURN(const planner::Chip* chip, catalogue.chip(node->chip));
  planner::Plan plan;
  plan.name = "flags";
  plan.model = a.model;
  plan.checkpoint = a.checkpoint;
  plan.format = a.format;
  if (a.engine != "vllm-ascend" && a.engine != "sglang") {
    return invalid_argument("--engine: '{}' is not vllm-ascend or sglang", a.engine);
  }
  plan.engine = a.engine == "sglang" ? planner::Engine::kSglang : planner::Engine::kVllmAscend;
  plan.hardware = a.node;
  plan.devices_per_node = static_cast<std::int64_t>(node->devices.value);
  plan.chip = chip->family;
  planner::PoolPlan pool;
  pool.nodes = a.nodes;
  pool.parallel = {.tp = a.tp, .dp = a.dp, .pp = 1, .dcp = a.dcp, .expert_parallel = true};
  pool.max_model_len = a.max_model_len;
  pool.max_batched_tokens = a.max_batched_tokens;
  pool.max_sequences = a.max_sequences;
  pool.memory_utilization = a.memory_utilization;
  if (a.hccl_buffer_mib > 0) pool.hccl_buffer_mib = a.hccl_buffer_mib;
  pool.graphs = !a.eager;
  pool.graph_sizes = a.graph_sizes;
  if (a.drafts > 0) {
    pool.draft = {.method = a.draft_method,
                  .checkpoint = "",
                  .tokens = a.drafts,
                  .eager = a.eager_draft,
                  .accepted = a.accepted > 1 ? a.accepted : 1};
  }
  plan.pools.push_back(pool);
  return plan;
}

}  // namespace

Result<OpenedPlan> open_plan_arguments(const PlanArguments& a, bool for_speed) {
  OpenedPlan out;
  PERIGEE_ASSIGN_OR_RETURN(out.catalogue, planner::load_catalogue(a.data));
  if (!a.plan_file.empty()) {
    PERIGEE_ASSIGN_OR_RETURN(out.plan, planner::read_plan_file(a.plan_file));
    for (const auto& pool : out.plan.pools) {
      std::vector<std::string> needed;
      const auto role = planner::role_name(pool.role);
      if (for_speed && pool.graphs && pool.graph_sizes.empty()) {
        needed.push_back(fmt::format("graph_sizes of the {} pool, or graphs: false", role));
      }
      if (for_speed && pool.draft.enabled() && pool.draft.accepted <= 1) {
        needed.push_back(fmt::format("draft.accepted of the {} pool", role));
      }
      if (auto status = missing(needed); !status.ok()) return status.with_context(a.plan_file);
    }
  } else {
    PERIGEE_ASSIGN_OR_RETURN(out.plan, plan_from_flags(a, out.catalogue, for_speed));
  }
  if (!a.checkpoint.empty()) {
    PERIGEE_ASSIGN_OR_RETURN(out.own_shape, planner::read_model_shape(a.checkpoint));
  }
  return out;
}

Status check_traffic(const TrafficArguments& a) {
  if (!a.trace.empty()) return {};
  std::vector<std::string> needed;
  if (a.prompts < 1) needed.emplace_back("--prompts");
  if (a.input < 1) needed.emplace_back("--input");
  if (a.output < 1) needed.emplace_back("--output");
  if (a.per_second <= 0 && a.concurrency < 1) needed.emplace_back("--rate or --concurrency");
  if (a.shared_prefix > 0 && !a.warm && !a.cold) {
    needed.emplace_back("--warm or --cold (the first request of a group pays a cold prefix)");
  }
  PERIGEE_RETURN_IF_ERROR(missing(needed));
  if (a.warm && a.cold) return invalid_argument("--warm and --cold exclude each other");
  if (a.shared_prefix < 0 || a.shared_prefix >= 1) return invalid_argument("--shared-prefix: expected 0 to below 1");
  if (a.prompts > 20'000'000) return invalid_argument("--prompts: at most 20 million");
  if (a.input > 1e8 || a.output > 1e8) return invalid_argument("--input and --output: at most 1e8 tokens");
  return {};
}

Result<planner::RequestSet> traffic_requests(const TrafficArguments& a) {
  PERIGEE_RETURN_IF_ERROR(check_traffic(a));
  if (!a.trace.empty()) {
    const std::size_t limit = a.prompts > 0 ? static_cast<std::size_t>(a.prompts) : 20'000'000;
    return planner::read_trace(a.trace, limit);
  }
  planner::SyntheticTraffic traffic;
  traffic.requests = a.prompts;
  traffic.per_second = a.per_second;
  traffic.input_mean = a.input;
  traffic.input_spread = a.input_spread;
  traffic.output_mean = a.output;
  traffic.output_spread = a.output_spread;
  traffic.shared_prefix = a.shared_prefix;
  traffic.prefixes = a.prefixes;
  traffic.seed = a.seed;
  return planner::make_traffic(traffic);
}

}  // namespace perigee::cli
