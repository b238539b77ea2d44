#include "model/model.h"

#include <algorithm>
#include <cstring>

#include "base/numeric.h"
#include "model/linear.h"

namespace perigee {
namespace {

// Bump when any path computes different bits from the same inputs.
constexpr int kNumericsVersion = 6;

}  // namespace

void StepContext::set_segments(std::span<const Segment> batch) {
  segments = batch;
  rows = 0;
  segment_row.clear();
  row_segment.clear();
  row_position.clear();
  for (std::size_t s = 0; s < batch.size(); ++s) {
    segment_row.push_back(rows);
    for (std::size_t t = 0; t < batch[s].tokens.size(); ++t) {
      row_segment.push_back(static_cast<std::int32_t>(s));
      row_position.push_back(batch[s].sequence.position + static_cast<std::int64_t>(t));
    }
    rows += static_cast<std::int64_t>(batch[s].tokens.size());
  }
}

void row_tiles(const StepContext& step, std::int64_t tile, std::vector<RowTile>& tiles) {
  tiles.clear();
  for (std::size_t s = 0; s < step.segments.size(); ++s) {
    const auto tokens = static_cast<std::int64_t>(step.segments[s].tokens.size());
    for (std::int64_t t = 0; t < tokens; t += tile) {
      tiles.push_back({step.segment_row[s] + t, std::min(tile, tokens - t)});
    }
  }
}

Result<std::unique_ptr<Model>> Model::create(const Checkpoint& checkpoint, const Kernels& kernels, ThreadPool& pool,
                                             Precision precision) {
  const ModelConfig& config = checkpoint.config();
  if (config.kda.conv_kernel != 4) {
    return make_error(StatusCode::kUnimplemented, "linear_attn_config.short_conv_kernel_size: expected 4, found {}",
                      config.kda.conv_kernel);
  }
  if (config.moe.top_k > 64) {
    return make_error(StatusCode::kUnimplemented, "num_experts_per_token: expected at most 64, found {}",
                      config.moe.top_k);
  }
  if (config.attn_res_block > 0 && static_cast<std::int64_t>(config.layers.size()) / config.attn_res_block > 62) {
    return make_error(StatusCode::kUnimplemented,
                      "attn_res_block_size: expected at most 62 blocks, found {} layers of {}", config.layers.size(),
                      config.attn_res_block);
  }
  return std::unique_ptr<Model>(new Model(checkpoint, kernels, pool, precision));
}

Model::Model(const Checkpoint& checkpoint, const Kernels& kernels, ThreadPool& pool, Precision precision)
    : config_(checkpoint.config()),
      weights_(checkpoint.weights()),
      kernels_(kernels),
      pool_(pool),
      precision_(precision),
      weights_as_(checkpoint.weights_as()),
      layout_(checkpoint.config(), precision == Precision::kBf16 ? KeyFormat::kBf16 : KeyFormat::kF32),
      step_(make_step({}, nullptr)) {}

std::string Model::numerics_id() const {
  return fmt::format("perigee-{}/{}/{}{}", kNumericsVersion, kernels_.isa,
                     precision_ == Precision::kBf16 ? "bf16" : "f32", weights_as_ == WeightsAs::kInt8 ? "/int8" : "");
}

StepContext Model::make_step(std::span<const Segment> segments, ForwardObserver* observer) const {
  const bool rounds = precision_ == Precision::kBf16;
  StepContext step{.config = config_,
                   .kernels = kernels_,
                   .pool = pool_,
                   .layout = layout_,
                   .rounding = rounds ? Rounding::kBf16 : Rounding::kNone,
                   .norm_rounding = rounds ? NormRounding::kTwice : NormRounding::kNone,
                   .observer = observer,
                   .segments = {},
                   .segment_row = {},
                   .row_segment = {},
                   .row_position = {}};
  step.set_segments(segments);
  return step;
}

void Model::embed(StepContext& step, float* rows) const {
  const Matrix& table = weights_.embedding;
  parallel_ranges(step.pool, step.rows, kRowGrain, [&](std::int64_t begin, std::int64_t end, int /*thread*/) {
    for (std::int64_t row = begin; row < end; ++row) {
      const auto segment = static_cast<std::size_t>(step.row_segment[static_cast<std::size_t>(row)]);
      const auto at = static_cast<std::size_t>(row - step.segment_row[segment]);
      const std::byte* source = table.data + step.segments[segment].tokens[at] * table.row_bytes;
      float* out = rows + row * config_.hidden;
      if (table.format == WeightFormat::kF32) {
        std::memcpy(out, source, static_cast<std::size_t>(config_.hidden) * 4);
        continue;
      }
      const auto* values = reinterpret_cast<const bf16*>(source);
      for (std::int64_t i = 0; i < config_.hidden; ++i) out[i] = to_float(values[i]);
    }
  });
}

void Model::norm_rows(StepContext& step, const float* x, const FloatVector& weight, std::int64_t rows, float* y) const {
  parallel_ranges(step.pool, rows, kRowGrain, [&](std::int64_t begin, std::int64_t end, int /*thread*/) {
    for (std::int64_t row = begin; row < end; ++row) {
      step.kernels.rms_norm(x + row * config_.hidden, weight.data(), config_.hidden,
                            static_cast<float>(config_.rms_eps), y + row * config_.hidden, step.norm_rounding);
    }
  });
}

void Model::attention_half(StepContext& step, std::int64_t layer, Residual& residual) {
  const LayerWeights& weights = weights_.layers[static_cast<std::size_t>(layer)];
  float* normed = normed_.ensure(step.rows * config_.hidden);
  float* out = half_.ensure(step.rows * config_.hidden);
  norm_rows(step, residual.read(step, weights.attention_mix, true), weights.input_norm, step.rows, normed);
  residual.begin_layer(step, layer);
  if (config_.layers[static_cast<std::size_t>(layer)].mixer == Mixer::kKda) {
    kda_.forward(step, layer, weights.kda, normed, out);
  } else {
    mla_.forward(step, layer, weights.mla, normed, out);
  }
  if (step.observer != nullptr) step.observer->on_attention(layer, out);
  residual.add(step, out);
}

void Model::mlp_half(StepContext& step, std::int64_t layer, Residual& residual) {
  const LayerWeights& weights = weights_.layers[static_cast<std::size_t>(layer)];
  float* normed = normed_.ensure(step.rows * config_.hidden);
  float* out = half_.ensure(step.rows * config_.hidden);
  norm_rows(step, residual.read(step, weights.mlp_mix, false), weights.post_attention_norm, step.rows, normed);
  if (config_.layers[static_cast<std::size_t>(layer)].feed_forward == FeedForward::kDense) {
    dense_.forward(step, weights.dense, normed, out);
  } else {
    moe_.forward(step, layer, weights.moe, normed, out);
  }
  residual.add(step, out);
}

StepOutput Model::forward(std::span<const Segment> segments, ForwardObserver* observer) {
  StepContext& step = step_;
  step.observer = observer;
  step.set_segments(segments);
  const std::int64_t hidden = config_.hidden;
  residual_.start(config_, step.rows);
  embed(step, residual_.prefix());
  for (std::int64_t layer = 0; layer < static_cast<std::int64_t>(config_.layers.size()); ++layer) {
    attention_half(step, layer, residual_);
    mlp_half(step, layer, residual_);
    if (observer != nullptr) observer->on_layer(layer, residual_.prefix());
  }

  const float* last = residual_.read(step, weights_.output_mix, false);
  std::int64_t wanted = 0;
  std::int64_t with_logits = 0;
  float* rows = normed_.ensure(step.rows * hidden);  // gathered inputs of the final norm
  float* logit_rows = logit_rows_.ensure(step.rows * hidden);
  float* final_rows = final_rows_.ensure(step.rows * hidden);
  const auto rows_of = [&](std::size_t s) {
    return segments[s].logits == WantLogits::kAll ? static_cast<std::int64_t>(segments[s].tokens.size()) : 1;
  };
  for (std::size_t s = 0; s < segments.size(); ++s) {
    const std::int64_t count = rows_of(s);
    const std::int64_t end = step.segment_row[s] + static_cast<std::int64_t>(segments[s].tokens.size());
    std::copy_n(last + (end - count) * hidden, count * hidden, rows + wanted * hidden);
    wanted += count;
  }
  norm_rows(step, rows, weights_.final_norm, wanted, final_rows);
  std::int64_t from = 0;
  for (std::size_t s = 0; s < segments.size(); ++s) {
    const std::int64_t count = rows_of(s);
    if (segments[s].logits != WantLogits::kNone) {
      std::copy_n(final_rows + from * hidden, count * hidden, logit_rows + with_logits * hidden);
      with_logits += count;
    }
    from += count;
  }
  StepOutput output;
  output.final_rows = {final_rows, static_cast<std::size_t>(wanted * hidden)};
  if (with_logits > 0) output.logits = logits_of({logit_rows, static_cast<std::size_t>(with_logits * hidden)});
  return output;
}

std::span<const float> Model::logits_of(std::span<const float> final_rows) {
  StepContext step = make_step({}, nullptr);
  step.rows = static_cast<std::int64_t>(final_rows.size()) / config_.hidden;
  float* logits = logits_.ensure(step.rows * config_.vocab);
  const LinearJob head = linear_job(step, weights_.lm_head, final_rows.data(), logits);
  run_linear(step, {&head, 1});
  return {logits, static_cast<std::size_t>(step.rows * config_.vocab)};
}

}  // namespace perigee
