// Layouts for given hardware, traffic and targets: every way to cut the nodes into one mixed pool or into prefill and
// decode pools is checked for memory, simulated, and ranked; what is refused says why, and the runner-up says why it
// lost. Deterministic: the same request gives the same order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "planner/catalogue.h"
#include "planner/memory.h"
#include "planner/plan.h"
#include "planner/simulator.h"

namespace perigee::planner {

struct SearchRequest {
  std::string model = "kimi-k3";
  std::string checkpoint, served_name;
  std::string format = "w4a8";
  std::string hardware = "atlas-800-a3";
  Engine engine = Engine::kVllmAscend;
  std::string engine_version;
  std::int64_t nodes = 0;
  SyntheticTraffic traffic;
  std::int64_t concurrency = 0;  // 0: open arrivals at traffic.per_second
  bool warm_prefix = false;
  double ttft_target_ms = 0, tpot_target_ms = 0;  // 90th percentiles; 0: none
  std::int64_t max_model_len = 0;
  std::int64_t max_batched_tokens = 8192;
  std::int64_t max_sequences = 16;  // of a group
  double memory_utilization = 0.9;
  DraftPlan draft;
  double price_per_node_hour = 0;
  bool allow_tight = false;
  bool disaggregated_only = false;
};

struct Candidate {
  Plan plan;
  Verdict verdict = Verdict::kFits;
  SimulationResult result;
  double node_hours_per_million = 0;  // output tokens; the cost when there is no price
  bool in_time = true, in_pace = true;
  bool pareto = false;  // no other is better in cost, TTFT and TPOT together
  std::string reason;   // for the best: why it leads; for the others: why they lost
};

struct RefusedLayout {
  std::string layout, reason;
};

struct SearchResult {
  std::vector<Candidate> ranked;
  std::vector<RefusedLayout> refused;
};

// Names as people say them: "4P+4D, DP4 TP16 / DP4 TP16", "2 x mixed 4 nodes, DP4 TP16".
std::string layout_name(const Plan& plan);

Result<SearchResult> search_layouts(const Catalogue& catalogue, const SearchRequest& request);

}  // namespace perigee::planner
