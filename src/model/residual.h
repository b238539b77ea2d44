// The residual stream of a step: a plain running sum, or Attention Residuals (spec section 5), where every half layer
// reads a softmax mix over the stored block prefixes and the live one.
#pragma once

#include <cstdint>
#include <vector>

#include "base/buffer.h"
#include "checkpoint/weights.h"
#include "model/step.h"

namespace perigee {

class Residual {
 public:
  // An empty stream for `rows` rows. The caller fills prefix() with the embeddings.
  void start(const ModelConfig& config, std::int64_t rows);

  float* prefix() { return prefix_.data(); }  // [rows, hidden]
  // Stores a block row set, as a push of layer 0, block, 2 * block ... does.
  void push(const float* prefix);

  // Input of a half layer: the mix into mixed(), or the prefix itself when there is nothing to mix.
  const float* read(StepContext& step, const AttnResWeights& weights, bool before_attention);
  // At a block boundary the raw prefix becomes a block, and the next add() starts a new prefix.
  void begin_layer(const StepContext& step, std::int64_t layer);
  void add(StepContext& step, const float* values);

 private:
  std::int64_t rows_ = 0;
  std::int64_t hidden_ = 0;
  std::int64_t blocks_ = 0;
  bool prefix_empty_ = false;
  Buffer<float> prefix_;
  Buffer<float> mixed_;
  std::vector<Buffer<float>> stored_;
};

}  // namespace perigee
