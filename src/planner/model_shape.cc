#include "planner/model_shape.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/checked.h"

namespace perigee::planner {
namespace {

constexpr std::int64_t kStoredDecayEntries = 128;  // A_log is padded to this (model.md 1.6)
constexpr double kLatentElementBytes = 2;
constexpr std::int64_t kPageQuantum = 128;  // tokens

constexpr std::array<WeightFormat, 9> kFormats = {{
    {"bf16", 16, -1, 0, 2, 2, false},
    {"mxfp4", 4, 32, 1, 2, 2, true},
    {"int4-g32", 4, 32, 2, 2, 2, true},
    {"int4-channel", 4, 0, 4, 2, 2, true},
    {"w4a16", 4, 32, 2, 2, 2, false},
    {"w4a8", 4, 0, 4, 1, 1, false},
    {"w8a8", 8, 0, 4, 1, 1, false},
    {"mxfp4-mxfp8", 4, 32, 1, 1, 1, false},
    {"fp8-block", 8, 128 * 128, 4, 1, 1, false},
}};

std::int64_t expert_input(const ModelShape& s) {
  return s.moe.latent > 0 ? s.moe.latent : s.hidden;
}

void count_attention(const ModelShape& s, ParameterCount& out) {
  const AttentionShape& a = s.attention;
  std::int64_t split = 0;
  std::int64_t copied = 0;
  switch (a.kind) {
    case AttentionKind::kMla: {
      const std::int64_t q = a.heads * (a.nope + a.rope);
      if (a.q_rank > 0) {
        copied += a.q_rank * s.hidden + a.q_rank;
        split += q * a.q_rank;
      } else {
        split += q * s.hidden;
      }
      copied += (a.kv_rank + a.rope) * s.hidden + a.kv_rank;
      split += a.heads * (a.nope + a.v) * a.kv_rank + s.hidden * a.heads * a.v;
      if (a.gate) split += a.heads * a.v * s.hidden;
      break;
    }
    case AttentionKind::kGqa:
      split += (2 * a.heads + 2 * a.kv_heads) * a.head_dim * s.hidden;
      break;
    case AttentionKind::kShared: {
      const std::int64_t q = a.heads * a.head_dim;
      copied += a.q_rank * s.hidden + a.head_dim * s.hidden;
      split += q * a.q_rank + q * a.o_rank + a.o_groups * a.o_rank * s.hidden;
      break;
    }
  }
  out.attention_heads = split * a.layers;
  out.attention_shared = copied * a.layers;
}

void count_kda(const ModelShape& s, ParameterCount& out) {
  if (s.kda_layers == 0) return;
  const KdaConfig& k = s.kda;
  const std::int64_t width = k.width();
  const std::int64_t taps = 3 * width * k.conv_kernel;
  std::int64_t one = 4 * width * s.hidden + taps + k.head_dim * s.hidden + width * k.head_dim + k.heads * s.hidden +
                     k.heads + width + k.head_dim;
  one += k.full_rank_gate ? width * s.hidden : k.head_dim * s.hidden + width * k.head_dim;
  out.kda = one * s.kda_layers;
  if (s.released_f32) {
    const std::int64_t decay = std::max(k.heads, kStoredDecayEntries);
    out.f32_elements += (taps + decay + width + k.head_dim) * s.kda_layers;
    out.padding = (decay - k.heads) * s.kda_layers;
  }
}

void count_moe(const ModelShape& s, ParameterCount& out) {
  const std::int64_t n = s.moe_layers();
  if (n == 0) return;
  out.expert = 3 * expert_input(s) * s.moe.expert_width;
  out.routed = out.expert * s.moe.experts * n;
  out.shared = 3 * s.hidden * s.moe.shared_width * n;
  out.router = (s.moe.experts * s.hidden + s.moe.experts) * n;
  if (s.moe.latent > 0) out.latent = (2 * s.moe.latent * s.hidden + (s.moe.latent_norm ? s.moe.latent : 0)) * n;
  if (s.released_f32) out.f32_elements += s.moe.experts * n;
}

std::int64_t count_vision(const ModelShape& s) {
  const VisionShape& v = s.vision;
  if (v.layers == 0) return 0;
  const std::int64_t block = 2 * v.hidden + 3 * v.qkv * v.hidden + v.hidden * v.qkv + 2 * v.mlp * v.hidden;
  const std::int64_t tower =
      v.hidden * 3 * v.patch * v.patch + v.table * v.table * v.hidden + v.layers * block + v.hidden;
  const std::int64_t merged = v.merge * v.hidden;
  return tower + merged * merged + s.hidden * merged + s.hidden;
}

std::int64_t indexer_one(const ModelShape& s) {
  const IndexerConfig& i = s.indexer;
  const std::int64_t query_input = s.attention.q_rank > 0 ? s.attention.q_rank : s.hidden;
  return i.heads * i.head_dim * query_input + i.head_dim * s.hidden + i.heads * s.hidden + 2 * i.head_dim;
}

}  // namespace

std::int64_t ModelShape::indexer_layers() const {
  if (indexer.top_k == 0) return 0;
  if (attention.kind != AttentionKind::kShared || attention.ratios.empty()) return attention.layers;
  return ceil_div(attention.layers, static_cast<std::int64_t>(attention.ratios.size()));
}

std::int64_t ParameterCount::total() const {
  return routed + shared + latent + router + attention_heads + attention_shared + kda + indexer + dense + embedding +
         norms + vision;
}

ParameterCount count_parameters(const ModelShape& s) {
  ParameterCount out;
  count_attention(s, out);
  count_kda(s, out);
  count_moe(s, out);
  if (s.indexer.top_k > 0) out.indexer = indexer_one(s) * s.indexer_layers();
  out.dense = 3 * s.hidden * s.dense_width * s.dense_layers;
  out.embedding = 2 * s.vocab * s.hidden;
  const std::int64_t per_layer = s.attn_res_block > 0 ? 6 : 2;
  out.norms = per_layer * s.hidden * s.layers + (s.attn_res_block > 0 ? 3 : 1) * s.hidden;
  out.vision = count_vision(s);
  if (s.mtp_layers > 0 && s.layers > 0) {
    const std::int64_t attention = (out.attention_heads + out.attention_shared) / s.attention.layers;
    const std::int64_t moe = out.expert * s.moe.experts + 3 * s.hidden * s.moe.shared_width;
    out.mtp = s.mtp_layers * (attention + moe + 2 * s.hidden * s.hidden);
  }
  return out;
}

std::int64_t active_parameters(const ModelShape& s) {
  const ParameterCount p = count_parameters(s);
  return p.total() - p.vision - p.routed - p.embedding / 2 - p.norms + p.expert * s.moe.top_k * s.moe_layers();
}

Result<WeightFormat> find_format(std::string_view name) {
  for (const auto& format : kFormats) {
    if (format.name == name) return format;
  }
  return invalid_argument("weight format '{}' is not known; known are {}", name, fmt::join(format_names(), ", "));
}

std::vector<std::string_view> format_names() {
  std::vector<std::string_view> names;
  for (const auto& format : kFormats) names.push_back(format.name);
  return names;
}

double expert_bytes(const ModelShape& s, const WeightFormat& format) {
  const auto elements = static_cast<double>(3 * expert_input(s) * s.moe.expert_width);
  double scales = 0;
  if (format.group > 0) scales = elements / static_cast<double>(format.group);
  if (format.group == 0) scales = static_cast<double>(2 * s.moe.expert_width + expert_input(s));
  return elements * format.expert_bits / 8 + scales * static_cast<double>(format.scale_bytes);
}

std::int64_t checkpoint_bytes(const ModelShape& s, const WeightFormat& format) {
  const ParameterCount p = count_parameters(s);
  const std::int64_t experts = s.moe.experts * s.moe_layers();
  const auto routed = static_cast<std::int64_t>(std::llround(expert_bytes(s, format))) * experts;
  if (format.released_trunk) return routed + 2 * (p.trunk() + p.padding) + 2 * p.f32_elements;
  const std::int64_t wide = p.embedding + p.vision + p.norms + p.router + p.latent;
  return routed + 2 * wide + static_cast<std::int64_t>(format.trunk_bytes * static_cast<double>(p.trunk() - wide));
}

std::int64_t nominal_int4_bytes(const ModelShape& s) {
  return count_parameters(s).total() / 2;
}

double cache_bytes_per_token(const ModelShape& s, double element_bytes) {
  const AttentionShape& a = s.attention;
  const auto layers = static_cast<double>(a.layers);
  switch (a.kind) {
    case AttentionKind::kMla:
      return static_cast<double>(a.kv_rank + a.rope) * element_bytes * layers;
    case AttentionKind::kGqa:
      return 2.0 * static_cast<double>(a.kv_heads * a.head_dim) * element_bytes * layers;
    case AttentionKind::kShared: {
      double kept = 0;
      for (const auto ratio : a.ratios) kept += 1.0 / static_cast<double>(ratio);
      return static_cast<double>(a.head_dim) * element_bytes * layers * kept /
             static_cast<double>(std::max<std::size_t>(a.ratios.size(), 1));
    }
  }
  return 0;
}

double index_bytes_per_token(const ModelShape& s, double element_bytes) {
  double keys = 1;
  if (s.attention.kind == AttentionKind::kShared && !s.attention.ratios.empty()) {
    keys = 1.0 / static_cast<double>(s.attention.ratios.front());
  }
  return static_cast<double>(s.indexer_layers() * s.indexer.head_dim) * element_bytes * keys;
}

std::int64_t state_bytes_per_sequence(const ModelShape& s, std::int64_t state_element_bytes) {
  if (s.kda_layers == 0) return 0;
  const std::int64_t recurrent = s.kda.heads * s.kda.head_dim * s.kda.head_dim * state_element_bytes;
  const std::int64_t conv = (s.kda.conv_kernel - 1) * 3 * s.kda.width() * 2;
  return (recurrent + conv) * s.kda_layers;
}

HybridPages hybrid_pages(const ModelShape& s, std::int64_t tp, std::int64_t draft_layers, std::int64_t drafts) {
  HybridPages out;
  if (s.kda_layers == 0 || s.attention.layers == 0) return out;
  const std::int64_t width = ceil_div(s.kda.width(), tp);
  const std::int64_t recurrent = ceil_div(s.kda.heads, tp) * s.kda.head_dim * s.kda.head_dim * 4;
  const std::int64_t conv = (s.kda.conv_kernel - 1 + drafts) * 3 * width * 2;
  const auto row =
      static_cast<std::int64_t>(static_cast<double>(s.attention.kv_rank + s.attention.rope) * kLatentElementBytes);
  out.block_tokens = ceil_div(ceil_div(recurrent + conv, row), kPageQuantum) * kPageQuantum;
  out.page_bytes = out.block_tokens * row;
  const std::int64_t length = s.attention.layers + draft_layers;
  const std::int64_t groups = ceil_div(s.kda_layers, s.attention.layers);
  out.padded_layers = groups * length;
  out.slot_bytes = out.padded_layers * out.page_bytes;
  return out;
}

double select_limit(const ModelShape& s) {
  if (s.indexer.top_k == 0) return std::numeric_limits<double>::infinity();
  std::int64_t ratio = 1;
  if (s.attention.kind == AttentionKind::kShared && !s.attention.ratios.empty()) ratio = s.attention.ratios.front();
  return static_cast<double>(s.indexer.top_k * ratio);
}

AttentionReach attention_reach(const ModelShape& s, double queries, double sum_context, double sum_selected) {
  AttentionReach out;
  const AttentionShape& a = s.attention;
  const bool sparse = s.indexer.top_k > 0;
  if (a.kind != AttentionKind::kShared || a.ratios.empty()) {
    const auto layers = static_cast<double>(a.layers);
    out.pairs = layers * (sparse ? sum_selected : sum_context);
    out.gathered = sparse ? out.pairs : 0;
    out.scored = static_cast<double>(s.indexer_layers()) * sum_context;
    out.rows_read = sparse ? 0 : layers * sum_context;
    return out;
  }
  const double each = static_cast<double>(a.layers) / static_cast<double>(a.ratios.size());
  const double window = std::min(sum_context, queries * static_cast<double>(a.window));
  for (std::size_t i = 0; i < a.ratios.size(); ++i) {
    const auto ratio = static_cast<double>(a.ratios[i]);
    if (i == 0 && sparse) {
      out.pairs += each * (window + sum_selected / ratio);
      out.gathered += each * sum_selected / ratio;
      out.rows_read += each * window;
      out.scored += static_cast<double>(s.indexer_layers()) * sum_context / ratio;
    } else {
      out.pairs += each * (window + sum_context / ratio);
      out.rows_read += each * (window + sum_context / ratio);
    }
  }
  return out;
}

AttentionReach attention_reach(const ModelShape& s, double context) {
  return attention_reach(s, 1, context, std::min(context, select_limit(s)));
}

TokenWork token_work(const ModelShape& s, double context) {
  TokenWork out;
  const AttentionReach reach = attention_reach(s, context);
  const AttentionShape& a = s.attention;
  out.matrix_flops = 2.0 * static_cast<double>(active_parameters(s));
  const auto heads = static_cast<double>(a.heads);
  const double width =
      a.kind == AttentionKind::kMla ? static_cast<double>(2 * a.kv_rank + a.rope) : static_cast<double>(2 * a.head_dim);
  out.attention_flops = 2.0 * reach.pairs * heads * width;
  out.index_flops = 2.0 * reach.scored * static_cast<double>(s.indexer.heads * s.indexer.head_dim);
  // Per head and element of the state: decay, read, write, query: about 7 operations (model.md 2.5).
  out.recurrence_flops =
      7.0 * static_cast<double>(s.kda_layers) * static_cast<double>(s.kda.heads * s.kda.head_dim * s.kda.head_dim);
  const double chosen = static_cast<double>(s.moe.top_k * s.moe_layers()) * static_cast<double>(expert_input(s));
  out.expert_dispatch_bytes = chosen;
  out.expert_combine_bytes = 2 * chosen;
  return out;
}

}  // namespace perigee::planner
