// The forward pass: one step takes a batch of segments through all layers (spec 1.4).
//
// Same bits (design section 5): the result of a row depends on its sequence alone, not on how the sequence was cut into
// steps, on the other segments, or on the number of threads.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "checkpoint/weights.h"
#include "kernels/kernels.h"
#include "model/kda.h"
#include "model/mla.h"
#include "model/moe.h"
#include "model/residual.h"
#include "model/state_layout.h"
#include "model/step.h"

namespace perigee {

// f32: nothing is rounded between modules (the reference that fp64 goldens are compared with); caches hold floats.
// bf16: the rounding points of spec 0.3 (the product); caches hold bf16.
enum class Precision : std::uint8_t { kF32, kBf16 };

struct StepOutput {
  // One row a segment for kLast and kNone, all rows of the segment for kAll; in order. [n, hidden], after the last
  // norm: what a snapshot keeps so that a repeated prompt needs the head only.
  std::span<const float> final_rows;
  // Rows of segments that want logits, in order. [n, vocab]
  std::span<const float> logits;
};

// Not thread-safe: one step at a time. Checkpoint, kernels and pool outlive the model.
class Model {
 public:
  static Result<std::unique_ptr<Model>> create(const Checkpoint& checkpoint, const Kernels& kernels, ThreadPool& pool,
                                               Precision precision);

  const ModelConfig& config() const { return config_; }
  const StateLayout& state_layout() const { return layout_; }
  Precision precision() const { return precision_; }
  // Names the arithmetic: everything that can change a bit of a state. Part of every cache key.
  std::string numerics_id() const;

  // Runs the segments and advances their states by their tokens; views stay valid until the next call.
  StepOutput forward(std::span<const Segment> segments, ForwardObserver* observer = nullptr);
  // Logits [n, vocab] of final rows [n, hidden] (a restored snapshot that ends a prompt).
  std::span<const float> logits_of(std::span<const float> final_rows);

  // Half layers from given inputs, for tests: the blocks pushed so far and the prefix are in `residual`.
  void attention_half(StepContext& step, std::int64_t layer, Residual& residual);
  void mlp_half(StepContext& step, std::int64_t layer, Residual& residual);
  StepContext make_step(std::span<const Segment> segments, ForwardObserver* observer) const;

 private:
  Model(const Checkpoint& checkpoint, const Kernels& kernels, ThreadPool& pool, Precision precision);

  void embed(StepContext& step, float* rows) const;
  void norm_rows(StepContext& step, const float* x, const FloatVector& weight, std::int64_t rows, float* y) const;

  const ModelConfig& config_;
  const ModelWeights& weights_;
  const Kernels& kernels_;
  ThreadPool& pool_;
  Precision precision_;
  WeightsAs weights_as_;
  StateLayout layout_;

  StepContext step_;  // of forward(): its lists keep their memory from step to step
  Residual residual_;
  KdaLayer kda_;
  MlaLayer mla_;
  DenseMlp dense_;
  MoeLayer moe_;
  Buffer<float> normed_;
  Buffer<float> half_;  // output of a mixer or feed-forward
  Buffer<float> final_rows_;
  Buffer<float> logit_rows_;
  Buffer<float> logits_;
};

}  // namespace perigee
