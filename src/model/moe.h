// Feed-forward layers: dense gated MLP, and mixture of experts with or without a latent (spec section 6, 10).
#pragma once

#include <cstdint>
#include <vector>

#include "base/buffer.h"
#include "checkpoint/weights.h"
#include "model/linear.h"
#include "model/step.h"

namespace perigee {

// y = SiTU(gate, up) or SwiGLU(gate, up) of `rows` rows of `width` values, in place in `gate`.
void activate(StepContext& step, float* gate, const float* up, std::int64_t rows, std::int64_t width);

class DenseMlp {
 public:
  void forward(StepContext& step, const MlpWeights& weights, const float* x, float* out);

 private:
  Buffer<float> gate_, up_;
};

// The choice of experts for one token (spec 6.2). Deterministic: descending biased score, lower id first.
struct Routing {
  // `ids` and `weights` hold top_k entries. `scores` [experts] holds the logits on entry and the biased scores on exit.
  static void choose(const MoeConfig& moe, const float* bias, float* scores, std::int32_t* ids, float* weights);
};

class MoeLayer {
 public:
  void forward(StepContext& step, std::int64_t layer, const MoeWeights& weights, const float* x, float* out);

 private:
  void route(StepContext& step, std::int64_t layer, const MoeWeights& weights);
  void group_by_expert(StepContext& step);
  void run_experts(StepContext& step, const MoeWeights& weights, const float* expert_input, std::int64_t width);
  void combine(StepContext& step, std::int64_t width, float* out);

  Buffer<float> logits_;      // [rows, experts]
  Buffer<std::int32_t> ids_;  // [rows, top_k]
  Buffer<float> weights_;     // [rows, top_k]
  Buffer<float> latent_;      // [rows, latent]
  Buffer<float> gathered_;    // [rows * top_k, latent or hidden], grouped by expert
  Buffer<float> gate_, up_;   // [rows * top_k, expert_width]
  Buffer<float> expert_out_;  // [rows * top_k, latent or hidden]
  Buffer<float> sum_;         // [rows, latent or hidden]
  Buffer<float> shared_gate_, shared_up_, shared_out_;
  Buffer<std::int32_t> slot_of_;  // [rows, top_k]: where a chosen expert's result lies in the grouped order
  std::vector<std::int64_t> expert_begin_;
  std::vector<std::int32_t> grouped_row_;
  std::vector<LinearJob> jobs_;
};

}  // namespace perigee
