// The time model against published results: prediction, interval, published value and error of every row, fitted or
// held out, with the null predictor beside it (spec ascend.md 5.1 and 5.2). Pure functions, thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "planner/catalogue.h"
#include "planner/simulator.h"

namespace perigee::planner {

struct MeasuredPool {
  Role role = Role::kMixed;
  std::int64_t instances = 1, nodes = 1, dp = 1, tp = 1, dcp = 1, sequences = 1, batched = 8192;
  std::int64_t drafts = 0;
  std::int64_t captured = -1;  // largest captured size in tokens; -1: every decode step is captured
  bool graphs = true, eager_draft = false, sparse_context_parallel = false;
  std::int64_t warm_groups = 0;
  double memory_utilization = 0.9;  // the engine's default where a source does not say it
  std::int64_t hccl_buffer_mib = 1024;
};

struct MeasuredStep {
  std::int64_t sequences = 0, queries = 1, context = 0;  // decode: over all groups
  std::int64_t prompts = 0, prompt_tokens = 0;           // prefill: over all groups
};

struct Measurement {
  std::string id, system, split, model, format, node, chip, engine, source, confidence, note;
  double cache_bytes = 2;
  std::int64_t indexer_every = 1;
  std::string draft_method;
  double accepted = 1;
  std::vector<MeasuredPool> pools;
  bool is_step = false;
  MeasuredStep step;
  SyntheticTraffic traffic;
  std::int64_t concurrency = 0;
  bool prefix_cache = true;
  double target_tpot_ms = 0;  // what the deployment was tuned to: input of the null predictor only
  struct Value {
    std::string metric;  // tokens_per_second, ttft_ms, tpot_ms, step_ms
    double value = 0;
  };
  std::vector<Value> published;

  bool fitted() const { return split == "fit"; }
  bool arrival_limited() const { return note.starts_with("arrival-limited"); }
};

struct ExcludedRows {
  std::string rows, reason;
};

struct MeasurementSet {
  std::vector<Measurement> rows;
  std::vector<ExcludedRows> excluded;
};

Result<MeasurementSet> load_measurements(const std::string& directory);

struct PredictedValue {
  std::string metric;
  double published = 0, predicted = 0, low = 0, high = 0;
  double null_prediction = 0;  // 0: none
  std::string dominated_by;
  double error() const { return predicted / published - 1; }
  double null_error() const { return null_prediction / published - 1; }
  bool covered() const { return low <= published && published <= high; }
};

struct ValidationRow {
  const Measurement* measurement = nullptr;
  std::vector<PredictedValue> values;
};

// One row with the given step times instead of the engine's own; errors name the row.
Result<ValidationRow> predict(const Catalogue& catalogue, const Measurement& row, const EngineProfile& engine);
Result<std::vector<ValidationRow>> validate(const Catalogue& catalogue, const MeasurementSet& set);

struct ErrorSummary {
  std::string name;
  std::int64_t values = 0, within_40 = 0, within_50 = 0, covered = 0;
  double median = 0, worst = 0;
  std::string worst_row;
};
// Groups: fitted, held out, held out without arrival-limited rows, by metric, null predictor, by system.
std::vector<ErrorSummary> summarise(const std::vector<ValidationRow>& rows);

// Fits the eight step-time numbers on the training rows: mean absolute logarithmic error and a weak prior, by
// Nelder-Mead on logarithms.
struct FitResult {
  EngineTimes times;
  double error_before = 0, error_after = 0;
  std::int64_t evaluations = 0;
};
Result<FitResult> fit_engine(const Catalogue& catalogue, const MeasurementSet& set, const EngineProfile& start,
                             std::int64_t evaluations, std::uint64_t seed);

}  // namespace perigee::planner
