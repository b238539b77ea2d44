// Scores of the DSA indexer (spec 4.2), lanes along keys: 24 keys are transposed into L1 once and meet all heads of all
// queries of the tile; ReLU, head weight and the sum over heads stay in registers. Bound by FMA: 2 heads dim flops a
// key.
#include "kernels/avx2/avx2.h"
#include "kernels/avx2/simd.h"

namespace perigee::avx2 {
namespace {

constexpr int kVectors = 3;
constexpr std::int64_t kKeys = kVectors * kLanes;

const std::byte* key_row(const PagedRows& keys, std::int64_t position) {
  const std::int64_t bytes = keys.format == KeyFormat::kF32 ? 4 : 2;
  return keys.pages.data()[position / kPageTokens] + keys.offset + position % kPageTokens * keys.row * bytes;
}

inline void transpose(Vec* r) {
  Vec a[8];
  for (int i = 0; i < 4; ++i) {
    a[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
    a[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
  }
  Vec b[8];
  for (int i = 0; i < 2; ++i) {
    b[4 * i] = _mm256_shuffle_ps(a[4 * i], a[4 * i + 2], 0x44);
    b[4 * i + 1] = _mm256_shuffle_ps(a[4 * i], a[4 * i + 2], 0xEE);
    b[4 * i + 2] = _mm256_shuffle_ps(a[4 * i + 1], a[4 * i + 3], 0x44);
    b[4 * i + 3] = _mm256_shuffle_ps(a[4 * i + 1], a[4 * i + 3], 0xEE);
  }
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm256_permute2f128_ps(b[i], b[i + 4], 0x20);
    r[i + 4] = _mm256_permute2f128_ps(b[i], b[i + 4], 0x31);
  }
}

// out[d][key] for up to 24 keys from `begin`; the lanes of missing keys are zero.
void transpose_keys(const PagedRows& keys, std::int64_t begin, std::int64_t count, float* out) {
  alignas(32) static constexpr std::byte kNothing[32] = {};
  for (int v = 0; v < kVectors; ++v) {
    const std::byte* rows[8];
    for (int i = 0; i < 8; ++i) {
      const std::int64_t key = v * kLanes + i;
      rows[i] = key < count ? key_row(keys, begin + key) : nullptr;
    }
    std::int64_t d = 0;
    for (; d + kLanes <= keys.row; d += kLanes) {
      Vec r[8];
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) {
        if (keys.format == KeyFormat::kF32) {
          r[i] = load(reinterpret_cast<const float*>(rows[i] == nullptr ? kNothing : rows[i] + 4 * d));
        } else {
          r[i] = load_bf16(rows[i] == nullptr ? kNothing : rows[i] + 2 * d);
        }
      }
      transpose(r);
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) store(out + (d + i) * kKeys + v * kLanes, r[i]);
    }
    for (; d < keys.row; ++d) {
      for (int i = 0; i < 8; ++i) {
        float value = 0;
        if (rows[i] != nullptr && keys.format == KeyFormat::kF32) __builtin_memcpy(&value, rows[i] + 4 * d, 4);
        if (rows[i] != nullptr && keys.format == KeyFormat::kBf16) {
          std::uint32_t bits = 0;
          __builtin_memcpy(reinterpret_cast<std::byte*>(&bits) + 2, rows[i] + 2 * d, 2);
          __builtin_memcpy(&value, &bits, 4);
        }
        out[d * kKeys + v * kLanes + i] = value;
      }
    }
  }
}

template <int kHeads>
inline void add_heads(const float* q, std::int64_t dim, const float* w, const float* keys, Vec* scores) {
  Vec acc[kHeads][kVectors];
#pragma GCC unroll 4
  for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) acc[h][v] = zero();
  }
  for (std::int64_t d = 0; d < dim; ++d) {
    Vec key[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) key[v] = load_once(keys + d * kKeys + v * kLanes);
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
      const Vec query = broadcast_once(q + h * dim + d);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) acc[h][v] = _mm256_fmadd_ps(query, key[v], acc[h][v]);
    }
  }
#pragma GCC unroll 4
  for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      // max(zero, NaN) is NaN in this operand order: a damaged key must not look like a low score.
      scores[v] = _mm256_fmadd_ps(all(w[h]), _mm256_max_ps(zero(), acc[h][v]), scores[v]);
    }
  }
}

}  // namespace

void index_scores(const IndexQueries& queries, const PagedRows& keys, std::int64_t begin, std::int64_t end,
                  float* scores, std::int64_t scores_stride) {
  const std::int64_t dim = keys.row;
  float* block = scratch(Scratch::kKeys, dim * kKeys);
  for (std::int64_t s = begin; s < end; s += kKeys) {
    const std::int64_t count = end - s < kKeys ? end - s : kKeys;
    transpose_keys(keys, s, count, block);
    for (std::int64_t i = 0; i < queries.count; ++i) {
      const float* q = queries.q + i * queries.q_stride;
      const float* w = queries.w + i * queries.w_stride;
      Vec sums[kVectors] = {zero(), zero(), zero()};
      std::int64_t h = 0;
      for (; h + 4 <= queries.heads; h += 4) add_heads<4>(q + h * dim, dim, w + h, block, sums);
      for (; h < queries.heads; ++h) add_heads<1>(q + h * dim, dim, w + h, block, sums);
      float* out = scores + i * scores_stride + (s - begin);
      for (int v = 0; v < kVectors; ++v) {
        const std::int64_t lanes = count - v * kLanes;
        if (lanes > 0) store_n(out + v * kLanes, lanes < kLanes ? lanes : kLanes, sums[v]);
      }
    }
  }
}

}  // namespace perigee::avx2
