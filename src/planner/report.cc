#include "planner/report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

namespace perigee::planner {
namespace {

constexpr std::size_t kBarWidth = 60;

// One letter a line of the budget; what is free stays a dot and what passes the budget follows a bar.
std::string memory_bar(const MemoryReport& report) {
  constexpr std::string_view kLetters = "EASRVDCKMHGXTN";
  const double scale = static_cast<double>(kBarWidth) / report.budget;
  std::string bar;
  double upto = 0;
  for (std::size_t i = 0; i < report.lines.size(); ++i) {
    upto += report.lines[i].high * scale;
    const auto end = std::min<std::size_t>(static_cast<std::size_t>(std::lround(upto)), 2 * kBarWidth);
    while (bar.size() < end) bar += kLetters[i % kLetters.size()];
  }
  if (bar.size() <= kBarWidth) return bar + std::string(kBarWidth - bar.size(), '.') + "|";
  return bar.substr(0, kBarWidth) + "|" + bar.substr(kBarWidth);
}

std::string spark(const std::vector<double>& values) {
  static constexpr std::array<std::string_view, 8> kBlocks = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  const double most = values.empty() ? 0 : *std::max_element(values.begin(), values.end());
  std::string out;
  for (const double value : values) {
    const double level = most > 0 ? value / most * 7 : 0;
    out += kBlocks[static_cast<std::size_t>(std::clamp(std::lround(level), 0L, 7L))];
  }
  return out;
}

std::string percent(double share) {
  return fmt::format("{:+.0f} %", 100 * share);
}

}  // namespace

std::string format_model(const ModelShape& s, const WeightFormat& format) {
  const ParameterCount p = count_parameters(s);
  std::string out =
      fmt::format("{}: {:.2f} billion parameters, {:.2f} active a token\n", s.title.empty() ? s.name : s.title,
                  static_cast<double>(p.total()) / 1e9, static_cast<double>(active_parameters(s)) / 1e9);
  const std::array<std::pair<std::string_view, std::int64_t>, 11> parts = {{{"routed experts", p.routed},
                                                                            {"shared experts", p.shared},
                                                                            {"latent projections", p.latent},
                                                                            {"router", p.router},
                                                                            {"KDA", p.kda},
                                                                            {"attention", p.attention_heads},
                                                                            {"down-projections", p.attention_shared},
                                                                            {"indexer", p.indexer},
                                                                            {"dense MLP", p.dense},
                                                                            {"embedding and head", p.embedding},
                                                                            {"vision", p.vision}}};
  for (const auto& [name, count] : parts) {
    if (count > 0) out += fmt::format("  {:<22}{:>12.3f} billion\n", name, static_cast<double>(count) / 1e9);
  }
  out += fmt::format("checkpoint in {}: {} bytes", format.name, checkpoint_bytes(s, format));
  if (format.expert_bits == 4) out += fmt::format(" (nominal INT4 of the press: {})", nominal_int4_bytes(s));
  out += fmt::format("\na token keeps {:.0f} B", cache_bytes_per_token(s, 2) + index_bytes_per_token(s, 2));
  if (s.indexer.top_k > 0) out += fmt::format(" ({:.0f} of them index keys)", index_bytes_per_token(s, 2));
  if (s.kda_layers > 0) {
    out += fmt::format(", a sequence {:.1f} MB of recurrent state",
                       static_cast<double>(state_bytes_per_sequence(s, 4)) / 1e6);
  }
  const TokenWork work = token_work(s, 8192);
  out += fmt::format(
      "\na token at 8192 costs {:.0f} GFLOP in matrices, {:.1f} in attention; {:.1f} MB of expert traffic\n",
      work.matrix_flops / 1e9, work.attention_flops / 1e9,
      (work.expert_dispatch_bytes + work.expert_combine_bytes) / 1e6);
  return out;
}

std::string format_memory(const PoolModels& models) {
  const MemoryReport& r = models.memory;
  const PoolPlan& pool = *models.pool;
  std::string out = fmt::format("\n{} pool, {} x {} nodes, DP{} TP{}{}: {} ({:.1f} to {:.1f} of {:.1f} GB a device)\n",
                                role_name(pool.role), pool.instances, pool.nodes, pool.parallel.dp, pool.parallel.tp,
                                pool.parallel.dcp > 1 ? fmt::format(" DCP{}", pool.parallel.dcp) : "",
                                verdict_name(r.verdict), r.need_low / 1e9, r.need_high / 1e9, r.budget / 1e9);
  constexpr std::string_view kLetters = "EASRVDCKMHGXTN";
  for (std::size_t i = 0; i < r.lines.size(); ++i) {
    const MemoryLine& line = r.lines[i];
    const std::string range = std::abs(line.high - line.low) < 5e7
                                  ? fmt::format("{:.2f}", line.high / 1e9)
                                  : fmt::format("{:.2f}-{:.2f}", line.low / 1e9, line.high / 1e9);
    out += fmt::format("  {} {:<32}{:>12} GB  {}\n", kLetters[i % kLetters.size()], line.name, range, line.why);
  }
  out += fmt::format("  [{}]\n", memory_bar(r));
  out += fmt::format(
      "  room for {} tokens of context beside the slots, or {} sequences of the typical length; "
      "prefixes are cached in blocks of {} tokens\n",
      r.largest_context, r.largest_batch, r.block_tokens);
  return out;
}

std::string format_steps(const Deployment& deployment, const Plan& plan, double context) {
  std::string out = fmt::format("\nSteps at {:.0f} tokens of context ({}, {})\n", context, deployment.engine->name,
                                deployment.engine->versions);
  for (const PoolModels& models : deployment.pools) {
    const PoolPlan& pool = *models.pool;
    out += fmt::format("{} pool\n  {:<22}{:>9}{:>8}{:>8}{:>8}{:>8}{:>8}{:>8}{:>8}  {}\n", role_name(pool.role), "step",
                       "total ms", "host", "launch", "matrix", "attn", "EP", "TP", "draft", "largest term");
    const auto row = [&out](const std::string& name, const StepTime& t) {
      out +=
          fmt::format("  {:<22}{:>9.1f}{:>8.1f}{:>8.1f}{:>8.1f}{:>8.1f}{:>8.1f}{:>8.1f}{:>8.1f}  {}\n", name, t.total(),
                      t.host, t.launch, t.matrix, t.attention, t.expert_link, t.tensor_link, t.draft, t.dominating());
    };
    if (pool.role != Role::kPrefill) {
      for (std::int64_t n = 1; n <= pool.max_sequences;
           n = n == pool.max_sequences ? n + 1 : std::min(2 * n, pool.max_sequences)) {
        row(fmt::format("decode, {} a group", n), decode_step(models, static_cast<double>(n), context));
      }
    }
    if (pool.role != Role::kDecode) {
      for (std::int64_t n = std::min<std::int64_t>(1024, pool.max_batched_tokens);;
           n = std::min(4 * n, pool.max_batched_tokens)) {
        row(fmt::format("prefill, {} tokens", n), prefill_step(models, static_cast<double>(n), 0));
        if (n >= pool.max_batched_tokens) break;
      }
    }
    if (!plan.pools.empty() && pool.draft.enabled()) {
      out += fmt::format("  {} drafts of {}: {:.2f} tokens leave a step (given, not predicted)\n", pool.draft.tokens,
                         pool.draft.method, pool.draft.accepted);
    }
  }
  return out;
}

std::string format_simulation(const SimulationResult& r, const EngineProfile& engine, bool priced) {
  std::string out =
      fmt::format("\n{} requests in {:.1f} s: {:.1f} output tokens/s ({:.1f} to {:.1f}), {:.1f} input tokens/s\n",
                  r.completed, r.seconds, r.output_tokens_per_second, r.output_tokens_per_second * engine.interval_low,
                  r.output_tokens_per_second * engine.interval_high, r.input_tokens_per_second);
  out += fmt::format("  {:<10} {:>11} {:>11} {:>11} {:>11}\n", "", "mean", "p50", "p90", "p99");
  out += fmt::format("  {:<10} {:>11.0f} {:>11.0f} {:>11.0f} {:>11.0f}\n", "TTFT ms", r.ttft_ms.mean, r.ttft_ms.p50,
                     r.ttft_ms.p90, r.ttft_ms.p99);
  out += fmt::format("  {:<10} {:>11.1f} {:>11.1f} {:>11.1f} {:>11.1f}\n", "TPOT ms", r.tpot_ms.mean, r.tpot_ms.p50,
                     r.tpot_ms.p90, r.tpot_ms.p99);
  out += fmt::format("  goodput {:.3f} requests/s ({:.0f} % within the targets), prefix hit {:.0f} %\n",
                     r.goodput_per_second, 100 * r.goodput_share, 100 * r.prefix_hit);
  out += fmt::format("  prefill busy {:.0f} %, decode busy {:.0f} %", 100 * r.prefill_busy, 100 * r.decode_busy);
  if (r.failures > 0) out += fmt::format(", {} failures, {} requests restarted", r.failures, r.restarted);
  if (priced) out += fmt::format(", {:.2f} a million output tokens", r.cost_per_million_output);
  out += "\n";
  if (r.timeline.size() > 1) {
    std::vector<double> queued;
    std::vector<double> prefilling;
    std::vector<double> decoding;
    const std::size_t every = (r.timeline.size() + kBarWidth - 1) / kBarWidth;
    for (std::size_t i = 0; i < r.timeline.size(); i += every) {
      queued.push_back(r.timeline[i].queued);
      prefilling.push_back(r.timeline[i].prefilling);
      decoding.push_back(r.timeline[i].decoding);
    }
    const auto line = [&out](std::string_view name, const std::vector<double>& values) {
      out += fmt::format("  {:<10}{} up to {:.0f}\n", name, spark(values),
                         *std::max_element(values.begin(), values.end()));
    };
    line("queued", queued);
    line("prefill", prefilling);
    line("decode", decoding);
    out += fmt::format("  {:<10}0 s{:>{}.0f} s\n", "", r.timeline.back().seconds,
                       queued.size() > 4 ? queued.size() - 4 : 1);
  }
  return out;
}

std::string format_search(const SearchResult& result, std::size_t shown) {
  std::string out = fmt::format("{:>3} {:<34}{:<8}{:>9}{:>11}{:>9}{:>12}\n", "", "layout", "memory", "tokens/s",
                                "TTFT p90 s", "TPOT p90", "node-h/Mtok");
  std::size_t rank = 0;
  for (const Candidate& c : result.ranked) {
    if (++rank > shown) break;
    out += fmt::format("{:>2}{} {:<34}{:<8}{:>9.0f}{:>11.2f}{:>9.1f}{:>12.2f}\n", rank, c.pareto ? "*" : " ",
                       layout_name(c.plan), verdict_name(c.verdict), c.result.output_tokens_per_second,
                       c.result.ttft_ms.p90 / 1000, c.result.tpot_ms.p90, c.node_hours_per_million);
    out += fmt::format("      {}\n", c.reason);
  }
  if (result.ranked.empty()) out += "no layout holds the model\n";
  out += "* no other layout is better in cost, TTFT and TPOT together\n";
  if (!result.refused.empty()) out += "\nRefused\n";
  for (const RefusedLayout& refused : result.refused) out += fmt::format("  {}: {}\n", refused.layout, refused.reason);
  return out;
}

std::string format_validation(const std::vector<ValidationRow>& rows, const MeasurementSet& set) {
  std::string out = fmt::format("{:<5}{:<29}{:<9}{:<18}{:>11}{:>11}{:>23}{:>9}{:>9}  {}\n", "row", "system", "split",
                                "metric", "published", "predicted", "interval", "error", "null", "largest term");
  for (const ValidationRow& row : rows) {
    for (const PredictedValue& v : row.values) {
      out += fmt::format("{:<5}{:<29}{:<9}{:<18}{:>11.1f}{:>11.1f}{:>23}{:>9}{:>9}  {}\n", row.measurement->id,
                         row.measurement->system, row.measurement->split, v.metric, v.published, v.predicted,
                         fmt::format("{:.1f} to {:.1f}{}", v.low, v.high, v.covered() ? "" : " !"), percent(v.error()),
                         v.null_prediction > 0 ? percent(v.null_error()) : "", v.dominated_by);
    }
  }
  out += "! the published value is outside the interval; null: concurrency / target TPOT, capped by the rate\n\n";
  out += fmt::format("{:<50}{:>7}{:>8}{:>14}{:>8}{:>8}{:>10}\n", "", "values", "median", "worst", "<= 40 %", "<= 50 %",
                     "covered");
  for (const ErrorSummary& s : summarise(rows)) {
    out +=
        fmt::format("{:<50}{:>7}{:>8}{:>14}{:>8}{:>8}{:>10}\n", s.name, s.values,
                    fmt::format("{:.1f} %", 100 * s.median), fmt::format("{:.0f} % ({})", 100 * s.worst, s.worst_row),
                    s.within_40, s.within_50, s.name.starts_with("null") ? "" : std::to_string(s.covered));
  }
  out += "\nNot predicted\n";
  for (const ExcludedRows& excluded : set.excluded) {
    out += fmt::format("  {:<8}{}\n", excluded.rows, excluded.reason);
  }
  for (const ValidationRow& row : rows) {
    if (!row.measurement->note.empty())
      out += fmt::format("  row {}: {}\n", row.measurement->id, row.measurement->note);
  }
  return out;
}

std::string format_layout_checks(const std::vector<LayoutCheck>& checks) {
  std::string out = fmt::format("{:<38}{:>20}{:>8}  {:<14}{:<14}\n", "published layout", "needs GB", "budget",
                                "verdict", "published");
  std::array<int, 3> counts{};
  int wrong = 0;
  for (const LayoutCheck& check : checks) {
    const MemoryReport& r = check.report;
    ++counts[static_cast<std::size_t>(r.verdict)];
    wrong += check.right ? 0 : 1;
    out += fmt::format("{:<38}{:>20}{:>8.1f}  {:<14}{:<14}{}\n", check.layout->name,
                       fmt::format("{:.1f} to {:.1f}", r.need_low / 1e9, r.need_high / 1e9), r.budget / 1e9,
                       verdict_name(r.verdict), verdict_name(check.layout->published), check.right ? "" : "WRONG");
  }
  out += fmt::format("{} fit, {} tight, {} do not; {} wrong\n", counts[0], counts[1], counts[2], wrong);
  return out;
}

}  // namespace perigee::planner
