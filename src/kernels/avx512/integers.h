// Integer vectors of the AVX-512 path for products in block integers: the names of avx2/integers.h over sixteen rows.
#pragma once

#include "kernels/avx512/simd.h"

namespace perigee::avx512 {

static constexpr int kQuarters = kLanes / 4;
static constexpr std::int64_t kIntegerTileTokens = 8;

static inline Int load_bytes(const void* from) {
  return _mm512_loadu_si512(from);
}
static inline void store_bytes(void* to, Int value) {
  _mm512_storeu_si512(to, value);
}
static inline Int load_bytes_once(const void* from) {
  Int value = load_bytes(from);
#ifndef PERIGEE_EMULATED
  asm("" : "+v"(value));
#endif
  return value;
}
static inline void finish(Int& /*value*/) {}
static inline Int broadcast_int(const std::int32_t* from) {
  return _mm512_set1_epi32(*from);
}
static inline Int broadcast_int_once(const std::int32_t* from) {
  return _mm512_set1_epi32(*from);
}
static inline Int all_words(int value) {
  return _mm512_set1_epi32((value << 16) | value);
}
static inline Int low_nibbles(Int bytes) {
  return _mm512_and_si512(bytes, _mm512_set1_epi32(0x0F0F0F0F));
}
static inline Int high_nibbles(Int bytes) {
  return low_nibbles(_mm512_srli_epi32(bytes, 4));
}
static inline Int low_bytes(Int words) {
  return _mm512_and_si512(words, _mm512_set1_epi32(0x00FF00FF));
}
static inline Int high_bytes(Int words) {
  return low_bytes(_mm512_srli_epi32(words, 8));
}
static inline Int look_up(const std::uint8_t* table, Int nibbles) {
  return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<const __m128i*>(table))), nibbles);
}
static inline Int multiply_bytes(Int unsigned_bytes, Int signed_bytes) {
  return _mm512_maddubs_epi16(unsigned_bytes, signed_bytes);
}
static inline Int multiply_words(Int a, Int b) {
  return _mm512_madd_epi16(a, b);
}
static inline Int add_words(Int a, Int b) {
  return _mm512_add_epi16(a, b);
}
static inline Int add_ints(Int a, Int b) {
  return _mm512_add_epi32(a, b);
}
static inline Int accumulate(Int sum, Int term) {
  return _mm512_add_epi32(sum, term);
}
static inline Vec to_floats(Int value) {
  return _mm512_cvtepi32_ps(value);
}

static inline Int sum_lanes_of(Int a, Int b, Int c, Int d) {
  const Int ab = add_ints(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
  const Int cd = add_ints(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
  return add_ints(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
}
static inline void blocks_of_group(Int* quarters) {
  const Int low01 = _mm512_shuffle_i32x4(quarters[0], quarters[1], 0x88);
  const Int high01 = _mm512_shuffle_i32x4(quarters[0], quarters[1], 0xDD);
  const Int low23 = _mm512_shuffle_i32x4(quarters[2], quarters[3], 0x88);
  const Int high23 = _mm512_shuffle_i32x4(quarters[2], quarters[3], 0xDD);
  quarters[0] = _mm512_shuffle_i32x4(low01, low23, 0x88);
  quarters[1] = _mm512_shuffle_i32x4(high01, high23, 0x88);
  quarters[2] = _mm512_shuffle_i32x4(low01, low23, 0xDD);
  quarters[3] = _mm512_shuffle_i32x4(high01, high23, 0xDD);
}
static inline void halves_of_blocks(Int first, Int second, Int* halves) {
  halves[0] = _mm512_shuffle_i32x4(first, second, 0x88);
  halves[1] = _mm512_shuffle_i32x4(first, second, 0xDD);
}
static inline void load_block(const std::byte* from, std::int64_t stride, Int* out) {
  Int rows[4];
  for (int r = 0; r < 4; ++r) {
    const auto part = [=](std::int64_t row) {
      return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + row * stride));
    };
    rows[r] = _mm512_inserti32x4(_mm512_set1_epi32(0), part(r), 0);
    rows[r] = _mm512_inserti32x4(rows[r], part(r + 4), 1);
    rows[r] = _mm512_inserti32x4(rows[r], part(r + 8), 2);
    rows[r] = _mm512_inserti32x4(rows[r], part(r + 12), 3);
  }
  const Int ab_low = _mm512_unpacklo_epi32(rows[0], rows[1]);
  const Int ab_high = _mm512_unpackhi_epi32(rows[0], rows[1]);
  const Int cd_low = _mm512_unpacklo_epi32(rows[2], rows[3]);
  const Int cd_high = _mm512_unpackhi_epi32(rows[2], rows[3]);
  out[0] = _mm512_unpacklo_epi64(ab_low, cd_low);
  out[1] = _mm512_unpackhi_epi64(ab_low, cd_low);
  out[2] = _mm512_unpacklo_epi64(ab_high, cd_high);
  out[3] = _mm512_unpackhi_epi64(ab_high, cd_high);
}

}  // namespace perigee::avx512
