// Weights to vectors of 32 bf16, those of bf16 weights in the order of the columns. A step is 128 columns, four
// vectors.
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

// Columns [0, n) of x, which holds bf16 values, zeros up to the next multiple of 128, as rows of w have them.
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

// A vector at a time too, for few tokens.
struct Bf16Decoder : PairDecoder<Bf16Pairs> {
  using PairDecoder::PairDecoder;
  inline Words vector(int r, std::int64_t s, int v) const {
    return _mm512_loadu_si512(data.row(r) + s * kStepBytes + 64 * v);
  }
};

// The sixteen values under each scale byte, twice: a whole vector is loaded for nothing, where filling one from its
// half takes a shuffle. 16 KiB, of which a model uses the few lines of its scales.
struct alignas(64) Mxfp4Table {
  std::uint16_t of_code[32];
};
struct Mxfp4Tables {
  Mxfp4Table of_scale[256];
};
extern const Mxfp4Tables kMxfp4Tables;

// 32 codes under one scale byte, in MXFP4's order of columns (in_mxfp4_order): the 16 bytes stand in each quarter of
// the vector, 64-bit word 2 i + p has eight of them, moved right by 4 i bits, so that the lowest bits of its word j are
// the code of column 16 p + 4 j + i. One shift and one shuffle.
static inline Words mxfp4_words(const std::byte* codes, std::byte scale) {
  const Int bytes = _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
  const Int nibbles = _mm512_srlv_epi64(bytes, _mm512_setr_epi64(0, 0, 4, 4, 8, 8, 12, 12));
  // The index has five bits; the table stands twice, so the fifth does not matter.
  return _mm512_permutexvar_epi16(nibbles, load_words(kMxfp4Tables.of_scale[static_cast<std::uint8_t>(scale)].of_code));
}
// 32 words from the order of the columns into that of mxfp4_words, and back.
static inline Words in_mxfp4_order(Words words) {
  return _mm512_permutexvar_epi16(
      _mm512_setr_epi32(0x00040000, 0x000C0008, 0x00140010, 0x001C0018, 0x00050001, 0x000D0009, 0x00150011, 0x001D0019,
                        0x00060002, 0x000E000A, 0x00160012, 0x001E001A, 0x00070003, 0x000F000B, 0x00170013, 0x001F001B),
      words);
}
static inline Words in_column_order(Words words) {
  return _mm512_permutexvar_epi16(
      _mm512_setr_epi32(0x00080000, 0x00180010, 0x00090001, 0x00190011, 0x000A0002, 0x001A0012, 0x000B0003, 0x001B0013,
                        0x000C0004, 0x001C0014, 0x000D0005, 0x001D0015, 0x000E0006, 0x001E0016, 0x000F0007, 0x001F0017),
      words);
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
