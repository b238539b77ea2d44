// Scores of the DSA indexer (spec 4.2), lanes along keys, as wide/index.inl, with two columns a lane: 48 keys are
// transposed by pairs into L1 once and meet all heads of all queries. Bound by products: heads dim multiply-adds a key.
#include "kernels/avx512/slots.h"
#include "kernels/avx512bf16/slots.h"
#include "kernels/avx512bf16/transpose.h"
#include "kernels/wide/fetch.inl"
#include "kernels/wide/key_rows.inl"

namespace perigee::avx512bf16 {
namespace {

constexpr int kVectors = 3;
constexpr std::int64_t kKeys = kVectors * kLanes;

// Pairs of columns [0, 32 vectors) of up to kKeys keys from `begin`: out[pair][key]. Missing keys and columns are zero.
void transpose_keys(const PagedRows& keys, std::int64_t begin, std::int64_t count, std::int64_t vectors, Element* out) {
  for (std::int64_t group = 0; group < kKeys; group += kLanes) {
    for (std::int64_t v = 0; v < vectors; ++v) {
      const std::int64_t columns = keys.row - 32 * v;
      Words rows[kLanes];
      for (std::int64_t i = 0; i < kLanes; ++i) {
        rows[i] = _mm512_set1_epi32(0);
        if (group + i >= count) continue;
        const std::byte* from = key_row(keys, begin + group + i) + 64 * v;
        if (columns >= 32) {
          rows[i] = _mm512_loadu_si512(from);
        } else {
          alignas(64) Element part[32] = {};
          __builtin_memcpy(part, from, static_cast<std::size_t>(2 * columns));
          rows[i] = load_words(part);
        }
      }
      transpose(rows);
      for (std::int64_t p = 0; p < kLanes; ++p) store_words(out + 2 * ((kLanes * v + p) * kKeys + group), rows[p]);
    }
  }
}

template <int kHeads>
inline void add_heads(const Element* q, std::int64_t stride, const float* w, const Element* keys, Vec* scores) {
  Vec acc[kHeads][kVectors];
#pragma GCC unroll 4
  for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) acc[h][v] = zero();
  }
  for (std::int64_t d = 0; d < stride; d += 2) {
    Words key[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) key[v] = load_once(keys + d * kKeys + 2 * v * kLanes);
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
      const Words query = broadcast_pair(q + h * stride + d);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) acc[h][v] = multiply_add(query, key[v], acc[h][v]);
    }
  }
#pragma GCC unroll 4
  for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      // max(zero, NaN) is NaN in this operand order: a damaged key must not look like a low score.
      scores[v] = fma(all(w[h]), larger(zero(), acc[h][v]), scores[v]);
    }
  }
}

}  // namespace

void index_scores(const IndexQueries& queries, const PagedRows& keys, std::int64_t begin, std::int64_t end,
                  float* scores, std::int64_t scores_stride) {
  if (keys.format == KeyFormat::kF32) return avx512::index_scores(queries, keys, begin, end, scores, scores_stride);
  const std::int64_t vectors = (keys.row + 31) / 32;
  const std::int64_t stride = 32 * vectors;
  auto* packed = reinterpret_cast<Element*>(scratch(Scratch::kQueries, queries.count * queries.heads * stride / 2));
  for (std::int64_t i = 0; i < queries.count * queries.heads; ++i) {
    const float* q = queries.q + i / queries.heads * queries.q_stride + i % queries.heads * keys.row;
    for (std::int64_t d = 0; d < stride; d += 32)
      store_words(packed + i * stride + d, upper_words(q + d, keys.row - d));
  }
  auto* block = reinterpret_cast<Element*>(scratch(Scratch::kKeys, stride / 2 * kKeys));
  const std::int64_t fetched = (kKeys * 4 + queries.heads - 1) / queries.heads;  // keys for each four heads
  for (std::int64_t s = begin; s < end; s += kKeys) {
    const std::int64_t count = end - s < kKeys ? end - s : kKeys;
    transpose_keys(keys, s, count, vectors, block);
    for (std::int64_t i = 0; i < queries.count; ++i) {
      const Element* q = packed + i * queries.heads * stride;
      const float* w = queries.w + i * queries.w_stride;
      Vec sums[kVectors] = {zero(), zero(), zero()};
      std::int64_t h = 0;
      for (; h + 4 <= queries.heads; h += 4) {
        add_heads<4>(q + h * stride, stride, w + h, block, sums);
        const std::int64_t next = s + kKeys + h / 4 * fetched;
        for (std::int64_t key = next; i == 0 && key < next + fetched && key < end; ++key) {
          fetch_to_l2(key_row(keys, key), 2 * keys.row);
        }
      }
      for (; h < queries.heads; ++h) add_heads<1>(q + h * stride, stride, w + h, block, sums);
      float* out = scores + i * scores_stride + (s - begin);
      for (int v = 0; v < kVectors; ++v) {
        const std::int64_t lanes = count - v * kLanes;
        if (lanes > 0) store_n(out + v * kLanes, lanes < kLanes ? lanes : kLanes, sums[v]);
      }
    }
  }
}

}  // namespace perigee::avx512bf16
