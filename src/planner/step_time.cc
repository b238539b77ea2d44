#include "planner/step_time.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace perigee::planner {
namespace {

constexpr double kMillisecond = 1e-3;
constexpr double kBlockDraftLayers = 5;  // DFlash, DSpark
constexpr double kLaunchesPerDraftLayer = 2;

double number(std::int64_t value) {
  return static_cast<double>(value);
}

}  // namespace

std::string_view StepTime::dominating() const {
  const std::array<std::pair<double, std::string_view>, 7> terms = {{
      {host, "host and scheduler"},
      {launch, captured ? "layer launches (graph)" : "layer launches (eager)"},
      {matrix, weights_bound ? "weight reads" : "matrix arithmetic"},
      {attention, cache_bound ? "cache reads" : "attention arithmetic"},
      {expert_link, "expert dispatch and combine"},
      {tensor_link, "tensor-parallel all-reduce"},
      {draft, "draft"},
  }};
  return std::max_element(terms.begin(), terms.end(), [](const auto& a, const auto& b) { return a.first < b.first; })
      ->second;
}

void StepLoad::add_prompt(double begin, double end, double select_limit) {
  prefill_tokens += end - begin;
  prefill_context += (end * end - begin * begin) / 2;
  const double knee = std::clamp(select_limit, begin, end);
  prefill_selected += (knee * knee - begin * begin) / 2 + (end - knee) * std::min(select_limit, end);
}

StepModel::StepModel(const StepSetup& setup) : setup_(setup), select_limit_(select_limit(*setup.shape)) {
  const ModelShape& s = *setup_.shape;
  const AttentionShape& a = s.attention;
  const ParameterCount p = count_parameters(s);
  const Parallel& cut = setup_.parallel;
  const double tp = number(cut.tp);
  const double moe_layers = number(s.moe_layers());
  const double trunk_bytes = setup_.format.trunk_bytes;

  split_params_ = number(p.attention_heads + p.kda + p.shared + p.dense) / tp;
  sequence_params_ = number(p.latent + p.router);
  copied_params_ = number(p.attention_shared + p.indexer);
  head_params_ = number(p.embedding) / 2 / tp;
  resident_bytes_ = (split_params_ + copied_params_) * trunk_bytes + (sequence_params_ + head_params_) * 2;
  const double expert_cut = cut.expert_parallel ? number(cut.ep()) : tp;
  expert_bytes_ = number(s.moe.experts) * moe_layers * expert_bytes(s, setup_.format) / expert_cut;
  expert_flops_ = 2 * number(s.moe.top_k * p.expert) * moe_layers / expert_cut;
  if (s.moe.experts > 0) log_miss_ = std::log1p(-std::min(0.999999, number(s.moe.top_k) / number(s.moe.experts)));

  heads_ = number(a.heads) / tp;
  switch (a.kind) {
    case AttentionKind::kMla:
      row_bytes_ = number(a.kv_rank + a.rope) * setup_.cache_element_bytes;
      decode_width_ = number(2 * a.kv_rank + a.rope);
      // Selected rows are used in latent form; dense prefill expands keys and values.
      prefill_width_ = s.indexer.top_k > 0 ? decode_width_ : number(a.nope + a.rope + a.v);
      break;
    case AttentionKind::kGqa:
      row_bytes_ = 2 * number(a.kv_heads * a.head_dim) * setup_.cache_element_bytes / std::min(tp, number(a.kv_heads));
      prefill_width_ = decode_width_ = number(2 * a.head_dim);
      break;
    case AttentionKind::kShared:
      row_bytes_ = number(a.head_dim) * setup_.cache_element_bytes;
      prefill_width_ = decode_width_ = number(2 * a.head_dim);
      break;
  }
  row_bytes_ /= number(cut.dcp);
  index_row_bytes_ = number(s.indexer.head_dim) * setup_.cache_element_bytes / number(setup_.indexer_every);
  index_flops_ = 2 * number(s.indexer.heads * s.indexer.head_dim) / number(setup_.indexer_every);
  state_bytes_ = number(s.kda_layers * s.kda.heads * s.kda.head_dim * s.kda.head_dim) * 8 / tp;

  const double expert_width = number(s.moe.latent > 0 ? s.moe.latent : s.hidden);
  const double dispatch_bytes = setup_.format.compute_bytes < 2 ? 1 : 2;
  if (cut.expert_parallel && cut.ep() > 1) {
    expert_link_bytes_ = number(s.moe.top_k) * expert_width * (dispatch_bytes + 2) * moe_layers / tp;
  }
  tensor_link_bytes_ = 2 * 2 * (tp - 1) / tp * number(s.hidden) * 2 * number(s.layers);

  const Chip& chip = *setup_.chip;
  const EngineTimes& e = setup_.times;
  const double integer = setup_.format.compute_bytes < 2 ? chip.int8_tops.value : chip.bf16_tflops.value;
  peak_ = integer * 1e12 * e.compute * kMillisecond;
  attention_peak_ = chip.bf16_tflops.value * 1e12 * e.attention * kMillisecond;
  memory_ = chip.memory_tb_s.value * 1e12 * e.memory * kMillisecond;
  const bool crosses = cut.devices() > setup_.devices_per_node;
  const double node_link = chip.node_link_gb_s.value * 1e9 * kMillisecond;
  const double pod_link = chip.pod_link_gb_s.value * 1e9 * kMillisecond;
  expert_rate_ = (crosses ? std::min(node_link, pod_link) : node_link) * e.expert_link;
  tensor_rate_ = (cut.tp > setup_.devices_per_node ? std::min(node_link, pod_link) : node_link) * e.tensor_link *
                 std::min(1.0, 8 / tp);
  if (chip.family == "a2" && crosses) {
    // HCCS inside a node; between nodes every token travels over RoCE once, spread over the node's devices.
    expert_rate_ = node_link * e.expert_link;
    slow_link_bytes_ = expert_width * 3 / number(setup_.devices_per_node) * moe_layers;
    slow_rate_ = pod_link;
  }
}

StepTime StepModel::step(const StepLoad& load) const {
  StepTime t;
  const double queries = load.sequences * tokens_per_sequence();
  const double tokens = load.prefill_tokens + queries;
  if (tokens <= 0) return t;
  const double tp = number(setup_.parallel.tp);
  const double pool_tokens = load.pool_tokens > 0 ? load.pool_tokens : tokens * number(setup_.parallel.dp);
  const EngineTimes& e = setup_.times;
  const ModelShape& s = *setup_.shape;

  t.captured = setup_.kernel_only || (load.prefill_tokens <= 0 && queries <= number(setup_.captured_tokens));
  t.host = setup_.kernel_only ? 0 : e.host_ms;
  t.launch = number(s.layers) * (t.captured ? e.graph_layer_ms : e.eager_layer_ms);

  double flops = 2 * tokens * (split_params_ + copied_params_ + sequence_params_ / tp) + pool_tokens * expert_flops_;
  flops += 2 * head_params_ * (queries + load.prompts);
  const double bytes = resident_bytes_ + expert_bytes_ * (1 - std::exp(pool_tokens * log_miss_));
  t.matrix = std::max(flops / peak_, bytes / memory_);
  t.weights_bound = bytes / memory_ > flops / peak_;

  double work = 0;
  double rows = 0;
  double index_rows = 0;
  double scored = 0;
  if (load.prefill_tokens > 0) {
    const AttentionReach reach = attention_reach(s, load.prefill_tokens, load.prefill_context, load.prefill_selected);
    const double share = setup_.sparse_context_parallel ? tp : 1;
    work += 2 * reach.pairs * heads_ * prefill_width_;
    rows += reach.gathered / share;
    scored += reach.scored / share;
  }
  if (load.sequences > 0) {
    const double width = tokens_per_sequence();
    const double selected = load.sequences * std::min(load.context / load.sequences, select_limit_);
    const AttentionReach reach = attention_reach(s, queries, load.context * width, selected * width);
    work += 2 * reach.pairs * heads_ * decode_width_;
    rows += reach.gathered + reach.rows_read / width;
    scored += reach.scored;
    index_rows += reach.scored / width;
  }
  work += scored * index_flops_;
  const double cache_bytes = rows * row_bytes_ + index_rows * index_row_bytes_ + queries * state_bytes_;
  t.attention = std::max(work / attention_peak_, cache_bytes / memory_);
  t.cache_bound = cache_bytes / memory_ > work / attention_peak_;

  t.expert_link = tokens * expert_link_bytes_ / expert_rate_;
  if (slow_rate_ > 0) t.expert_link += pool_tokens * slow_link_bytes_ / slow_rate_;
  t.tensor_link = tokens * tensor_link_bytes_ / tensor_rate_;

  if (setup_.draft.enabled()) {
    const bool block = setup_.draft.method == "dspark" || setup_.draft.method == "dflash";
    const double layers = block ? kBlockDraftLayers : number(setup_.draft.tokens);
    const double launch = setup_.draft.eager || !t.captured ? e.eager_layer_ms : e.graph_layer_ms;
    t.draft = layers * kLaunchesPerDraftLayer * launch;
  }
  return t;
}

}  // namespace perigee::planner
