// Weights to vectors of 32 bf16 in the order of the columns. A step is 128 columns, four vectors.
#pragma once

#include "kernels/avx512bf16/simd.h"

namespace perigee::avx512bf16 {

static constexpr std::int64_t kStep = 128;

// The GEMM of this path: columns of one partial sum, rows and tokens of one register tile (24 of 32 registers).
static constexpr std::int64_t kBlock = 1024;
static constexpr int kTileRows = 4;
static constexpr int kTileTokens = 6;
// Packed activations of a chunk, of at least 1 MiB of L2, and tokens below which the weights are read too often: with
// 36 tokens of 7,168 columns they cost half of the memory bandwidth.
static constexpr std::int64_t kPackedBytes = 589824;
static constexpr std::int64_t kSmallChunk = 12 * kTileTokens;
// Tokens up to which the rows of a panel lie far apart (panel_rows.inl).
static constexpr std::int64_t kFarTokens = 16;

// Columns [0, n) of x, which holds bf16 values, zeros up to the next multiple of 128.
void pack(const Matrix& w, const float* x, std::int64_t n, Element* out);

// Columns [begin, begin + n) of one row of bf16 or MXFP4, zeros up to the next multiple of 128; `begin` is one.
void expand(const Matrix& w, std::int64_t row, std::int64_t begin, std::int64_t n, Element* out);

}  // namespace perigee::avx512bf16

#include "kernels/wide/decoders.inl"

namespace perigee::avx512bf16 {

struct Bf16Pairs {
  static constexpr std::int64_t kBytes = 128;
  static inline Words first(const std::byte* pair) { return _mm512_loadu_si512(pair); }
  static inline Words second(const std::byte* pair) { return _mm512_loadu_si512(pair + 64); }
};
using PackedPairs = Bf16Pairs;

// The sixteen values under each scale byte.
struct alignas(32) Mxfp4Table {
  std::uint16_t of_code[16];
};
struct Mxfp4Tables {
  Mxfp4Table of_scale[256];
};
extern const Mxfp4Tables kMxfp4Tables;

// 32 codes under one scale byte.
static inline Words mxfp4_words(const std::byte* codes, std::byte scale) {
  const Int bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
  const Int nibbles = _mm512_or_si512(bytes, _mm512_slli_epi32(bytes, 12));
  const auto* table = reinterpret_cast<const __m256i*>(kMxfp4Tables.of_scale[static_cast<std::uint8_t>(scale)].of_code);
  // The index has five bits; the table stands twice, so the fifth does not matter.
  return _mm512_permutexvar_epi16(nibbles, _mm512_broadcast_i64x4(_mm256_load_si256(table)));
}

struct Mxfp4Decoder {
  static constexpr std::int64_t kStepBytes = 64;
  RowBases data;
  RowBases scales;
  Mxfp4Decoder(const Matrix& w, std::int64_t row)
      : data(w.data + row * w.row_bytes, w.row_bytes), scales(w.scales + row * w.scale_row_bytes, w.scale_row_bytes) {}
  inline Words vector(int r, std::int64_t s, int v) const {
    return mxfp4_words(data.row(r) + s * kStepBytes + 16 * v, scales.row(r)[4 * s + v]);
  }
  inline void step(int r, std::int64_t s, Words* out) const {
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) out[v] = vector(r, s, v);
  }
};

}  // namespace perigee::avx512bf16
