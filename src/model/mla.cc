#include "model/mla.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "base/checked.h"
#include "model/linear.h"
#include "model/paged_rows.h"

namespace perigee {
namespace {

constexpr std::int64_t kMlaQueryTile = 8;  // queries that share the reads of their keys in prefill
constexpr std::int64_t kHeadMultiple = 4;  // heads of a register tile

MlaShape attention_shape(const MlaConfig& mla) {
  return {.heads = mla.heads,
          .kv = mla.kv_lora_rank,
          .rope = mla.rope,
          .scale = 1.0F / std::sqrt(static_cast<float>(mla.nope + mla.rope))};
}

std::int64_t partial_floats(const MlaShape& shape) {
  return shape.heads * (2 + shape.kv);
}

MlaPartial partial_at(const MlaShape& shape, float* memory) {
  return {.m = memory, .l = memory + shape.heads, .acc = memory + 2 * shape.heads};
}

// The part that begins at a head.
MlaPartial from_head(const MlaShape& shape, const MlaPartial& partial, std::int64_t head) {
  return {.m = partial.m + head, .l = partial.l + head, .acc = partial.acc + head * shape.kv};
}

// The shape of up to `count` heads from one on.
MlaShape with_heads(const MlaShape& shape, std::int64_t head, std::int64_t count) {
  MlaShape part = shape;
  part.heads = std::min(count, shape.heads - head);
  return part;
}

PagedRows latent_rows(const StepContext& step, std::int64_t layer, std::int64_t row) {
  return {.pages = step.sequence_of(row).pages,
          .offset = step.layout.mla[static_cast<std::size_t>(layer)].latent,
          .row = step.config.mla.latent_row(),
          .format = step.layout.key_format};
}

void clear(const MlaShape& shape, const MlaPartial& partial) {
  std::fill_n(partial.m, shape.heads, -std::numeric_limits<float>::infinity());
  std::fill_n(partial.l, shape.heads, 0.0F);
  std::fill_n(partial.acc, shape.heads * shape.kv, 0.0F);
}

}  // namespace

void MlaLayer::project(StepContext& step, const MlaWeights& weights, const float* x) {
  const MlaConfig& mla = step.config.mla;
  const std::int64_t rows = step.rows;
  const bool has_indexer = !weights.indexer.k.empty();
  float* q = q_.ensure(rows * mla.heads * (mla.nope + mla.rope));
  std::vector<LinearJob>& jobs = jobs_;
  jobs.clear();
  jobs.push_back(linear_job(step, weights.kv_a, x, kv_.ensure(rows * mla.latent_row())));
  if (mla.q_lora_rank == 0) {
    jobs.push_back(linear_job(step, weights.q, x, q));
  } else {
    jobs.push_back(linear_job(step, weights.q_a, x, q_latent_.ensure(rows * mla.q_lora_rank)));
  }
  if (mla.output_gate) jobs.push_back(linear_job(step, weights.g, x, gate_.ensure(rows * mla.heads * mla.v)));
  if (has_indexer) indexer_.add_input_jobs(step, weights.indexer, x, jobs);
  run_linear(step, jobs);

  if (mla.q_lora_rank == 0) return;
  float* q_latent = q_latent_.data();
  parallel_ranges(step.pool, rows, kRowGrain, [&](std::int64_t begin, std::int64_t end, int /*thread*/) {
    for (std::int64_t row = begin; row < end; ++row) {
      float* latent = q_latent + row * mla.q_lora_rank;
      step.kernels.rms_norm(latent, weights.q_a_norm.data(), mla.q_lora_rank,
                            static_cast<float>(step.config.latent_norm_eps), latent, step.norm_rounding);
    }
  });
  jobs.clear();
  jobs.push_back(linear_job(step, weights.q_b, q_latent, q));
  if (has_indexer) indexer_.add_latent_jobs(step, weights.indexer, q_latent, jobs);
  run_linear(step, jobs);
}

// The norm covers the latent only; the shared extra width is kept raw (spec 3.1 step 2).
void MlaLayer::append_keys(StepContext& step, std::int64_t layer, const MlaWeights& weights) {
  const MlaConfig& mla = step.config.mla;
  const StateLayout::MlaPlace& place = step.layout.mla[static_cast<std::size_t>(layer)];
  parallel_ranges(step.pool, step.rows, kRowGrain, [&](std::int64_t begin, std::int64_t end, int /*thread*/) {
    for (std::int64_t row = begin; row < end; ++row) {
      float* latent = kv_.data() + row * mla.latent_row();
      step.kernels.rms_norm(latent, weights.kv_a_norm.data(), mla.kv_lora_rank,
                            static_cast<float>(step.config.latent_norm_eps), latent, step.norm_rounding);
      store_row(step.sequence_of(row), step.row_position[static_cast<std::size_t>(row)], place.latent,
                step.layout.key_format, latent, mla.latent_row());
      // Keys are written from token 0 on, also while everything is selected: later queries need them (spec 4.3).
      if (place.index >= 0) indexer_.append_key(step, layer, weights.indexer, row);
    }
  });
}

// q_lat,h = W_UK,h^T q_nope,h, then the raw extra width behind it (spec 3.2).
void MlaLayer::absorb(StepContext& step, const MlaWeights& weights) {
  const MlaConfig& mla = step.config.mla;
  const std::int64_t q_width = mla.nope + mla.rope;
  const std::int64_t q_stride = mla.heads * q_width;
  const std::int64_t absorbed_stride = mla.heads * mla.latent_row();
  float* absorbed = absorbed_.ensure(step.rows * absorbed_stride);
  step.pool.run(mla.heads, [&](std::int64_t head, int /*thread*/) {
    const Matrix key_up = weights.kv_b.slice_rows(head * (mla.nope + mla.v), mla.nope);
    const float* q = q_.data() + head * q_width;
    float* out = absorbed + head * mla.latent_row();
    step.kernels.gemm_transposed(key_up, q, q_stride, step.rows, out, absorbed_stride, step.rounding);
    for (std::int64_t row = 0; row < step.rows; ++row) {
      std::copy_n(q + row * q_stride + mla.nope, mla.rope, out + row * absorbed_stride + mla.kv_lora_rank);
    }
  });
}

MlaQuery MlaLayer::query_of(const StepContext& step, std::int64_t layer, std::int64_t row) const {
  const MlaConfig& mla = step.config.mla;
  const bool sparse = step.config.layers[static_cast<std::size_t>(layer)].indexer;
  return {.q = absorbed_.data() + row * mla.heads * mla.latent_row(),
          .keys = step.row_position[static_cast<std::size_t>(row)] + 1,
          .selected = sparse ? indexer_.selected(step, row) : nullptr,
          .selected_count = step.config.indexer.top_k};
}

void MlaLayer::attend(StepContext& step, std::int64_t layer) {
  const MlaConfig& mla = step.config.mla;
  attended_.ensure(step.rows * mla.heads * mla.kv_lora_rank);
  if (step.rows >= 2 * step.pool.size()) {
    attend_for_prefill(step, layer);
  } else {
    attend_for_decode(step, layer);
  }
}

// A tile of queries a task, which walks all segments of its keys.
void MlaLayer::attend_for_prefill(StepContext& step, std::int64_t layer) {
  const MlaShape shape = attention_shape(step.config.mla);
  const std::int64_t partial_size = partial_floats(shape);
  row_tiles(step, kMlaQueryTile, tiles_);
  float* memory = partials_.ensure(2 * kMlaQueryTile * partial_size * step.pool.size());
  step.pool.run(static_cast<std::int64_t>(tiles_.size()), [&](std::int64_t index, int thread) {
    const RowTile& tile = tiles_[static_cast<std::size_t>(index)];
    const auto count = static_cast<std::size_t>(tile.count);
    std::array<MlaQuery, kMlaQueryTile> queries{};
    std::array<MlaPartial, kMlaQueryTile> running{};
    std::array<MlaPartial, kMlaQueryTile> next{};
    float* mine = memory + 2 * kMlaQueryTile * partial_size * thread;
    std::int64_t entries = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const auto at = static_cast<std::int64_t>(i);
      queries[i] = query_of(step, layer, tile.begin + at);
      running[i] = partial_at(shape, mine + 2 * at * partial_size);
      next[i] = partial_at(shape, mine + (2 * at + 1) * partial_size);
      clear(shape, running[i]);
      entries = std::max(entries, queries[i].entries());
    }
    const PagedRows keys = latent_rows(step, layer, tile.begin);
    for (std::int64_t segment = 0; segment * kAttentionSegment < entries; ++segment) {
      step.kernels.mla_segment(shape, keys, std::span(queries).first(count), segment, std::span(next).first(count));
      for (std::size_t i = 0; i < count; ++i) step.kernels.mla_merge(shape, next[i], running[i]);
    }
    for (std::size_t i = 0; i < count; ++i) {
      const std::int64_t row = tile.begin + static_cast<std::int64_t>(i);
      step.kernels.mla_finish(shape, running[i], attended_.data() + row * shape.heads * shape.kv, step.rounding);
    }
  });
}

// The segments of all queries, and groups of their heads, spread over the threads; a wave of segments at a time bounds
// the memory.
void MlaLayer::attend_for_decode(StepContext& step, std::int64_t layer) {
  const MlaShape shape = attention_shape(step.config.mla);
  const std::int64_t partial_size = partial_floats(shape);
  const std::int64_t threads = step.pool.size();
  pieces_.clear();
  for (std::int64_t row = 0; row < step.rows; ++row) {
    const std::int64_t segments = ceil_div(query_of(step, layer, row).entries(), kAttentionSegment);
    for (std::int64_t segment = 0; segment < segments; ++segment) pieces_.push_back({row, segment});
  }
  const std::int64_t wave = 2 * threads;
  float* memory = partials_.ensure((wave + step.rows) * partial_size);
  const auto running = [&](std::int64_t row) { return partial_at(shape, memory + (wave + row) * partial_size); };

  const std::span<const RowPiece> pieces(pieces_);
  for (std::size_t first = 0; first < pieces.size(); first += static_cast<std::size_t>(wave)) {
    const auto part = pieces.subspan(first, std::min(static_cast<std::size_t>(wave), pieces.size() - first));
    const auto count = static_cast<std::int64_t>(part.size());
    // Every group of heads reads the keys again, so heads are split only where segments alone would leave threads idle.
    const std::int64_t uneven = count % threads;
    const std::int64_t shares = uneven == 0 ? 1 : ceil_div(threads, uneven);
    const std::int64_t group = ceil_div(ceil_div(shape.heads, shares), kHeadMultiple) * kHeadMultiple;
    const std::int64_t groups = ceil_div(shape.heads, group);
    step.pool.run(count * groups, [&](std::int64_t task, int /*thread*/) {
      const std::int64_t i = task / groups;
      const RowPiece& at = part[static_cast<std::size_t>(i)];
      const std::int64_t head = task % groups * group;
      MlaQuery query = query_of(step, layer, at.row);
      query.q += head * (shape.kv + shape.rope);
      const MlaPartial partial = from_head(shape, partial_at(shape, memory + i * partial_size), head);
      step.kernels.mla_segment(with_heads(shape, head, group), latent_rows(step, layer, at.row), {&query, 1}, at.piece,
                               {&partial, 1});
    });

    // The wave's rows are neighbours; the first and the last may go on in other waves.
    const std::int64_t first_row = part.front().row;
    const std::int64_t rows = part.back().row - first_row + 1;
    const std::int64_t merged = ceil_div(shape.heads, ceil_div(threads, rows));
    const std::int64_t merges = ceil_div(shape.heads, merged);  // of a row
    step.pool.run(rows * merges, [&](std::int64_t task, int /*thread*/) {
      const std::int64_t row = first_row + task / merges;
      const std::int64_t head = task % merges * merged;
      const MlaShape heads = with_heads(shape, head, merged);
      const MlaPartial sum = from_head(shape, running(row), head);
      auto i = std::ranges::lower_bound(part, row, {}, &RowPiece::row) - part.begin();
      for (; i < count && part[static_cast<std::size_t>(i)].row == row; ++i) {
        if (part[static_cast<std::size_t>(i)].piece == 0) clear(heads, sum);
        step.kernels.mla_merge(heads, from_head(shape, partial_at(shape, memory + i * partial_size), head), sum);
      }
      const auto next = first + static_cast<std::size_t>(i);
      if (next == pieces.size() || pieces[next].row != row) {
        float* out = attended_.data() + (row * shape.heads + head) * shape.kv;
        step.kernels.mla_finish(heads, sum, out, step.rounding);
      }
    });
  }
}

void MlaLayer::forward(StepContext& step, std::int64_t layer, const MlaWeights& weights, const float* x, float* out) {
  const MlaConfig& mla = step.config.mla;
  project(step, weights, x);
  append_keys(step, layer, weights);
  if (!weights.indexer.k.empty()) indexer_.select(step, layer);
  absorb(step, weights);
  attend(step, layer);

  const std::int64_t o_stride = mla.heads * mla.v;
  float* o = o_.ensure(step.rows * o_stride);
  const auto gemm = step.gemm();
  step.pool.run(mla.heads, [&](std::int64_t head, int /*thread*/) {
    const Matrix value_up = weights.kv_b.slice_rows(head * (mla.nope + mla.v) + mla.nope, mla.v);
    gemm(value_up, 0, mla.v, attended_.data() + head * mla.kv_lora_rank, mla.heads * mla.kv_lora_rank, step.rows,
         o + head * mla.v, o_stride, step.rounding);
  });
  if (mla.output_gate) {
    parallel_elements(step.pool, step.rows * o_stride, [&](std::int64_t begin, std::int64_t end) {
      step.kernels.sigmoid_gate(o + begin, gate_.data() + begin, end - begin, o + begin, step.rounding);
    });
  }
  const LinearJob output = linear_job(step, weights.o, o, out);
  run_linear(step, {&output, 1});
}

}  // namespace perigee
