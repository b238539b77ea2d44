#include "model/dsa.h"

#include <algorithm>
#include <cmath>

#include "base/checked.h"
#include "model/paged_rows.h"

namespace perigee {
namespace {

constexpr std::int64_t kIndexQueryTile = 4;   // queries that share the reads of their keys in prefill
constexpr std::int64_t kScoreGrowth = 65536;  // keys: the score buffer grows in such steps, not with every token
// Keys a task when few queries share many threads: eight tasks a thread, but not so few keys that preparing the query
// for each task (as much work as a dozen keys) is felt.
constexpr std::int64_t kLeastKeys = 1024;
constexpr std::int64_t kMostKeys = 4096;

std::int64_t causal_keys(const StepContext& step, std::int64_t row) {
  return step.row_position[static_cast<std::size_t>(row)] + 1;
}

}  // namespace

void Indexer::add_input_jobs(StepContext& step, const IndexerWeights& weights, const float* x,
                             std::vector<LinearJob>& jobs) {
  const IndexerConfig& config = step.config.indexer;
  jobs.push_back(linear_job(step, weights.k, x, k_.ensure(step.rows * config.head_dim)));
  LinearJob head_weights = linear_job(step, weights.weights, x, weights_.ensure(step.rows * config.heads));
  head_weights.rounding = Rounding::kNone;  // an fp32 island (spec 4.2)
  jobs.push_back(head_weights);
  float* q = q_.ensure(step.rows * config.heads * config.head_dim);
  if (weights.q.cols == step.config.hidden) jobs.push_back(linear_job(step, weights.q, x, q));
}

void Indexer::add_latent_jobs(StepContext& step, const IndexerWeights& weights, const float* q_latent,
                              std::vector<LinearJob>& jobs) {
  // The shape says what the indexer's queries are made of (spec 14.4).
  if (weights.q.cols != step.config.hidden) jobs.push_back(linear_job(step, weights.q, q_latent, q_.data()));
}

void Indexer::append_key(StepContext& step, std::int64_t layer, const IndexerWeights& weights, std::int64_t row) {
  const std::int64_t dim = step.config.indexer.head_dim;
  float* key = k_.data() + row * dim;
  step.kernels.layer_norm(key, weights.k_norm.data(),
                          weights.k_norm_bias.empty() ? nullptr : weights.k_norm_bias.data(), dim,
                          static_cast<float>(step.config.index_norm_eps), key, step.rounding);
  store_row(step.sequence_of(row), step.row_position[static_cast<std::size_t>(row)],
            step.layout.mla[static_cast<std::size_t>(layer)].index, step.layout.key_format, key, dim);
}

void Indexer::score(StepContext& step, std::int64_t layer, const RowTile& tile, std::int64_t begin, std::int64_t end,
                    float* scores, std::int64_t scores_stride) const {
  const IndexerConfig& config = step.config.indexer;
  const std::int64_t q_stride = config.heads * config.head_dim;
  const IndexQueries queries = {.count = tile.count,
                                .heads = config.heads,
                                .q = q_.data() + tile.begin * q_stride,
                                .q_stride = q_stride,
                                .w = weights_.data() + tile.begin * config.heads,
                                .w_stride = config.heads};
  const PagedRows keys = {.pages = step.sequence_of(tile.begin).pages,
                          .offset = step.layout.mla[static_cast<std::size_t>(layer)].index,
                          .row = config.head_dim,
                          .format = step.layout.key_format};
  step.kernels.index_scores(queries, keys, begin, end, scores, scores_stride);
}

void Indexer::select(StepContext& step, std::int64_t layer) {
  const IndexerConfig& config = step.config.indexer;
  std::int64_t longest = 0;
  std::int64_t sparse_rows = 0;
  for (std::int64_t row = 0; row < step.rows; ++row) {
    const std::int64_t keys = causal_keys(step, row);
    longest = std::max(longest, keys);
    if (keys > config.top_k) ++sparse_rows;
  }
  if (sparse_rows == 0 && step.observer == nullptr) return;
  const std::int64_t room = ceil_div(longest, kScoreGrowth) * kScoreGrowth;

  // The two constants of spec 4.2 go into the head weights, as in the released engines.
  const float constant =
      1.0F / std::sqrt(static_cast<float>(config.heads)) / std::sqrt(static_cast<float>(config.head_dim));
  for (std::int64_t i = 0; i < step.rows * config.heads; ++i) weights_.data()[i] *= constant;
  std::int32_t* selected = selected_.ensure(step.rows * config.top_k);
  if (step.observer != nullptr) {
    float* scores = scores_.ensure(room);
    for (std::int64_t row = 0; row < step.rows; ++row) {
      const std::int64_t keys = causal_keys(step, row);
      score(step, layer, {row, 1}, 0, keys, scores, keys);
      std::int32_t* positions = selected + row * config.top_k;
      const std::int64_t count = select_top_k(scores, keys, config.top_k, positions);
      step.observer->on_selection(layer, row, {scores, static_cast<std::size_t>(keys)},
                                  {positions, static_cast<std::size_t>(count)});
    }
    return;
  }

  if (sparse_rows >= 2 * step.pool.size()) {
    select_for_prefill(step, layer, room);
  } else {
    select_for_decode(step, layer, room);
  }
}

// A tile of queries a task, with its own score rows. Scores past a query's own position are not read.
void Indexer::select_for_prefill(StepContext& step, std::int64_t layer, std::int64_t room) {
  const std::int64_t top_k = step.config.indexer.top_k;
  std::int32_t* selected = selected_.data();
  row_tiles(step, kIndexQueryTile, tiles_);
  float* scores = scores_.ensure(kIndexQueryTile * room * step.pool.size());
  step.pool.run(static_cast<std::int64_t>(tiles_.size()), [&](std::int64_t index, int thread) {
    const RowTile& tile = tiles_[static_cast<std::size_t>(index)];
    const std::int64_t keys = causal_keys(step, tile.begin + tile.count - 1);
    if (keys <= top_k) return;
    float* mine = scores + kIndexQueryTile * room * thread;
    score(step, layer, tile, 0, keys, mine, room);
    for (std::int64_t i = 0; i < tile.count; ++i) {
      const std::int64_t row = tile.begin + i;
      if (causal_keys(step, row) <= top_k) continue;
      select_top_k(mine + i * room, causal_keys(step, row), top_k, selected + row * top_k);
    }
  });
}

// The keys of all queries, in pieces, spread over the threads, which also select among what they scored.
void Indexer::select_for_decode(StepContext& step, std::int64_t layer, std::int64_t room) {
  const std::int64_t top_k = step.config.indexer.top_k;
  std::int64_t count = 0;
  std::int64_t all_keys = 0;
  for (std::int64_t row = 0; row < step.rows; ++row) {
    if (causal_keys(step, row) <= top_k) continue;
    if (static_cast<std::size_t>(count) == sparse_.size()) sparse_.emplace_back();
    sparse_[static_cast<std::size_t>(count++)].row = row;
    all_keys += causal_keys(step, row);
  }
  const std::int64_t grain = std::clamp(all_keys / (8 * step.pool.size()), kLeastKeys, kMostKeys);
  pieces_.clear();
  for (std::int64_t i = 0; i < count; ++i) {
    SparseRow& sparse = sparse_[static_cast<std::size_t>(i)];
    sparse.top.start(causal_keys(step, sparse.row), top_k, grain, room);
    for (std::int64_t piece = 0; piece < sparse.top.pieces(); ++piece) pieces_.push_back({i, piece});
  }

  float* scores = scores_.ensure(count * room);
  const auto each_row = [&](auto task) {
    step.pool.run(
        count, [&](std::int64_t i, int /*thread*/) { task(sparse_[static_cast<std::size_t>(i)], scores + i * room); });
  };
  const auto each_piece = [&](auto task) {
    step.pool.run(static_cast<std::int64_t>(pieces_.size()), [&](std::int64_t i, int /*thread*/) {
      const RowPiece& at = pieces_[static_cast<std::size_t>(i)];
      task(sparse_[static_cast<std::size_t>(at.row)], at.piece, scores + at.row * room);
    });
  };
  each_piece([&](SparseRow& sparse, std::int64_t piece, float* mine) {
    const std::int64_t begin = piece * grain;
    const std::int64_t end = std::min(begin + grain, causal_keys(step, sparse.row));
    score(step, layer, {sparse.row, 1}, begin, end, mine + begin, room);
    sparse.top.note(piece, mine);
  });
  each_row([](SparseRow& sparse, float* /*mine*/) { sparse.top.bound(); });
  each_piece([](SparseRow& sparse, std::int64_t piece, float* mine) { sparse.top.collect(piece, mine); });
  each_row([&](SparseRow& sparse, float* mine) { sparse.top.finish(mine, selected_.data() + sparse.row * top_k); });
}

const std::int32_t* Indexer::selected(const StepContext& step, std::int64_t row) const {
  return causal_keys(step, row) > step.config.indexer.top_k ? selected_.data() + row * step.config.indexer.top_k
                                                            : nullptr;
}

}  // namespace perigee
