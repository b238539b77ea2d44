// Options that the `perigee plan` commands share: a plan file, or one mixed pool by flags named as the engines name
// them; traffic; and the check that nothing which decides a prediction is left to a guess.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "planner/catalogue.h"
#include "planner/plan.h"
#include "planner/simulator.h"

namespace CLI {
class App;
}

namespace perigee::cli {

struct PlanArguments {
  std::string plan_file, data, model, checkpoint, format, node, engine = "vllm-ascend";
  std::int64_t nodes = 0, tp = 0, dp = 0, dcp = 1;
  std::int64_t max_model_len = 0, max_batched_tokens = 0, max_sequences = 0;
  double memory_utilization = 0.9;
  std::int64_t hccl_buffer_mib = 0;
  std::vector<std::int64_t> graph_sizes;
  bool eager = false;
  std::string draft_method;
  std::int64_t drafts = 0;
  double accepted = 0;
  bool eager_draft = false;
  bool json = false;
};
void add_plan_options(CLI::App& command, PlanArguments& arguments);

struct TrafficArguments {
  std::string trace;
  std::int64_t prompts = 0, concurrency = 0;
  double input = 0, output = 0, input_spread = 0, output_spread = 0, per_second = 0, shared_prefix = 0;
  std::int64_t prefixes = 1;
  bool warm = false, cold = false;
  double ttft_target_ms = 0, tpot_target_ms = 0, price = 0;
  std::uint64_t seed = 1;
};
void add_traffic_options(CLI::App& command, TrafficArguments& arguments);

// A plan with everything that it points to.
struct OpenedPlan {
  planner::Catalogue catalogue;
  std::optional<planner::ModelShape> own_shape;  // of --checkpoint
  planner::Plan plan;
  const planner::ModelShape* shape() const { return own_shape ? &*own_shape : nullptr; }
};
// `for_speed`: also asks for what a time depends on (captured sizes, acceptance).
Result<OpenedPlan> open_plan_arguments(const PlanArguments& arguments, bool for_speed);

// Lists every missing input at once.
Status check_traffic(const TrafficArguments& arguments);
Result<planner::RequestSet> traffic_requests(const TrafficArguments& arguments);

}  // namespace perigee::cli
