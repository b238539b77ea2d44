// A plan opened against the catalogue: what every pool holds, how long its steps take, and how to simulate it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "planner/catalogue.h"
#include "planner/memory.h"
#include "planner/plan.h"
#include "planner/simulator.h"
#include "planner/step_time.h"

namespace perigee::planner {

struct PoolModels {
  const PoolPlan* pool = nullptr;
  MemoryReport memory;
  std::unique_ptr<StepModel> steps;
};

struct Deployment {
  const ModelShape* shape = nullptr;
  const Node* node = nullptr;
  const Chip* chip = nullptr;
  const EngineProfile* engine = nullptr;
  WeightFormat format{};
  std::vector<PoolModels> pools;  // in the order of the plan
};

// The deployment points into `catalogue` and `plan`; both must outlive it. `shape` replaces the catalogue's model
// (a checkpoint's own configuration); null: the plan's name is looked up.
Result<Deployment> open_plan(const Catalogue& catalogue, const Plan& plan, const ModelShape* shape,
                             std::int64_t mean_length);

// Pools, transfer sizes and cache limits for simulate(). Traffic, targets, failures and prices are the caller's.
ClusterSetup cluster_setup(const Deployment& deployment, const Plan& plan);

// Steps that a person looks at: decode at `sequences` and `context` a group, and a full prefill step.
StepTime decode_step(const PoolModels& pool, double sequences, double context);
StepTime prefill_step(const PoolModels& pool, double tokens, double context_before);

// Fills plan.forecast from a simulation, with the engine's interval.
void fill_forecast(Plan& plan, const Deployment& deployment, const SimulationResult& result);

}  // namespace perigee::planner
