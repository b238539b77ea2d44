// Weights to float vectors. Each format has its own order of columns in lanes, the one that needs the fewest shuffles;
// pack() brings activations into the same order. A step is 32 columns, four vectors.
#pragma once

#include "kernels/avx2/simd.h"
#include "kernels/block_integers.h"

namespace perigee::avx2 {

static constexpr std::int64_t kStep = 32;

// The GEMM of this path: columns of one partial sum, tokens of one register tile.
static constexpr std::int64_t kBlock = 1024;
static constexpr int kTileRows = 2;
static constexpr int kTileTokens = 6;
// Packed activations of a chunk, in L2, and tokens below which the weights are read too often.
static constexpr std::int64_t kPackedBytes = 294912;
static constexpr std::int64_t kSmallChunk = 6 * kTileTokens;
// Tokens up to which the rows of a panel lie far apart: always, which was faster for any number of them.
static constexpr std::int64_t kFarTokens = std::int64_t{1} << 40;

// Columns [0, n) of x in the lane order of `w`, zeros up to the next multiple of 32.
void pack(const Matrix& w, const float* x, std::int64_t n, float* out);

// Columns [begin, begin + n) of one row as floats in lane order, zeros up to the next multiple of 32. `begin` is a
// multiple of 32.
void expand(const Matrix& w, std::int64_t row, std::int64_t begin, std::int64_t n, float* out);

}  // namespace perigee::avx2

#include "kernels/wide/float_words.inl"
// After it, whose vectors these read.
#include "kernels/wide/decoders.inl"

namespace perigee::avx2 {

struct HighHalves {
  std::uint32_t mask[8];
};
alignas(32) static constexpr HighHalves kHighHalves = {
    {0xFFFF0000, 0xFFFF0000, 0xFFFF0000, 0xFFFF0000, 0xFFFF0000, 0xFFFF0000, 0xFFFF0000, 0xFFFF0000}};
struct Bf16Pairs {
  static constexpr std::int64_t kBytes = 32;
  static inline Vec first(const std::byte* pair) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_loadu_si256(reinterpret_cast<const Int*>(pair)), 16));
  }
  // With the mask in memory: a tile has no register for it.
  static inline Vec second(const std::byte* pair) {
    Int high = _mm256_loadu_si256(reinterpret_cast<const Int*>(pair));
    asm("vpand %1, %0, %0" : "+x"(high) : "m"(kHighHalves));
    return _mm256_castsi256_ps(high);
  }
};

// 16 bytes of nibbles through two byte tables, repeated in both lanes, that hold the lower and the upper half of the
// bf16 value of each code.
static inline void decode_nibbles(const std::byte* from, Int low_table, Int high_table, Vec* out) {
  const Int bytes = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  const Int codes = _mm256_and_si256(_mm256_srlv_epi64(bytes, _mm256_setr_epi64x(0, 0, 4, 4)), _mm256_set1_epi8(15));
  const Int low = _mm256_shuffle_epi8(low_table, codes);
  const Int high = _mm256_shuffle_epi8(high_table, codes);
  const Int first = _mm256_unpacklo_epi8(low, high);
  const Int second = _mm256_unpackhi_epi8(low, high);
  out[0] = _mm256_castsi256_ps(_mm256_slli_epi32(first, 16));
  out[1] = _mm256_castsi256_ps(_mm256_blend_epi16(first, _mm256_setzero_si256(), 0x55));
  out[2] = _mm256_castsi256_ps(_mm256_slli_epi32(second, 16));
  out[3] = _mm256_castsi256_ps(_mm256_blend_epi16(second, _mm256_setzero_si256(), 0x55));
}
static inline Int both_lanes(const std::uint8_t* table) {
  return _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(table)));
}

// kMxfp4Tables.of_scale[byte]: the bf16 values of the 16 codes times 2^(byte - 127), low bytes then high bytes. So the
// scale costs no instruction: 8 KiB, of which a checkpoint uses a dozen rows.
struct alignas(32) NibbleTable {
  std::uint8_t low[16];
  std::uint8_t high[16];
};
struct Mxfp4Tables {
  NibbleTable of_scale[256];
};
extern const Mxfp4Tables kMxfp4Tables;
extern const NibbleTable kInt4Table;  // code - 8

struct Mxfp4Decoder {
  RowBases data;
  RowBases scales;
  Mxfp4Decoder(const Matrix& w, std::int64_t row)
      : data(w.data + row * w.row_bytes, w.row_bytes), scales(w.scales + row * w.scale_row_bytes, w.scale_row_bytes) {}
  inline void step(int r, std::int64_t s, Vec* out) const {
    const NibbleTable& table = kMxfp4Tables.of_scale[static_cast<std::uint8_t>(scales.row(r)[s])];
    decode_nibbles(data.row(r) + s * 16, both_lanes(table.low), both_lanes(table.high), out);
  }
};

// bf16 scales, groups of 32 << shift columns.
struct Int4Decoder {
  RowBases data;
  RowBases scales;
  int shift;
  Int low;
  Int high;
  Int4Decoder(const Matrix& w, std::int64_t row)
      : data(w.data + row * w.row_bytes, w.row_bytes),
        scales(w.scales + row * w.scale_row_bytes, w.scale_row_bytes),
        shift(scale_shift(w)),
        low(both_lanes(kInt4Table.low)),
        high(both_lanes(kInt4Table.high)) {}
  inline void step(int r, std::int64_t s, Vec* out) const {
    std::int16_t scale;
    __builtin_memcpy(&scale, scales.row(r) + 2 * (s >> shift), 2);
    const Vec factor = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_set1_epi16(scale), 16));
    decode_nibbles(data.row(r) + s * 16, low, high, out);
    for (int v = 0; v < 4; ++v) out[v] = _mm256_mul_ps(out[v], factor);
  }
};

}  // namespace perigee::avx2
