// Pairs of bf16 as vectors: what this path adds to AVX-512. Its code shares that path's namespace for vectors of
// floats.
#pragma once

#include "kernels/avx512/simd.h"

#undef PERIGEE_PATH
#define PERIGEE_PATH avx512bf16

namespace perigee::avx512bf16 {

using namespace perigee::avx512;  // NOLINT(google-build-using-namespace)

// Packed activations, and rows of weights, are bf16 in the order of the columns: 32 a vector.
using Element = std::uint16_t;
using Words = Int;

static inline Words load_words(const Element* from) {
  return _mm512_loadu_si512(from);
}
static inline void store_words(Element* to, Words value) {
  _mm512_storeu_si512(to, value);
}
static inline Words load_once(const Element* from) {
  Words value = _mm512_loadu_si512(from);
#ifndef PERIGEE_EMULATED
  asm("" : "+v"(value));
#endif
  return value;
}

// The first `count` elements, zeros behind them.
static inline Words load_words_part(const Element* from, std::int64_t count) {
  return _mm512_maskz_loadu_epi16(static_cast<__mmask32>((std::uint64_t{1} << count) - 1), from);
}

// Two neighbouring columns in every lane.
static inline Words broadcast_pair(const std::byte* from) {
  std::int32_t pair;
  __builtin_memcpy(&pair, from, 4);
  Words value = _mm512_set1_epi32(pair);
#ifndef PERIGEE_EMULATED
  asm("" : "+v"(value));
#endif
  return value;
}

// The bf16 in even and in odd columns as floats.
static inline Vec even_columns(Words words) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
}
static inline Vec odd_columns(Words words) {
  return _mm512_castsi512_ps(_mm512_and_si512(words, _mm512_set1_epi32(static_cast<int>(0xFFFF0000U))));
}
// 32 floats in the order of the columns, apart as the two functions above take them apart, and together again.
static inline void part_columns(Vec low, Vec high, Vec* even, Vec* odd) {
  *even =
      _mm512_permutex2var_ps(low, _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30), high);
  *odd =
      _mm512_permutex2var_ps(low, _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31), high);
}
static inline void join_columns(Vec even, Vec odd, Vec* low, Vec* high) {
  *low = _mm512_permutex2var_ps(even, _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23), odd);
  *high = _mm512_permutex2var_ps(even, _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31),
                                 odd);
}

// Lane i: sum + a[2i + 1] b[2i + 1] + a[2i] b[2i], each product added as by a fused multiply-add; subnormals are zero.
static inline Vec multiply_add(Words a, Words b, Vec sum) {
  return _mm512_dpbf16_ps(sum, __builtin_bit_cast(__m512bh, a), __builtin_bit_cast(__m512bh, b));
}

// The upper halves of 32 floats; from column `count` on they are zero.
static inline Words upper_words(const float* from, std::int64_t count) {
  const Vec low = count >= 16 ? load(from) : load_part(from, count);
  const Vec high = count >= 32 ? load(from + 16) : count <= 16 ? zero() : load_part(from + 16, count - 16);
  const Int words =
      _mm512_setr_epi32(0x00030001, 0x00070005, 0x000B0009, 0x000F000D, 0x00130011, 0x00170015, 0x001B0019, 0x001F001D,
                        0x00230021, 0x00270025, 0x002B0029, 0x002F002D, 0x00330031, 0x00370035, 0x003B0039, 0x003F003D);
  return _mm512_permutex2var_epi16(_mm512_castps_si512(low), words, _mm512_castps_si512(high));
}

}  // namespace perigee::avx512bf16
