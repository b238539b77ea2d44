#include "planner/deployment.h"

#include <algorithm>

namespace perigee::planner {

Result<Deployment> open_plan(const Catalogue& catalogue, const Plan& plan, const ModelShape* shape,
                             std::int64_t mean_length) {
  PERIGEE_RETURN_IF_ERROR(check_plan(plan));
  Deployment out;
  out.shape = shape;
  if (shape == nullptr) {
    PERIGEE_ASSIGN_OR_RETURN(out.shape, catalogue.model(plan.model));
  }
  PERIGEE_ASSIGN_OR_RETURN(out.node, catalogue.node(plan.hardware));
  PERIGEE_ASSIGN_OR_RETURN(out.chip, catalogue.chip(out.node->chip));
  PERIGEE_ASSIGN_OR_RETURN(out.engine, catalogue.engine(engine_name(plan.engine)));
  PERIGEE_ASSIGN_OR_RETURN(out.format, find_format(plan.format));
  if (plan.devices_per_node != static_cast<std::int64_t>(out.node->devices.value)) {
    return invalid_argument("plan: devices_per_node is {}, {} has {}", plan.devices_per_node, out.node->name,
                            out.node->devices.value);
  }
  for (const PoolPlan& pool : plan.pools) {
    MemorySetup memory;
    memory.shape = out.shape;
    memory.chip = out.chip;
    memory.engine = out.engine;
    memory.format = out.format;
    memory.pool = pool;
    memory.mean_length = mean_length;
    auto report = plan_memory(memory);
    if (!report.ok()) return report.status().with_context(std::string(role_name(pool.role)) + " pool");

    StepSetup step;
    step.shape = out.shape;
    step.chip = out.chip;
    step.devices_per_node = plan.devices_per_node;
    step.format = out.format;
    step.parallel = pool.parallel;
    step.times = out.engine->times;
    step.draft = pool.draft;
    if (pool.graphs && !pool.graph_sizes.empty()) {
      step.captured_tokens = *std::max_element(pool.graph_sizes.begin(), pool.graph_sizes.end());
    }
    out.pools.push_back({&pool, std::move(report).value(), std::make_unique<StepModel>(step)});
  }
  return out;
}

ClusterSetup cluster_setup(const Deployment& deployment, const Plan& plan) {
  ClusterSetup out;
  const auto add = [&](Role role) {
    for (const PoolModels& models : deployment.pools) {
      const PoolPlan& pool = *models.pool;
      if (pool.role != role) continue;
      PoolSetup setup;
      setup.role = role;
      setup.model = models.steps.get();
      setup.instances = pool.instances;
      setup.nodes = pool.nodes;
      setup.max_sequences = pool.max_sequences;
      setup.max_batched_tokens = pool.max_batched_tokens;
      setup.cache_tokens = models.memory.cache_tokens;
      setup.prefix_tokens = models.memory.cache_tokens;
      setup.prefix_cache = pool.prefix_cache;
      setup.prefix_quantum = models.memory.block_tokens;
      out.pools.push_back(setup);
    }
  };
  add(Role::kMixed);
  add(Role::kPrefill);
  add(Role::kDecode);
  if (plan.disaggregated()) {
    const ModelShape& shape = *deployment.shape;
    const auto decode_tp = static_cast<double>(plan.pool(Role::kDecode)->parallel.tp);
    out.transfer_ms = deployment.engine->transfer_ms;
    // Every decode rank pulls the whole latent (replicated over TP) and its share of the recurrent state.
    out.transfer_bytes_per_token = cache_bytes_per_token(shape, 2) + index_bytes_per_token(shape, 2);
    out.transfer_bytes_fixed = static_cast<double>(state_bytes_per_sequence(shape, 4)) / decode_tp;
    out.transfer_gb_s = deployment.chip->pod_link_gb_s.value * deployment.engine->times.expert_link;
  }
  return out;
}

StepTime decode_step(const PoolModels& pool, double sequences, double context) {
  StepLoad load;
  load.sequences = sequences;
  load.context = sequences * context;
  return pool.steps->step(load);
}

StepTime prefill_step(const PoolModels& pool, double tokens, double context_before) {
  StepLoad load;
  load.add_prompt(context_before, context_before + tokens, pool.steps->limit());
  load.prompts = 1;
  return pool.steps->step(load);
}

void fill_forecast(Plan& plan, const Deployment& deployment, const SimulationResult& result) {
  const EngineProfile& engine = *deployment.engine;
  const auto range = [&](double value) {
    return Forecast::Range{value, value * engine.interval_low, value * engine.interval_high};
  };
  plan.forecast.ttft_ms = range(result.ttft_ms.p90);
  plan.forecast.tpot_ms = range(result.tpot_ms.p90);
  plan.forecast.output_tokens_per_second = range(result.output_tokens_per_second);
  plan.forecast.cost_per_million_tokens = result.cost_per_million_output;
  const PoolModels& last = deployment.pools.back();
  plan.forecast.dominated_by = decode_step(last, static_cast<double>(last.pool->max_sequences),
                                           static_cast<double>(last.pool->max_model_len) / 8)
                                   .dominating();
}

}  // namespace perigee::planner
