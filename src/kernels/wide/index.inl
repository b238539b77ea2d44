// Scores of the DSA indexer (spec 4.2), lanes along keys: kKeys keys are transposed into L1 once and meet all heads of
// all queries of the tile; ReLU, head weight and the sum over heads stay in registers. Bound by FMA: 2 heads dim flops
// a key; the next keys come from memory meanwhile.
#include "kernels/wide/fetch.inl"
#include "kernels/wide/key_rows.inl"

namespace perigee::PERIGEE_PATH {
namespace {

constexpr int kVectors = 3;
constexpr std::int64_t kKeys = kVectors * kLanes;

// The 8 x 8 block is transposed with 256-bit instructions on every path.
inline void transpose(__m256* r) {
  __m256 a[8];
  for (int i = 0; i < 4; ++i) {
    a[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
    a[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
  }
  __m256 b[8];
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

inline __m256 eight_keys(const std::byte* from, KeyFormat format) {
  if (format == KeyFormat::kF32) return _mm256_loadu_ps(reinterpret_cast<const float*>(from));
  const __m128i words = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(words), 16));
}

// out[d][key] for up to kKeys keys from `begin`; the lanes of missing keys are zero.
void transpose_keys(const PagedRows& keys, std::int64_t begin, std::int64_t count, float* out) {
  alignas(32) static constexpr std::byte kNothing[32] = {};
  const std::int64_t element = element_bytes(keys);
  for (std::int64_t group = 0; group < kKeys; group += 8) {
    const std::byte* rows[8];
    for (int i = 0; i < 8; ++i) rows[i] = group + i < count ? key_row(keys, begin + group + i) : nullptr;
    std::int64_t d = 0;
    for (; d + 8 <= keys.row; d += 8) {
      __m256 r[8];
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) r[i] = eight_keys(rows[i] == nullptr ? kNothing : rows[i] + element * d, keys.format);
      transpose(r);
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) _mm256_storeu_ps(out + (d + i) * kKeys + group, r[i]);
    }
    for (; d < keys.row; ++d) {
      for (int i = 0; i < 8; ++i) {
        std::uint32_t bits = 0;
        // Little-endian: a bf16 value is the upper half of its float.
        if (rows[i] != nullptr) {
          __builtin_memcpy(reinterpret_cast<std::byte*>(&bits) + 4 - element, rows[i] + element * d,
                           static_cast<std::size_t>(element));
        }
        __builtin_memcpy(out + (d * kKeys + group + i), &bits, 4);
      }
    }
  }
}

// Asks for keys [begin, begin + count), as far as there are any before `end`.
void fetch_keys(const PagedRows& keys, std::int64_t begin, std::int64_t count, std::int64_t end) {
  const std::int64_t bytes = keys.row * element_bytes(keys);
  for (std::int64_t s = begin; s < begin + count && s < end; ++s) fetch_to_l2(key_row(keys, s), bytes);
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
      for (int v = 0; v < kVectors; ++v) acc[h][v] = fma(query, key[v], acc[h][v]);
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
  const std::int64_t dim = keys.row;
  const std::int64_t fetched = (kKeys * 4 + queries.heads - 1) / queries.heads;  // keys for each four heads
  float* block = scratch(Scratch::kKeys, dim * kKeys);
  for (std::int64_t s = begin; s < end; s += kKeys) {
    const std::int64_t count = end - s < kKeys ? end - s : kKeys;
    transpose_keys(keys, s, count, block);
    for (std::int64_t i = 0; i < queries.count; ++i) {
      const float* q = queries.q + i * queries.q_stride;
      const float* w = queries.w + i * queries.w_stride;
      Vec sums[kVectors] = {zero(), zero(), zero()};
      std::int64_t h = 0;
      for (; h + 4 <= queries.heads; h += 4) {
        add_heads<4>(q + h * dim, dim, w + h, block, sums);
        if (i == 0) fetch_keys(keys, s + kKeys + h / 4 * fetched, fetched, end);
      }
      for (; h < queries.heads; ++h) add_heads<1>(q + h * dim, dim, w + h, block, sums);
      float* out = scores + i * scores_stride + (s - begin);
      for (int v = 0; v < kVectors; ++v) {
        const std::int64_t lanes = count - v * kLanes;
        if (lanes > 0) store_n(out + v * kLanes, lanes < kLanes ? lanes : kLanes, sums[v]);
      }
    }
  }
}

}  // namespace perigee::PERIGEE_PATH
