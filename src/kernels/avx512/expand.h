// Weights to float vectors on AVX-512 (see avx2/expand.h). A step is 64 columns, four vectors.
#pragma once

#include "kernels/avx512/simd.h"
#include "kernels/block_integers.h"

namespace perigee::avx512 {

static constexpr std::int64_t kStep = 64;

// The GEMM of this path: columns of one partial sum, rows and tokens of one register tile (24 of 32 registers).
static constexpr std::int64_t kBlock = 1024;
static constexpr int kTileRows = 4;
static constexpr int kTileTokens = 6;
// Packed activations of a chunk, in L2, and tokens below which the weights are read too often.
static constexpr std::int64_t kPackedBytes = 294912;
static constexpr std::int64_t kSmallChunk = 6 * kTileTokens;
// Tokens up to which the rows of a panel lie far apart (panel_rows.inl).
static constexpr std::int64_t kFarTokens = 16;

void pack(const Matrix& w, const float* x, std::int64_t n, float* out);
void expand(const Matrix& w, std::int64_t row, std::int64_t begin, std::int64_t n, float* out);

}  // namespace perigee::avx512

#include "kernels/wide/float_words.inl"
// After it, whose vectors these read.
#include "kernels/wide/decoders.inl"

namespace perigee::avx512 {

struct Bf16Pairs {
  static constexpr std::int64_t kBytes = 64;
  static inline Vec first(const std::byte* pair) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(pair), 16));
  }
  static inline Vec second(const std::byte* pair) {
    const Int high = _mm512_set1_epi32(static_cast<int>(0xFFFF0000U));
    return _mm512_castsi512_ps(_mm512_and_si512(_mm512_loadu_si512(pair), high));
  }
};

// 32 bytes of nibbles: vpermps looks up sixteen codes at once by the low four bits of each lane.
static inline void decode_nibbles(const std::byte* from, Vec table, Vec scale, Vec* out) {
  const Int words = _mm512_broadcast_i64x4(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  const Int shift = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 4, 4, 4, 4, 4, 4, 4, 4);
  for (int v = 0; v < 4; ++v) {
    const Int codes = _mm512_srlv_epi32(words, _mm512_add_epi32(shift, _mm512_set1_epi32(8 * v)));
    out[v] = _mm512_mul_ps(_mm512_permutexvar_ps(codes, table), scale);
  }
}
// Lanes of the first 32 columns of a step, and of the second.
static inline Vec two_scales(float first, float second) {
  return _mm512_mask_blend_ps(0xF0F0, _mm512_set1_ps(first), _mm512_set1_ps(second));
}

struct ScaleTable {
  float of_byte[256];
};
extern const ScaleTable kE8m0Table;

struct Mxfp4Decoder {
  RowBases data;
  RowBases scales;
  Vec table;
  Mxfp4Decoder(const Matrix& w, std::int64_t row)
      : data(w.data + row * w.row_bytes, w.row_bytes),
        scales(w.scales + row * w.scale_row_bytes, w.scale_row_bytes),
        table(_mm512_setr_ps(0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F, -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F,
                             -4.0F, -6.0F)) {}
  inline void step(int r, std::int64_t s, Vec* out) const {
    const std::byte* scale = scales.row(r) + 2 * s;
    decode_nibbles(data.row(r) + s * 32, table,
                   two_scales(kE8m0Table.of_byte[static_cast<std::uint8_t>(scale[0])],
                              kE8m0Table.of_byte[static_cast<std::uint8_t>(scale[1])]),
                   out);
  }
};

// bf16 scales, groups of 32 << shift columns.
struct Int4Decoder {
  RowBases data;
  RowBases scales;
  int shift;
  Vec table;
  Int4Decoder(const Matrix& w, std::int64_t row)
      : data(w.data + row * w.row_bytes, w.row_bytes),
        scales(w.scales + row * w.scale_row_bytes, w.scale_row_bytes),
        shift(scale_shift(w)),
        table(_mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7)) {}
  inline void step(int r, std::int64_t s, Vec* out) const {
    const auto scale = [&](std::int64_t group) {
      std::uint16_t bits;
      __builtin_memcpy(&bits, scales.row(r) + 2 * (group >> shift), 2);
      const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
      float value;
      __builtin_memcpy(&value, &wide, 4);
      return value;
    };
    decode_nibbles(data.row(r) + s * 32, table, two_scales(scale(2 * s), scale(2 * s + 1)), out);
  }
};

}  // namespace perigee::avx512
