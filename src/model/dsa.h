// The learned sparse-attention indexer of K3.1 (spec section 4): scores all causal keys with small index heads and
// keeps the top_k of the total order (score descending, position ascending).
#pragma once

#include "base/buffer.h"
#include "checkpoint/weights.h"
#include "kernels/top_k.h"
#include "model/linear.h"
#include "model/step.h"

namespace perigee {

class Indexer {
 public:
  // Products that read the layer's input x, to share a parallel loop with the others; adds up to three jobs.
  void add_input_jobs(StepContext& step, const IndexerWeights& weights, const float* x, std::vector<LinearJob>& jobs);
  // Products that read the normed query latent.
  void add_latent_jobs(StepContext& step, const IndexerWeights& weights, const float* q_latent,
                       std::vector<LinearJob>& jobs);
  // Norms the key of one row and stores it in its page. Thread-safe over rows.
  void append_key(StepContext& step, std::int64_t layer, const IndexerWeights& weights, std::int64_t row);
  // Scores and selects for every row whose keys exceed top_k.
  void select(StepContext& step, std::int64_t layer);
  // The ascending selection of a row, or null when all causal keys are attended.
  const std::int32_t* selected(const StepContext& step, std::int64_t row) const;

 private:
  void select_for_prefill(StepContext& step, std::int64_t layer, std::int64_t room);
  void select_for_decode(StepContext& step, std::int64_t layer, std::int64_t room);
  void score(StepContext& step, std::int64_t layer, const RowTile& tile, std::int64_t begin, std::int64_t end,
             float* scores, std::int64_t scores_stride) const;

  Buffer<float> q_;        // [rows, heads * head_dim]
  Buffer<float> k_;        // [rows, head_dim]
  Buffer<float> weights_;  // [rows, heads], fp32
  Buffer<float> scores_;
  Buffer<std::int32_t> selected_;  // [rows, top_k]
  std::vector<RowTile> tiles_;
  // Decode: the rows that select, and the parts of their keys; RowPiece::row is an index of sparse_.
  struct SparseRow {
    std::int64_t row = 0;
    PiecewiseTopK top;
  };
  std::vector<SparseRow> sparse_;
  std::vector<RowPiece> pieces_;
};

}  // namespace perigee
