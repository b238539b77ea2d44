#include "model/residual.h"

#include <algorithm>
#include <array>
#include <utility>

namespace perigee {
namespace {

constexpr std::size_t kMaxSources = 64;  // checked at load: layers / block + 1

}  // namespace

void Residual::start(const ModelConfig& config, std::int64_t rows) {
  rows_ = rows;
  hidden_ = config.hidden;
  blocks_ = 0;
  prefix_empty_ = false;
  prefix_.ensure(rows * hidden_);
  if (config.attn_res_block > 0) {
    mixed_.ensure(rows * hidden_);
    const auto layers = static_cast<std::int64_t>(config.layers.size());
    stored_.resize(static_cast<std::size_t>((layers + config.attn_res_block - 1) / config.attn_res_block));
  }
}

void Residual::push(const float* prefix) {
  float* block = stored_[static_cast<std::size_t>(blocks_++)].ensure(rows_ * hidden_);
  std::copy_n(prefix, rows_ * hidden_, block);
}

const float* Residual::read(StepContext& step, const AttnResWeights& weights, bool before_attention) {
  if (step.config.attn_res_block == 0 || (before_attention && blocks_ == 0)) return prefix_.data();
  float* mixed = mixed_.data();
  parallel_ranges(step.pool, rows_, kRowGrain, [&](std::int64_t begin, std::int64_t end, int /*thread*/) {
    std::array<const float*, kMaxSources> sources{};
    const auto count = static_cast<std::size_t>(blocks_) + 1;
    for (std::int64_t row = begin; row < end; ++row) {
      for (std::size_t b = 0; b + 1 < count; ++b) sources[b] = stored_[b].data() + row * hidden_;
      sources[count - 1] = prefix_.data() + row * hidden_;  // the live prefix is always last
      step.kernels.attn_res_mix(std::span(sources).first(count), weights.mix.data(), hidden_,
                                static_cast<float>(step.config.rms_eps), mixed + row * hidden_, step.rounding);
    }
  });
  return mixed;
}

void Residual::begin_layer(const StepContext& step, std::int64_t layer) {
  if (step.config.attn_res_block == 0 || layer % step.config.attn_res_block != 0) return;
  // The raw prefix, not what the mix made of it. Its memory changes hands; the next add() fills the other.
  std::swap(stored_[static_cast<std::size_t>(blocks_++)], prefix_);
  prefix_.ensure(rows_ * hidden_);
  prefix_empty_ = true;
}

void Residual::add(StepContext& step, const float* values) {
  float* prefix = prefix_.data();
  parallel_elements(step.pool, rows_ * hidden_, [&](std::int64_t begin, std::int64_t end) {
    if (prefix_empty_) {
      std::copy(values + begin, values + end, prefix + begin);
    } else {
      step.kernels.add(prefix + begin, values + begin, end - begin, prefix + begin, step.rounding);
    }
  });
  prefix_empty_ = false;
}

}  // namespace perigee
