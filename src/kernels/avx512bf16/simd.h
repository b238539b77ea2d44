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

// Lane i: column i, or 16 + i, of two rows.
static inline Words low_word_pairs(Words first, Words second) {
  const Int at =
      _mm512_setr_epi32(0x00200000, 0x00210001, 0x00220002, 0x00230003, 0x00240004, 0x00250005, 0x00260006, 0x00270007,
                        0x00280008, 0x00290009, 0x002A000A, 0x002B000B, 0x002C000C, 0x002D000D, 0x002E000E, 0x002F000F);
  return _mm512_permutex2var_epi16(first, at, second);
}
static inline Words high_word_pairs(Words first, Words second) {
  const Int at =
      _mm512_setr_epi32(0x00300010, 0x00310011, 0x00320012, 0x00330013, 0x00340014, 0x00350015, 0x00360016, 0x00370017,
                        0x00380018, 0x00390019, 0x003A001A, 0x003B001B, 0x003C001C, 0x003D001D, 0x003E001E, 0x003F001F);
  return _mm512_permutex2var_epi16(first, at, second);
}
// Two floats whose lower halves are zero as a pair in every lane.
static inline Words join_words(Vec first, Vec second) {
  return _mm512_or_si512(_mm512_srli_epi32(_mm512_castps_si512(first), 16), _mm512_castps_si512(second));
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
