// Integer vectors of the AVX2 path for products in block integers (kernels/block_integers.h). A group is the kLanes
// rows that share vectors.
#pragma once

#include "kernels/avx2/simd.h"

namespace perigee::avx2 {

// A quarter of a group: four rows, whose sums of one block fill a 128-bit lane.
static constexpr int kQuarters = kLanes / 4;
static constexpr std::int64_t kIntegerTileTokens = 4;

static inline Int load_bytes(const void* from) {
  return _mm256_loadu_si256(static_cast<const Int*>(from));
}
static inline void store_bytes(void* to, Int value) {
  _mm256_storeu_si256(static_cast<Int*>(to), value);
}
static inline Int load_bytes_once(const void* from) {
  Int value = load_bytes(from);
  asm("" : "+x"(value));
  return value;
}
// Computes it here: rows one after the other need fewer registers than rows side by side.
static inline void finish(Int& value) {
  asm volatile("" : "+x"(value));
}
static inline Int broadcast_int(const std::int32_t* from) {
  return _mm256_set1_epi32(*from);
}
static inline Int broadcast_int_once(const std::int32_t* from) {
  Int value = _mm256_set1_epi32(*from);
  asm("" : "+x"(value));
  return value;
}
static inline Int all_words(int value) {
  return _mm256_set1_epi16(static_cast<std::int16_t>(value));
}
static inline Int low_nibbles(Int bytes) {
  return _mm256_and_si256(bytes, _mm256_set1_epi8(15));
}
static inline Int high_nibbles(Int bytes) {
  return low_nibbles(_mm256_srli_epi16(bytes, 4));
}
static inline Int low_bytes(Int words) {
  return _mm256_and_si256(words, _mm256_set1_epi16(0xFF));
}
static inline Int high_bytes(Int words) {
  return _mm256_srli_epi16(words, 8);
}
static inline Int look_up(const std::uint8_t* table, Int nibbles) {
  return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(table))),
                             nibbles);
}
// Words of a pair of byte products: unsigned times signed.
static inline Int multiply_bytes(Int unsigned_bytes, Int signed_bytes) {
  return _mm256_maddubs_epi16(unsigned_bytes, signed_bytes);
}
static inline Int multiply_words(Int a, Int b) {
  return _mm256_madd_epi16(a, b);
}
static inline Int add_words(Int a, Int b) {
  return _mm256_add_epi16(a, b);
}
static inline Int add_ints(Int a, Int b) {
  return _mm256_add_epi32(a, b);
}
// In place: left alone, the compiler moves the sums of a tile between registers and to the stack.
static inline Int accumulate(Int sum, Int term) {
  asm("vpaddd %1, %0, %0" : "+x"(sum) : "x"(term));
  return sum;
}
static inline Vec to_floats(Int value) {
  return _mm256_cvtepi32_ps(value);
}

// Four rows' partial sums: lane i of the result holds the sums of lane i of a, b, c and d.
static inline Int sum_lanes_of(Int a, Int b, Int c, Int d) {
  const Int ab = add_ints(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
  const Int cd = add_ints(_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
  return add_ints(_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd));
}
// From the lanes [quarter of the rows][block] to [block][quarter].
static inline void blocks_of_group(Int* quarters) {
  const Int first = quarters[0];
  quarters[0] = _mm256_permute2x128_si256(first, quarters[1], 0x20);
  quarters[1] = _mm256_permute2x128_si256(first, quarters[1], 0x31);
}
// Blocks of 32 bytes, one behind the other: halves[i] holds the half i of each.
static inline void halves_of_blocks(Int first, Int second, Int* halves) {
  halves[0] = _mm256_permute2x128_si256(first, second, 0x20);
  halves[1] = _mm256_permute2x128_si256(first, second, 0x31);
}
// 16 bytes of each row of a group: out[j] is the rows' dword j.
static inline void load_block(const std::byte* from, std::int64_t stride, Int* out) {
  const auto rows = [=](std::int64_t r) {
    const auto half = [=](std::int64_t row) {
      return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + row * stride));
    };
    return _mm256_inserti128_si256(_mm256_castsi128_si256(half(r)), half(r + 4), 1);
  };
  const Int a = rows(0);
  const Int b = rows(1);
  const Int c = rows(2);
  const Int d = rows(3);
  const Int ab_low = _mm256_unpacklo_epi32(a, b);
  const Int ab_high = _mm256_unpackhi_epi32(a, b);
  const Int cd_low = _mm256_unpacklo_epi32(c, d);
  const Int cd_high = _mm256_unpackhi_epi32(c, d);
  out[0] = _mm256_unpacklo_epi64(ab_low, cd_low);
  out[1] = _mm256_unpackhi_epi64(ab_low, cd_low);
  out[2] = _mm256_unpacklo_epi64(ab_high, cd_high);
  out[3] = _mm256_unpackhi_epi64(ab_high, cd_high);
}

}  // namespace perigee::avx2
