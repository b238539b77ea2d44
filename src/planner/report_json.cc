// The JSON side of report.h.
#include <nlohmann/json.hpp>

#include "planner/report.h"

namespace perigee::planner {
namespace {

Json to_json(const Percentiles& p) {
  return {{"mean", p.mean}, {"p50", p.p50}, {"p90", p.p90}, {"p99", p.p99}};
}

}  // namespace

Json to_json(const ModelShape& s, const WeightFormat& format) {
  const ParameterCount p = count_parameters(s);
  return {{"model", s.name},
          {"parameters", p.total()},
          {"active_parameters", active_parameters(s)},
          {"format", format.name},
          {"checkpoint_bytes", checkpoint_bytes(s, format)},
          {"nominal_int4_bytes", nominal_int4_bytes(s)},
          {"cache_bytes_per_token", cache_bytes_per_token(s, 2)},
          {"index_bytes_per_token", index_bytes_per_token(s, 2)},
          {"state_bytes_per_sequence", state_bytes_per_sequence(s, 4)},
          {"source", s.source},
          {"confidence", s.confidence}};
}

Json to_json(const MemoryReport& r) {
  Json lines = Json::array();
  for (const MemoryLine& line : r.lines) {
    lines.push_back({{"name", line.name}, {"low", line.low}, {"high", line.high}, {"why", line.why}});
  }
  return {{"verdict", verdict_name(r.verdict)},
          {"need_low", r.need_low},
          {"need_high", r.need_high},
          {"budget", r.budget},
          {"largest_context", r.largest_context},
          {"largest_batch", r.largest_batch},
          {"cache_tokens", r.cache_tokens},
          {"block_tokens", r.block_tokens},
          {"lines", std::move(lines)}};
}

Json to_json(const StepTime& t) {
  return {{"total_ms", t.total()},           {"host_ms", t.host},           {"launch_ms", t.launch},
          {"matrix_ms", t.matrix},           {"attention_ms", t.attention}, {"expert_link_ms", t.expert_link},
          {"tensor_link_ms", t.tensor_link}, {"draft_ms", t.draft},         {"captured", t.captured},
          {"dominating", t.dominating()}};
}

Json to_json(const SimulationResult& r) {
  Json timeline = Json::array();
  for (const TimelinePoint& point : r.timeline) {
    timeline.push_back({point.seconds, point.queued, point.prefilling, point.decoding});
  }
  return {{"completed", r.completed},
          {"seconds", r.seconds},
          {"output_tokens_per_second", r.output_tokens_per_second},
          {"input_tokens_per_second", r.input_tokens_per_second},
          {"ttft_ms", to_json(r.ttft_ms)},
          {"tpot_ms", to_json(r.tpot_ms)},
          {"goodput_per_second", r.goodput_per_second},
          {"goodput_share", r.goodput_share},
          {"prefix_hit", r.prefix_hit},
          {"cost_per_million_output_tokens", r.cost_per_million_output},
          {"prefill_busy", r.prefill_busy},
          {"decode_busy", r.decode_busy},
          {"failures", r.failures},
          {"restarted", r.restarted},
          {"events", r.events},
          {"steps", r.steps},
          {"timeline", std::move(timeline)}};
}

Json to_json(const SearchResult& result) {
  Json ranked = Json::array();
  for (const Candidate& c : result.ranked) {
    Json one = {{"layout", layout_name(c.plan)},
                {"verdict", verdict_name(c.verdict)},
                {"node_hours_per_million", c.node_hours_per_million},
                {"in_time", c.in_time},
                {"in_pace", c.in_pace},
                {"pareto", c.pareto},
                {"reason", c.reason},
                {"result", to_json(c.result)}};
    one["result"].erase("timeline");
    ranked.push_back(std::move(one));
  }
  Json refused = Json::array();
  for (const RefusedLayout& r : result.refused) refused.push_back({{"layout", r.layout}, {"reason", r.reason}});
  return {{"ranked", std::move(ranked)}, {"refused", std::move(refused)}};
}

Json to_json(const std::vector<ValidationRow>& rows) {
  Json values = Json::array();
  for (const ValidationRow& row : rows) {
    for (const PredictedValue& v : row.values) {
      values.push_back({{"row", row.measurement->id},
                        {"system", row.measurement->system},
                        {"split", row.measurement->split},
                        {"metric", v.metric},
                        {"published", v.published},
                        {"predicted", v.predicted},
                        {"low", v.low},
                        {"high", v.high},
                        {"null", v.null_prediction},
                        {"dominated_by", v.dominated_by},
                        {"source", row.measurement->source}});
    }
  }
  Json summary = Json::array();
  for (const ErrorSummary& s : summarise(rows)) {
    summary.push_back({{"name", s.name},
                       {"values", s.values},
                       {"median", s.median},
                       {"worst", s.worst},
                       {"worst_row", s.worst_row},
                       {"within_40", s.within_40},
                       {"within_50", s.within_50},
                       {"covered", s.covered}});
  }
  return {{"values", std::move(values)}, {"summary", std::move(summary)}};
}

Json to_json(const std::vector<LayoutCheck>& checks) {
  Json out = Json::array();
  for (const LayoutCheck& check : checks) {
    Json one = to_json(check.report);
    one.erase("lines");
    one["layout"] = check.layout->name;
    one["published"] = verdict_name(check.layout->published);
    one["right"] = check.right;
    out.push_back(std::move(one));
  }
  return out;
}

}  // namespace perigee::planner
