// Kimi Delta Attention (spec section 2): short convolution, decay gate, delta-rule recurrence, gated output norm.
#pragma once

#include "base/buffer.h"
#include "checkpoint/weights.h"
#include "model/step.h"

namespace perigee {

class KdaLayer {
 public:
  // x [rows, hidden] is the normed input; out [rows, hidden]. Advances the recurrent state of every segment.
  void forward(StepContext& step, std::int64_t layer, const KdaWeights& weights, const float* x, float* out);

 private:
  void head(StepContext& step, std::int64_t layer, const KdaWeights& weights, std::int64_t segment, std::int64_t head);

  Buffer<float> projected_;             // [rows, 3 * width]: q, k, v before the convolution
  Buffer<float> q_, k_, v_;             // [rows, width] after it
  Buffer<float> decay_low_, gate_low_;  // [rows, head_dim]
  Buffer<float> decay_;                 // [rows, width]: pre-activation, then log decay
  Buffer<float> gate_;                  // [rows, width]
  Buffer<float> beta_;                  // [rows, heads]
  Buffer<float> o_;                     // [rows, width]
};

}  // namespace perigee
