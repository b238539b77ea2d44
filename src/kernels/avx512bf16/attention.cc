// Absorbed MLA over pages (spec 3.2) as products over heads, key rows read where they lie, in blocks of 64 list
// entries.
//
// Scores: lanes along heads, exact bf16 products. Softmax: one head a lane, keys ascending; shares are rounded to bf16,
// as the released code does (docs/numerics.md), and l is the sum of the rounded ones, so that weights add up to one.
// Values: pairs of keys, exact products, tiles of 6 heads x 64 columns, keys ascending. A query's arithmetic depends on
// its own list only: a tile of queries merely finds the rows of a block in L2. Bound: 2 kv + rope multiply-adds a head
// and key at the bf16 peak.
#include "kernels/avx512/slots.h"
#include "kernels/avx512bf16/heads.h"
#include "kernels/avx512bf16/slots.h"
#include "kernels/wide/key_lists.inl"
#include "kernels/wide/key_rows.inl"

namespace perigee::avx512bf16 {
namespace {

// Rows of one block of a key list; behind the last one it is repeated, so that tiles of keys are always whole.
struct Block {
  const std::byte* rows[kBlockKeys];
  std::int64_t count;

  // Entries [first, last) of the list, the first 64 of them.
  Block(const PagedRows& keys, const std::int32_t* selected, std::int64_t first, std::int64_t last)
      : count(last - first < kBlockKeys ? last - first : kBlockKeys) {
    for (std::int64_t j = 0; j < count; ++j) {
      rows[j] = key_row(keys, selected == nullptr ? first + j : selected[first + j]);
    }
    for (std::int64_t j = count; j < kBlockKeys; ++j) rows[j] = rows[count - 1];
  }
};

// scores[j * stride + h] for the first `count` keys.
template <int kKeys, int kGroups>
inline void score(const Block& block, std::int64_t count, std::int64_t width, const Element* pairs, std::int64_t stride,
                  float* scores) {
  for (std::int64_t j = 0; j < count; j += kKeys) {
    Vec acc[kKeys][kGroups];
    dot_heads(block.rows + j, NoNextKeys(), width, pairs, 2 * stride, acc);
#pragma GCC unroll 16
    for (int k = 0; k < kKeys; ++k) {
#pragma GCC unroll 2
      for (int g = 0; g < kGroups; ++g) store(scores + (j + k) * stride + g * kLanes, acc[k][g]);
    }
  }
}

// Online softmax of up to sixteen heads over one block: scores become shares, rounded to bf16 and written as pairs of
// keys [count / 2][stride][2], the last one with a zero where count is odd; running sums are rescaled.
inline void soften(float* scores, std::int64_t stride, std::int64_t count, float scale, std::int64_t heads, float* m,
                   float* l, float* acc, std::int64_t kv, Element* shares) {
  Vec maxima = all(-__builtin_inff());
  for (std::int64_t j = 0; j < count; ++j) {
    const Vec score = times(load(scores + j * stride), all(scale));
    store(scores + j * stride, score);
    maxima = larger(maxima, score);
  }
  const Vec old = load_n(m, heads);
  const Vec raised = larger(old, maxima);
  Vec sum = zero();
  const auto share_of = [&](std::int64_t j) {
    const Vec share = round_bf16(exp(minus(load(scores + j * stride), raised)));
    sum = plus(sum, share);
    return share;
  };
  for (std::int64_t j = 0; j < count; j += 2) {
    const Vec first = share_of(j);
    const Vec second = j + 1 < count ? share_of(j + 1) : zero();
    store_words(shares + j * stride, join_words(first, second));
  }
  const Vec keep = exp(minus(old, raised));
  store_n(l, heads, plus(times(load_n(l, heads), keep), sum));
  store_n(m, heads, raised);
  alignas(64) float keeps[kLanes];
  store(keeps, keep);
  for (std::int64_t h = 0; h < heads; ++h) {
    if (keeps[h] == 1.0F) continue;
    float* row = acc + h * kv;
    for_lanes(kv, [=](std::int64_t i, std::int64_t lanes) {
      store_n(row + i, lanes, times(load_n(row + i, lanes), all(keeps[h])));
    });
  }
}

// acc[h][0..32 kVectors) += sum_j shares[j][h] row_j[..] over `count` rows, by pairs, ascending; `columns` of them are
// there.
template <int kHeads, int kVectors, bool kWhole>
inline void value_tile(const std::byte* const* rows, std::int64_t at, std::int64_t columns, std::int64_t count,
                       const Element* shares, std::int64_t stride, float* acc, std::int64_t acc_stride) {
  const std::int64_t low = kWhole || columns > kLanes ? kLanes : columns;
  const std::int64_t high = kWhole ? kLanes : columns - low;
  Vec low_sums[kHeads][kVectors];
  Vec high_sums[kHeads][kVectors];
#pragma GCC unroll 6
  for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      const float* from = acc + h * acc_stride + 32 * v;
      low_sums[h][v] = load_n(from, low);
      high_sums[h][v] = load_n(from + kLanes, high);
    }
  }
  for (std::int64_t j = 0; j < count; j += 2) {
    const auto* first = reinterpret_cast<const Element*>(rows[j] + 2 * at);
    // A share of zero for a key that is not there must not meet a key that is not a number.
    const auto* second = j + 1 < count ? reinterpret_cast<const Element*>(rows[j + 1] + 2 * at) : first;
    Words low_pairs[kVectors];
    Words high_pairs[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      const Words a = kWhole ? load_once(first + 32 * v) : load_words_part(first, columns);
      const Words b = kWhole ? load_once(second + 32 * v) : load_words_part(second, columns);
      low_pairs[v] = low_word_pairs(a, b);
      high_pairs[v] = high_word_pairs(a, b);
    }
#pragma GCC unroll 6
    for (int h = 0; h < kHeads; ++h) {
      const Words share = broadcast_pair(reinterpret_cast<const std::byte*>(shares + j * stride + 2 * h));
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) {
        low_sums[h][v] = multiply_add(share, low_pairs[v], low_sums[h][v]);
        high_sums[h][v] = multiply_add(share, high_pairs[v], high_sums[h][v]);
      }
    }
  }
#pragma GCC unroll 6
  for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      float* to = acc + h * acc_stride + 32 * v;
      store_n(to, low, low_sums[h][v]);
      store_n(to + kLanes, high, high_sums[h][v]);
    }
  }
}

template <int kVectors, bool kWhole>
inline void value_strip(const Block& block, std::int64_t at, std::int64_t columns, std::int64_t count,
                        const Element* shares, std::int64_t stride, std::int64_t heads, float* acc, std::int64_t kv) {
  std::int64_t h = 0;
  const auto tile = [&]<int kHeads>() {
    value_tile<kHeads, kVectors, kWhole>(block.rows, at, columns, count, shares + 2 * h, stride, acc + h * kv + at, kv);
  };
  // Never fewer than four at the end where four and four do: 16 are 6, 6 and 4.
  for (; heads - h >= 6 && heads - h != 8; h += 6) tile.template operator()<6>();
  for (; heads - h >= 4; h += 4) tile.template operator()<4>();
  for (; h < heads; ++h) tile.template operator()<1>();
}

void add_values(const Block& block, std::int64_t count, const Element* shares, std::int64_t stride, std::int64_t heads,
                std::int64_t kv, float* acc) {
  std::int64_t at = 0;
  for (; at + 64 <= kv; at += 64) value_strip<2, true>(block, at, 64, count, shares, stride, heads, acc, kv);
  for (; at + 32 <= kv; at += 32) value_strip<1, true>(block, at, 32, count, shares, stride, heads, acc, kv);
  if (at < kv) value_strip<1, false>(block, at, kv - at, count, shares, stride, heads, acc, kv);
}

// One query and the first `count` keys of a block.
void attend(const MlaShape& shape, const Block& block, std::int64_t count, const Element* pairs,
            const MlaPartial& partial) {
  const std::int64_t groups = head_groups(shape.heads);
  const std::int64_t stride = groups * kLanes;
  const std::int64_t width = shape.kv + shape.rope;
  // Shares take half of the room of the scores and stand behind them.
  float* scores = scratch(Scratch::kScores, (kBlockKeys + kBlockKeys / 2) * stride);
  auto* shares = reinterpret_cast<Element*>(scores + kBlockKeys * stride);
  std::int64_t g = 0;
  for (; g + 2 <= groups; g += 2) {
    score<8, 2>(block, count, width, pairs + 32 * g, stride, scores + kLanes * g);
  }
  if (g < groups) score<16, 1>(block, count, width, pairs + 32 * g, stride, scores + kLanes * g);
  for (std::int64_t h = 0; h < shape.heads; h += kLanes) {
    soften(scores + h, stride, count, shape.scale, shape.heads - h < kLanes ? shape.heads - h : kLanes, partial.m + h,
           partial.l + h, partial.acc + h * shape.kv, shape.kv, shares + 2 * h);
  }
  add_values(block, count, shares, stride, shape.heads, shape.kv, partial.acc);
}

}  // namespace

void mla_segment(const MlaShape& shape, const PagedRows& keys, std::span<const MlaQuery> queries, std::int64_t segment,
                 std::span<const MlaPartial> partials) {
  const std::int64_t width = shape.kv + shape.rope;
  if (keys.format == KeyFormat::kF32 || width % 2 != 0) {
    return avx512::mla_segment(shape, keys, queries, segment, partials);
  }
  const std::size_t count = queries.size();
  const std::int64_t query_elements = width * head_groups(shape.heads) * kLanes;
  auto* memory =
      reinterpret_cast<Element*>(scratch(Scratch::kQueries, static_cast<std::int64_t>(count) * (query_elements / 2)));
  const auto pairs = [=](std::size_t i) { return memory + static_cast<std::int64_t>(i) * query_elements; };
  std::int64_t dense_end = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const MlaQuery& query = queries[i];
    const Range range = entries_of(query, segment);
    begin_partial(shape, partials[i]);
    pack_heads(query.q, shape.heads, width, pairs(i));
    if (query.selected == nullptr) {
      if (range.last > dense_end) dense_end = range.last;
      continue;
    }
    for (std::int64_t first = range.first; first < range.last; first += kBlockKeys) {
      const Block block(keys, query.selected, first, range.last);
      attend(shape, block, block.count, pairs(i), partials[i]);
    }
  }
  for (std::int64_t first = segment * kAttentionSegment; first < dense_end; first += kBlockKeys) {
    const Block block(keys, nullptr, first, dense_end);
    for (std::size_t i = 0; i < count; ++i) {
      if (queries[i].selected != nullptr) continue;
      const Range range = entries_of(queries[i], segment);
      const std::int64_t keys_here = range.last - first < kBlockKeys ? range.last - first : kBlockKeys;
      if (keys_here > 0) attend(shape, block, keys_here, pairs(i), partials[i]);
    }
  }
}

}  // namespace perigee::avx512bf16
