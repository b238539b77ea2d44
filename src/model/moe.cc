#include "model/moe.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/checked.h"

namespace perigee {
namespace {

constexpr std::int64_t kMaxTopK = 64;
constexpr std::int64_t kGatherGrain = 4;      // rows of expert inputs a task
constexpr std::int64_t kCombineGrain = 1024;  // columns a task

// Group restriction (a no-op in the released models): a group scores the sum of its two largest biased scores; scores
// outside the best top_k_groups groups become -inf.
void restrict_groups(const MoeConfig& moe, float* biased) {
  const std::int64_t size = moe.experts / moe.groups;
  thread_local std::vector<std::pair<float, std::int64_t>> groups;
  groups.clear();
  for (std::int64_t g = 0; g < moe.groups; ++g) {
    float first = -std::numeric_limits<float>::infinity();
    float second = first;
    for (std::int64_t i = g * size; i < (g + 1) * size; ++i) {
      if (biased[i] > first) {
        second = first;
        first = biased[i];
      } else if (biased[i] > second) {
        second = biased[i];
      }
    }
    groups.emplace_back(size > 1 ? first + second : first, g);
  }
  std::sort(groups.begin(), groups.end(),
            [](const auto& a, const auto& b) { return a.first != b.first ? a.first > b.first : a.second < b.second; });
  for (std::size_t i = static_cast<std::size_t>(moe.top_k_groups); i < groups.size(); ++i) {
    std::fill_n(biased + groups[i].second * size, size, -std::numeric_limits<float>::infinity());
  }
}

}  // namespace

void activate(StepContext& step, float* gate, const float* up, std::int64_t rows, std::int64_t width) {
  const ModelConfig& config = step.config;
  parallel_elements(step.pool, rows * width, [&](std::int64_t begin, std::int64_t end) {
    float* g = gate + begin;
    const float* u = up + begin;
    const std::int64_t n = end - begin;
    if (config.activation == Activation::kSitu) {
      step.kernels.situ(g, u, n, static_cast<float>(config.situ_beta), static_cast<float>(config.situ_linear_beta), g,
                        step.rounding);
    } else {
      step.kernels.swiglu(g, u, n, g, step.rounding);
    }
  });
}

void DenseMlp::forward(StepContext& step, const MlpWeights& weights, const float* x, float* out) {
  const std::int64_t width = weights.gate.rows;
  float* gate = gate_.ensure(step.rows * width);
  float* up = up_.ensure(step.rows * width);
  const std::array inputs = {linear_job(step, weights.gate, x, gate), linear_job(step, weights.up, x, up)};
  run_linear(step, inputs);
  activate(step, gate, up, step.rows, width);
  const LinearJob output = linear_job(step, weights.down, gate, out);
  run_linear(step, {&output, 1});
}

void Routing::choose(const MoeConfig& moe, const float* bias, float* scores, std::int32_t* ids, float* weights) {
  thread_local std::vector<float> sigmoid;
  sigmoid.resize(static_cast<std::size_t>(moe.experts));
  for (std::int64_t e = 0; e < moe.experts; ++e) {
    const float s = 1.0F / (1.0F + std::exp(-scores[e]));
    sigmoid[static_cast<std::size_t>(e)] = s;
    scores[e] = s + bias[e];  // the bias steers the choice only; the weight is the plain score
  }
  if (moe.groups > 1 && moe.groups > moe.top_k_groups) restrict_groups(moe, scores);
  // Insertion into a short sorted list; an equal score stays behind the earlier (lower) id. A NaN is never greater than
  // anything, so it is chosen last; the guard on the logits reports it.
  std::int64_t filled = 0;
  for (std::int64_t e = 0; e < moe.experts; ++e) {
    std::int64_t at = filled;
    while (at > 0 && scores[e] > scores[ids[at - 1]]) --at;
    if (at >= moe.top_k) continue;
    if (filled < moe.top_k) ++filled;
    for (std::int64_t i = filled - 1; i > at; --i) ids[i] = ids[i - 1];
    ids[at] = static_cast<std::int32_t>(e);
  }
  float total = 0;
  for (std::int64_t i = 0; i < moe.top_k; ++i) {
    weights[i] = sigmoid[static_cast<std::size_t>(ids[i])];
    total += weights[i];
  }
  for (std::int64_t i = 0; i < moe.top_k; ++i) {
    if (moe.renormalize) weights[i] /= total + 1e-20F;
    weights[i] *= static_cast<float>(moe.scaling);
  }
}

void MoeLayer::route(StepContext& step, std::int64_t layer, const MoeWeights& weights) {
  const MoeConfig& moe = step.config.moe;
  float* logits = logits_.data();
  std::int32_t* ids = ids_.ensure(step.rows * moe.top_k);
  float* chosen = weights_.ensure(step.rows * moe.top_k);
  parallel_ranges(step.pool, step.rows, kRowGrain, [&](std::int64_t begin, std::int64_t end, int /*thread*/) {
    for (std::int64_t row = begin; row < end; ++row) {
      Routing::choose(moe, weights.router_bias.data(), logits + row * moe.experts, ids + row * moe.top_k,
                      chosen + row * moe.top_k);
    }
  });
  if (step.observer == nullptr) return;
  const auto k = static_cast<std::size_t>(moe.top_k);
  for (std::int64_t row = 0; row < step.rows; ++row) {
    step.observer->on_routing(layer, row, {logits + row * moe.experts, static_cast<std::size_t>(moe.experts)},
                              {ids + row * moe.top_k, k}, {chosen + row * moe.top_k, k});
  }
}

// Counting sort of all (row, choice) pairs by expert; rows stay ascending within one.
void MoeLayer::group_by_expert(StepContext& step) {
  const MoeConfig& moe = step.config.moe;
  const std::int64_t pairs = step.rows * moe.top_k;
  const std::int32_t* ids = ids_.data();
  expert_begin_.assign(static_cast<std::size_t>(moe.experts) + 1, 0);
  for (std::int64_t i = 0; i < pairs; ++i) ++expert_begin_[static_cast<std::size_t>(ids[i]) + 1];
  for (std::size_t e = 1; e < expert_begin_.size(); ++e) expert_begin_[e] += expert_begin_[e - 1];
  thread_local std::vector<std::int64_t> next;
  next.assign(expert_begin_.begin(), expert_begin_.end() - 1);
  grouped_row_.resize(static_cast<std::size_t>(pairs));
  std::int32_t* slot_of = slot_of_.ensure(pairs);
  for (std::int64_t i = 0; i < pairs; ++i) {
    const std::int64_t slot = next[static_cast<std::size_t>(ids[i])]++;
    slot_of[i] = static_cast<std::int32_t>(slot);
    grouped_row_[static_cast<std::size_t>(slot)] = static_cast<std::int32_t>(i / moe.top_k);
  }
}

void MoeLayer::run_experts(StepContext& step, const MoeWeights& weights, const float* expert_input,
                           std::int64_t width) {
  const MoeConfig& moe = step.config.moe;
  const std::int64_t pairs = step.rows * moe.top_k;
  float* gathered = gathered_.ensure(pairs * width);
  float* gate = gate_.ensure(pairs * moe.expert_width);
  float* up = up_.ensure(pairs * moe.expert_width);
  float* out = expert_out_.ensure(pairs * width);
  parallel_ranges(step.pool, pairs, kGatherGrain, [&](std::int64_t begin, std::int64_t end, int /*thread*/) {
    for (std::int64_t slot = begin; slot < end; ++slot) {
      std::copy_n(expert_input + grouped_row_[static_cast<std::size_t>(slot)] * width, width, gathered + slot * width);
    }
  });

  const auto add_expert_jobs = [&](const float* x, std::int64_t x_stride, float* y, std::int64_t y_stride,
                                   Matrix MlpWeights::* matrix) {
    for (std::int64_t e = 0; e < moe.experts; ++e) {
      const std::int64_t begin = expert_begin_[static_cast<std::size_t>(e)];
      const std::int64_t count = expert_begin_[static_cast<std::size_t>(e) + 1] - begin;
      if (count == 0) continue;
      jobs_.push_back({.weight = &(weights.experts[static_cast<std::size_t>(e)].*matrix),
                       .x = x + begin * x_stride,
                       .x_stride = x_stride,
                       .rows = count,
                       .y = y + begin * y_stride,
                       .y_stride = y_stride,
                       .rounding = step.rounding});
    }
  };
  // jobs_ holds the shared experts' already.
  add_expert_jobs(gathered, width, gate, moe.expert_width, &MlpWeights::gate);
  add_expert_jobs(gathered, width, up, moe.expert_width, &MlpWeights::up);
  run_linear(step, jobs_);
  activate(step, gate, up, pairs, moe.expert_width);
  jobs_.clear();
  add_expert_jobs(gate, moe.expert_width, out, width, &MlpWeights::down);
  run_linear(step, jobs_);
}

// Expert results are rounded already; fp32 sum in ascending expert id, one rounding (spec 6.3, design 5).
void MoeLayer::combine(StepContext& step, std::int64_t width, float* out) {
  const std::int64_t top_k = step.config.moe.top_k;
  const std::int64_t parts_of_row = ceil_div(width, kCombineGrain);
  step.pool.run(step.rows * parts_of_row, [&](std::int64_t task, int /*thread*/) {
    const std::int64_t row = task / parts_of_row;
    const std::int64_t begin = task % parts_of_row * kCombineGrain;
    const std::int64_t columns = std::min(kCombineGrain, width - begin);
    const std::int32_t* ids = ids_.data() + row * top_k;
    const auto k = static_cast<std::size_t>(top_k);
    std::array<std::int64_t, kMaxTopK> order{};
    for (std::size_t i = 0; i < k; ++i) order[i] = static_cast<std::int64_t>(i);
    std::sort(order.begin(), order.begin() + top_k, [ids](std::int64_t a, std::int64_t b) { return ids[a] < ids[b]; });
    std::array<const float*, kMaxTopK> parts{};
    std::array<float, kMaxTopK> scale{};
    for (std::size_t i = 0; i < k; ++i) {
      parts[i] = expert_out_.data() + slot_of_.data()[row * top_k + order[i]] * width + begin;
      scale[i] = weights_.data()[row * top_k + order[i]];
    }
    step.kernels.weighted_sum(std::span(parts).first(k), scale.data(), columns, out + row * width + begin,
                              step.rounding);
  });
}

void MoeLayer::forward(StepContext& step, std::int64_t layer, const MoeWeights& weights, const float* x, float* out) {
  const MoeConfig& moe = step.config.moe;
  const std::int64_t hidden = step.config.hidden;
  const bool latent = moe.latent > 0;
  const std::int64_t width = latent ? moe.latent : hidden;
  const bool shared = !weights.shared.gate.empty();

  jobs_.clear();
  LinearJob router = linear_job(step, weights.router, x, logits_.ensure(step.rows * moe.experts));
  router.rounding = Rounding::kNone;  // an fp32 island: rounded logits change the choice (spec 6.2)
  jobs_.push_back(router);
  if (latent) jobs_.push_back(linear_job(step, weights.latent_down, x, latent_.ensure(step.rows * moe.latent)));
  if (shared) {
    jobs_.push_back(linear_job(step, weights.shared.gate, x, shared_gate_.ensure(step.rows * moe.shared_width)));
    jobs_.push_back(linear_job(step, weights.shared.up, x, shared_up_.ensure(step.rows * moe.shared_width)));
  }
  run_linear(step, jobs_);
  route(step, layer, weights);
  group_by_expert(step);

  jobs_.clear();
  if (shared) {
    activate(step, shared_gate_.data(), shared_up_.data(), step.rows, moe.shared_width);
    jobs_.push_back(linear_job(step, weights.shared.down, shared_gate_.data(), shared_out_.ensure(step.rows * hidden)));
  }
  run_experts(step, weights, latent ? latent_.data() : x, width);

  float* sum = latent ? sum_.ensure(step.rows * width) : out;
  combine(step, width, sum);
  if (step.observer != nullptr) step.observer->on_routed_sum(layer, sum);
  if (latent) {
    if (moe.latent_norm) {
      parallel_ranges(step.pool, step.rows, kRowGrain, [&](std::int64_t begin, std::int64_t end, int /*thread*/) {
        for (std::int64_t row = begin; row < end; ++row) {
          step.kernels.rms_norm(sum + row * width, weights.latent_norm.data(), width,
                                static_cast<float>(step.config.rms_eps), sum + row * width, step.norm_rounding);
        }
      });
    }
    const LinearJob up = linear_job(step, weights.latent_up, sum, out);
    run_linear(step, {&up, 1});
  }
  if (shared) {
    parallel_elements(step.pool, step.rows * hidden, [&](std::int64_t begin, std::int64_t end) {
      step.kernels.add(out + begin, shared_out_.data() + begin, end - begin, out + begin, step.rounding);
    });
  }
}

}  // namespace perigee
