// Gated multi-head latent attention without positions (spec section 3), always in the absorbed form over latent rows,
// dense or restricted to the keys that the indexer selects (spec section 4).
#pragma once

#include "base/buffer.h"
#include "checkpoint/weights.h"
#include "model/dsa.h"
#include "model/step.h"

namespace perigee {

class MlaLayer {
 public:
  // x [rows, hidden] is the normed input; out [rows, hidden]. Appends latent rows and index keys to the pages.
  void forward(StepContext& step, std::int64_t layer, const MlaWeights& weights, const float* x, float* out);

 private:
  void project(StepContext& step, const MlaWeights& weights, const float* x);
  void append_keys(StepContext& step, std::int64_t layer, const MlaWeights& weights);
  void absorb(StepContext& step, const MlaWeights& weights);
  void attend(StepContext& step, std::int64_t layer);
  void attend_for_prefill(StepContext& step, std::int64_t layer);
  void attend_for_decode(StepContext& step, std::int64_t layer);
  MlaQuery query_of(const StepContext& step, std::int64_t layer, std::int64_t row) const;

  Indexer indexer_;
  Buffer<float> q_latent_;  // [rows, q_lora_rank], normed
  Buffer<float> q_;         // [rows, heads * (nope + rope)]
  Buffer<float> kv_;        // [rows, kv + rope]
  Buffer<float> gate_;      // [rows, heads * v]
  Buffer<float> absorbed_;  // [rows, heads, kv + rope]
  Buffer<float> attended_;  // [rows, heads, kv]
  Buffer<float> o_;         // [rows, heads * v]
  Buffer<float> partials_;
  std::vector<LinearJob> jobs_;
  std::vector<RowTile> tiles_;
  std::vector<RowPiece> pieces_;  // decode: the attention segments of all rows
};

}  // namespace perigee
