// Keeps what a forward pass shows its observer, by layer, so that it can be compared with stored tensors.
#pragma once

#include <algorithm>
#include <limits>
#include <map>
#include <vector>

#include "model/step.h"

namespace perigee {

struct CapturedSelection {
  std::vector<float> scores;  // of all causal keys
  std::vector<std::int32_t> selected;
  double margin = std::numeric_limits<double>::infinity();  // k-th minus (k+1)-th score
};

struct CapturedRouting {
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
  double margin = 0;
};

class GoldenCapture : public ForwardObserver {
 public:
  GoldenCapture(std::int64_t rows, const ModelConfig& config) : rows_(rows), config_(config) {}

  void on_attention(std::int64_t layer, const float* out) override { copy(attention[layer], out, config_.hidden); }
  void on_layer(std::int64_t layer, const float* prefix) override { copy(hidden[layer], prefix, config_.hidden); }
  void on_routed_sum(std::int64_t layer, const float* sum) override {
    copy(routed_sum[layer], sum, config_.moe.latent > 0 ? config_.moe.latent : config_.hidden);
  }

  void on_selection(std::int64_t layer, std::int64_t /*row*/, std::span<const float> scores,
                    std::span<const std::int32_t> selected) override {
    CapturedSelection capture;
    capture.scores.assign(scores.begin(), scores.end());
    capture.selected.assign(selected.begin(), selected.end());
    capture.margin = margin_of(scores, config_.indexer.top_k);
    selections[layer].push_back(std::move(capture));
  }

  void on_routing(std::int64_t layer, std::int64_t /*row*/, std::span<const float> biased,
                  std::span<const std::int32_t> ids, std::span<const float> weights) override {
    CapturedRouting capture;
    capture.ids.assign(ids.begin(), ids.end());
    capture.weights.assign(weights.begin(), weights.end());
    capture.margin = margin_of(biased, config_.moe.top_k);
    routings[layer].push_back(std::move(capture));
  }

  std::map<std::int64_t, std::vector<float>> attention, hidden, routed_sum;
  std::map<std::int64_t, std::vector<CapturedSelection>> selections;
  std::map<std::int64_t, std::vector<CapturedRouting>> routings;

 private:
  static double margin_of(std::span<const float> scores, std::int64_t k) {
    if (static_cast<std::int64_t>(scores.size()) <= k) return std::numeric_limits<double>::infinity();
    std::vector<float> sorted(scores.begin(), scores.end());
    std::nth_element(sorted.begin(), sorted.begin() + k, sorted.end(), std::greater<>());
    const float next = sorted[static_cast<std::size_t>(k)];
    const float kth = *std::min_element(sorted.begin(), sorted.begin() + k);
    return static_cast<double>(kth) - static_cast<double>(next);
  }

  void copy(std::vector<float>& into, const float* values, std::int64_t width) const {
    into.assign(values, values + rows_ * width);
  }

  std::int64_t rows_;
  const ModelConfig& config_;
};

}  // namespace perigee
