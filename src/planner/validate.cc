#include "planner/validate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "planner/memory.h"
#include "planner/random.h"

namespace perigee::planner {
namespace {

Result<StepModel> step_model(const Catalogue& catalogue, const Measurement& row, const MeasuredPool& pool,
                             const EngineProfile& engine) {
  StepSetup setup;
  PERIGEE_ASSIGN_OR_RETURN(setup.shape, catalogue.model(row.model));
  PERIGEE_ASSIGN_OR_RETURN(const Node* node, catalogue.node(row.node));
  PERIGEE_ASSIGN_OR_RETURN(setup.chip, catalogue.chip(row.chip.empty() ? node->chip : row.chip));
  PERIGEE_ASSIGN_OR_RETURN(setup.format, find_format(row.format));
  setup.devices_per_node = static_cast<std::int64_t>(node->devices.value);
  setup.parallel = {.tp = pool.tp, .dp = pool.dp, .pp = 1, .dcp = pool.dcp, .expert_parallel = true};
  setup.times = engine.times;
  setup.cache_element_bytes = row.cache_bytes;
  setup.indexer_every = row.indexer_every;
  setup.sparse_context_parallel = pool.sparse_context_parallel;
  setup.draft.method = row.draft_method;
  setup.draft.tokens = pool.drafts;
  setup.draft.accepted = row.accepted;
  setup.draft.eager = pool.eager_draft;
  setup.captured_tokens = pool.captured >= 0 ? pool.captured : pool.sequences * (1 + pool.drafts);
  if (!pool.graphs) setup.captured_tokens = 0;
  setup.kernel_only = row.is_step;
  if (row.is_step) {
    // Speculative width of a step row is given by its query tokens; the draft itself is not part of the trace.
    setup.draft = {};
    setup.captured_tokens = 0;
  }
  return StepModel(setup);
}

// Tokens that the caches of a group hold beside its weights: the memory model's word, as in every plan. At least one
// request fits, since it ran.
Result<double> cache_tokens(const Measurement& row, const MeasuredPool& pool, const StepModel& model,
                            const EngineProfile& engine) {
  MemorySetup setup;
  setup.shape = model.setup().shape;
  setup.chip = model.setup().chip;
  setup.engine = &engine;
  setup.format = model.setup().format;
  setup.cache_element_bytes = setup.index_element_bytes = row.cache_bytes;
  const double longest = row.traffic.input_mean + row.traffic.output_mean;
  setup.pool.parallel = model.setup().parallel;
  setup.pool.max_model_len = static_cast<std::int64_t>(longest);
  setup.pool.max_batched_tokens = pool.batched;
  setup.pool.max_sequences = pool.sequences;
  setup.pool.memory_utilization = pool.memory_utilization;
  setup.pool.hccl_buffer_mib = pool.hccl_buffer_mib;
  setup.pool.graphs = pool.graphs;
  setup.pool.graph_sizes = {1, 2, 4, 8, 16};
  setup.pool.draft = model.setup().draft;
  PERIGEE_ASSIGN_OR_RETURN(const MemoryReport report, plan_memory(setup));
  return std::max(report.cache_tokens, longest + 1);
}

StepLoad step_load(const Measurement& row, const MeasuredPool& pool, const StepModel& model) {
  StepLoad load;
  const auto groups = static_cast<double>(pool.dp);
  if (row.step.prompts > 0) {
    const double each = std::ceil(static_cast<double>(row.step.prompts) / groups);
    for (int i = 0; i < static_cast<int>(each); ++i) {
      load.add_prompt(0, static_cast<double>(row.step.prompt_tokens), model.limit());
    }
    load.prompts = each;
    return load;
  }
  // A verify step of q tokens a sequence: q queries, one pass over the cache.
  load.sequences = static_cast<double>(row.step.sequences) / groups;
  load.context = load.sequences * static_cast<double>(row.step.context);
  return load;
}

double null_prediction(const Measurement& row) {
  if (row.target_tpot_ms <= 0) return 0;
  double rate = static_cast<double>(row.concurrency) / row.target_tpot_ms * 1000;
  if (row.traffic.per_second > 0) rate = std::min(rate, row.traffic.per_second * row.traffic.output_mean);
  return rate;
}

ErrorSummary summary(std::string name, const std::vector<const PredictedValue*>& values,
                     const std::vector<std::string>& ids, bool null) {
  ErrorSummary out;
  out.name = std::move(name);
  std::vector<double> errors;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double error = std::abs(null ? values[i]->null_error() : values[i]->error());
    errors.push_back(error);
    if (error <= 0.4) ++out.within_40;
    if (error <= 0.5) ++out.within_50;
    if (!null && values[i]->covered()) ++out.covered;
    if (error >= out.worst) {
      out.worst = error;
      out.worst_row = ids[i];
    }
  }
  out.values = std::ssize(errors);
  if (errors.empty()) return out;
  std::sort(errors.begin(), errors.end());
  const std::size_t middle = errors.size() / 2;
  out.median = errors.size() % 2 == 1 ? errors[middle] : (errors[middle - 1] + errors[middle]) / 2;
  return out;
}

constexpr std::size_t kNumbers = 8;
constexpr std::size_t kFirstShare = 3;
using Point = std::array<double, kNumbers>;
// Compute, attention, memory as msmodeling takes them for A2 and A3; the expert link as DeepEP's Ascend port measured
// it at EP16 (87 and 121 of 196 GB/s). All-reduce has no public anchor, and no prior.
constexpr std::array<double, 4> kPriorShares = {0.7, 0.7, 0.6, 0.53};
// Mean left-out error when one training system is left out: 0.42 at 0.003, 0.41 at 0.01, 0.24 here, 0.22 at 0.1.
constexpr double kPriorWeight = 0.03;

Point to_point(const EngineTimes& t) {
  return {std::log(t.host_ms),   std::log(t.graph_layer_ms), std::log(t.eager_layer_ms), std::log(t.compute),
          std::log(t.attention), std::log(t.memory),         std::log(t.expert_link),    std::log(t.tensor_link)};
}

EngineTimes from_point(const Point& p) {
  const auto share = [](double value) { return std::clamp(std::exp(value), 0.02, 1.0); };
  return {.host_ms = std::exp(p[0]),
          .graph_layer_ms = std::exp(p[1]),
          .eager_layer_ms = std::exp(p[2]),
          .compute = share(p[3]),
          .attention = share(p[4]),
          .memory = share(p[5]),
          .expert_link = share(p[6]),
          .tensor_link = share(p[7])};
}

}  // namespace

Result<ValidationRow> predict(const Catalogue& catalogue, const Measurement& row, const EngineProfile& engine) {
  ValidationRow out;
  out.measurement = &row;
  std::vector<StepModel> models;
  for (const MeasuredPool& pool : row.pools) {
    auto model = step_model(catalogue, row, pool, engine);
    if (!model.ok()) return model.status().with_context("row " + row.id);
    models.push_back(std::move(model).value());
  }
  std::map<std::string, double> predicted;
  std::string dominated;
  if (row.is_step) {
    StepModel model = models[0];
    if (row.step.queries > 1) {
      StepSetup setup = model.setup();
      setup.query_tokens = row.step.queries;
      model = StepModel(setup);
    }
    const StepTime time = model.step(step_load(row, row.pools[0], model));
    predicted["step_ms"] = time.total();
    dominated = time.dominating();
  } else {
    ClusterSetup cluster;
    cluster.concurrency = row.concurrency;
    cluster.transfer_ms = engine.transfer_ms;
    for (std::size_t i = 0; i < row.pools.size(); ++i) {
      const MeasuredPool& pool = row.pools[i];
      PoolSetup& setup = cluster.pools.emplace_back();
      setup.role = pool.role;
      setup.model = &models[i];
      setup.instances = pool.instances;
      setup.nodes = pool.nodes;
      setup.max_sequences = pool.sequences;
      setup.max_batched_tokens = pool.batched;
      setup.prefix_cache = row.prefix_cache;
      setup.warm_groups = pool.warm_groups;
      // Requests that share a prefix share its rows too, which the simulator's reservations do not know.
      if (row.traffic.shared_prefix <= 0) {
        // A format that the memory model does not know for this chip ran all the same: then nothing bounds the caches.
        if (const auto tokens = cache_tokens(row, pool, models[i], engine); tokens.ok()) setup.cache_tokens = *tokens;
      }
    }
    const RequestSet traffic = make_traffic(row.traffic);
    auto result = simulate(cluster, traffic);
    if (!result.ok()) return result.status().with_context("row " + row.id);
    predicted["tokens_per_second"] = result->output_tokens_per_second;
    predicted["ttft_ms"] = result->ttft_ms.mean;
    predicted["tpot_ms"] = result->tpot_ms.mean;
    const MeasuredPool& last = row.pools.back();
    const double running =
        std::min(static_cast<double>(row.concurrency) / static_cast<double>(last.dp * last.instances),
                 static_cast<double>(last.sequences));
    StepLoad load;
    load.sequences = std::max(running, 1.0);
    load.context = load.sequences * (row.traffic.input_mean + row.traffic.output_mean / 2);
    dominated = models.back().step(load).dominating();
  }
  for (const auto& published : row.published) {
    PredictedValue value;
    value.metric = published.metric;
    value.published = published.value;
    value.predicted = predicted[published.metric];
    value.low = value.predicted * engine.interval_low;
    value.high = value.predicted * engine.interval_high;
    value.dominated_by = dominated;
    if (published.metric == "tokens_per_second") value.null_prediction = null_prediction(row);
    out.values.push_back(value);
  }
  return out;
}

Result<std::vector<ValidationRow>> validate(const Catalogue& catalogue, const MeasurementSet& set) {
  std::vector<ValidationRow> rows;
  for (const Measurement& row : set.rows) {
    PERIGEE_ASSIGN_OR_RETURN(const EngineProfile* engine, catalogue.engine(row.engine));
    PERIGEE_ASSIGN_OR_RETURN(ValidationRow predicted, predict(catalogue, row, *engine));
    rows.push_back(std::move(predicted));
  }
  return rows;
}

std::vector<ErrorSummary> summarise(const std::vector<ValidationRow>& rows) {
  std::vector<ErrorSummary> out;
  const auto add = [&](std::string name, bool null, auto keep) {
    std::vector<const PredictedValue*> values;
    std::vector<std::string> ids;
    for (const auto& row : rows) {
      for (const auto& value : row.values) {
        if (null && value.null_prediction <= 0) continue;
        if (!keep(*row.measurement, value)) continue;
        values.push_back(&value);
        ids.push_back(row.measurement->id);
      }
    }
    if (!values.empty()) out.push_back(summary(std::move(name), values, ids, null));
  };
  add("fitted", false, [](const Measurement& m, const PredictedValue&) { return m.fitted(); });
  add("held out", false, [](const Measurement& m, const PredictedValue&) { return !m.fitted(); });
  add("held out, not arrival-limited", false,
      [](const Measurement& m, const PredictedValue&) { return !m.fitted() && !m.arrival_limited(); });
  for (const char* metric : {"tokens_per_second", "ttft_ms", "tpot_ms", "step_ms"}) {
    add(std::string("held out, ") + metric, false,
        [metric](const Measurement& m, const PredictedValue& v) { return !m.fitted() && v.metric == metric; });
  }
  add("null predictor on held out tokens_per_second", true,
      [](const Measurement& m, const PredictedValue&) { return !m.fitted(); });
  std::vector<std::string> systems;
  for (const auto& row : rows) {
    const auto& system = row.measurement->system;
    if (std::find(systems.begin(), systems.end(), system) == systems.end()) systems.push_back(system);
  }
  for (const auto& system : systems) {
    add(system, false, [&system](const Measurement& m, const PredictedValue&) { return m.system == system; });
  }
  return out;
}

Result<FitResult> fit_engine(const Catalogue& catalogue, const MeasurementSet& set, const EngineProfile& start,
                             std::int64_t evaluations, std::uint64_t seed) {
  FitResult out;
  Status failure;
  const auto loss = [&](const Point& point) {
    ++out.evaluations;
    EngineProfile engine = start;
    engine.times = from_point(point);
    double sum = 0;
    double count = 0;
    for (const Measurement& row : set.rows) {
      if (!row.fitted()) continue;
      const auto predicted = predict(catalogue, row, engine);
      if (!predicted.ok()) {
        failure = predicted.status();
        return 1e9;
      }
      for (const auto& value : predicted->values) {
        sum += std::abs(std::log(value.predicted / value.published));
        count += 1;
      }
    }
    // A weak prior keeps numbers that the rows hardly constrain at the efficiencies that msModeling uses.
    double prior = 0;
    for (std::size_t i = 0; i < kPriorShares.size(); ++i) {
      const double distance = point[kFirstShare + i] - std::log(kPriorShares[i]);
      prior += kPriorWeight * distance * distance;
    }
    return sum / count + prior;
  };

  // Nelder-Mead; restarts from the best point with a fresh simplex while evaluations remain.
  Random random(seed);
  Point best = to_point(start.times);
  double best_loss = loss(best);
  out.error_before = best_loss;
  while (out.evaluations < evaluations && failure.ok()) {
    std::array<std::pair<double, Point>, kNumbers + 1> simplex;
    simplex[0] = {best_loss, best};
    for (std::size_t i = 0; i < kNumbers; ++i) {
      Point point = best;
      point[i] += (random.uniform() < 0.5 ? -1 : 1) * (0.1 + 0.3 * random.uniform());
      simplex[i + 1] = {loss(point), point};
    }
    const auto by_loss = [](const auto& a, const auto& b) { return a.first < b.first; };
    for (int round = 0; round < 150 && out.evaluations < evaluations && failure.ok(); ++round) {
      std::sort(simplex.begin(), simplex.end(), by_loss);
      Point centre{};
      for (std::size_t i = 0; i < kNumbers; ++i) {
        for (std::size_t k = 0; k < kNumbers; ++k) centre[k] += simplex[i].second[k] / kNumbers;
      }
      const auto along = [&](double factor) {
        Point point;
        for (std::size_t k = 0; k < kNumbers; ++k) {
          point[k] = centre[k] + factor * (simplex[kNumbers].second[k] - centre[k]);
        }
        return point;
      };
      const Point reflected = along(-1);
      const double reflected_loss = loss(reflected);
      if (reflected_loss < simplex[0].first) {
        const Point expanded = along(-2);
        const double expanded_loss = loss(expanded);
        simplex[kNumbers] =
            expanded_loss < reflected_loss ? std::pair(expanded_loss, expanded) : std::pair(reflected_loss, reflected);
        continue;
      }
      if (reflected_loss < simplex[kNumbers - 1].first) {
        simplex[kNumbers] = {reflected_loss, reflected};
        continue;
      }
      const Point contracted = along(0.5);
      const double contracted_loss = loss(contracted);
      if (contracted_loss < simplex[kNumbers].first) {
        simplex[kNumbers] = {contracted_loss, contracted};
        continue;
      }
      for (std::size_t i = 1; i <= kNumbers; ++i) {
        for (std::size_t k = 0; k < kNumbers; ++k) {
          simplex[i].second[k] = (simplex[i].second[k] + simplex[0].second[k]) / 2;
        }
        simplex[i].first = loss(simplex[i].second);
      }
    }
    std::sort(simplex.begin(), simplex.end(), by_loss);
    if (simplex[0].first < best_loss) {
      best_loss = simplex[0].first;
      best = simplex[0].second;
    }
  }
  PERIGEE_RETURN_IF_ERROR(failure);
  out.error_after = best_loss;
  out.times = from_point(best);
  return out;
}

}  // namespace perigee::planner
