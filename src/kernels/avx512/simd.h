// Vector helpers of the AVX-512 path (F, BW, DQ, VL): the same names as avx2/simd.h over sixteen lanes. Static, for the
// same reason.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/kernels.h"
#include "kernels/scratch.h"

#define PERIGEE_PATH avx512

namespace perigee::avx512 {

using Vec = __m512;
using Int = __m512i;
static constexpr std::int64_t kLanes = 16;

static inline Vec zero() {
  return _mm512_setzero_ps();
}
static inline Vec load(const float* from) {
  return _mm512_loadu_ps(from);
}
static inline void store(float* to, Vec value) {
  _mm512_storeu_ps(to, value);
}
static inline Vec all(float value) {
  return _mm512_set1_ps(value);
}
static inline Vec broadcast(const float* from) {
  return _mm512_set1_ps(*from);
}
// See avx2/simd.h.
static inline Vec load_once(const float* from) {
  Vec value = _mm512_loadu_ps(from);
#ifndef PERIGEE_EMULATED
  asm("" : "+v"(value));
#endif
  return value;
}
static inline Vec broadcast_once(const float* from) {
  Vec value = _mm512_set1_ps(*from);
#ifndef PERIGEE_EMULATED
  asm("" : "+v"(value));
#endif
  return value;
}

static inline __mmask16 lane_mask(std::int64_t n) {
  return static_cast<__mmask16>((1U << n) - 1U);
}
static inline Vec load_part(const float* from, std::int64_t n) {
  return _mm512_maskz_loadu_ps(lane_mask(n), from);
}
static inline void store_part(float* to, std::int64_t n, Vec value) {
  _mm512_mask_storeu_ps(to, lane_mask(n), value);
}

static inline Vec plus(Vec a, Vec b) {
  return _mm512_add_ps(a, b);
}
static inline Vec minus(Vec a, Vec b) {
  return _mm512_sub_ps(a, b);
}
static inline Vec times(Vec a, Vec b) {
  return _mm512_mul_ps(a, b);
}
static inline Vec over(Vec a, Vec b) {
  return _mm512_div_ps(a, b);
}
static inline Vec fma(Vec a, Vec b, Vec c) {
  return _mm512_fmadd_ps(a, b, c);
}
static inline Vec larger(Vec a, Vec b) {
  return _mm512_max_ps(a, b);
}  // b where either is NaN
static inline Vec minus_magnitude(Vec a) {
  return _mm512_or_ps(a, all(-0.0F));
}
static inline float first_lane(Vec a) {
  return _mm512_cvtss_f32(a);
}
static inline Vec first_lanes(Vec a, std::int64_t n, Vec other) {
  return _mm512_mask_blend_ps(lane_mask(n), other, a);
}
static inline float inverse_root(float value) {
  return 1.0F / _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(value)));
}

// Sixteen bf16 values as floats, in order.
static inline Vec load_bf16(const std::byte* from) {
  const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(words), 16));
}

// Round to nearest even; NaN stays NaN (base/numeric.h to_bf16).
static inline Vec round_bf16(Vec value) {
  const Int bits = _mm512_castps_si512(value);
  const Int odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const Int up = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
  const __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
  const Int picked = _mm512_mask_or_epi32(up, nan, bits, _mm512_set1_epi32(0x400000));
  return _mm512_castsi512_ps(_mm512_and_si512(picked, _mm512_set1_epi32(static_cast<int>(0xFFFF0000U))));
}
static inline __m128 round_bf16(__m128 value) {
  return _mm512_castps512_ps128(round_bf16(_mm512_castps128_ps512(value)));
}
static inline Vec rounded(Vec value, Rounding rounding) {
  return rounding == Rounding::kBf16 ? round_bf16(value) : value;
}

// Two quarters of each, by _mm512_shuffle_f32x4's control.
template <int kControl>
static inline Vec quarters(Vec a, Vec b) {
  return _mm512_castsi512_ps(_mm512_shuffle_i32x4(_mm512_castps_si512(a), _mm512_castps_si512(b), kControl));
}

// The upper eight lanes are added to the lower ones, then as on AVX2.
static inline __m256 fold(Vec a) {
  return _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
}
static inline __m128 sum_lanes(Vec a, Vec b, Vec c, Vec d) {
  const __m256 pairs = _mm256_hadd_ps(_mm256_hadd_ps(fold(a), fold(b)), _mm256_hadd_ps(fold(c), fold(d)));
  return _mm_add_ps(_mm256_castps256_ps128(pairs), _mm256_extractf128_ps(pairs, 1));
}
// The same sums, added in the same order, of eight vectors at once: two thirds of the instructions.
static inline __m256 sum_lanes(Vec a, Vec b, Vec c, Vec d, Vec e, Vec f, Vec g, Vec h) {
  const auto halves = [](Vec x, Vec y) { return plus(quarters<0x44>(x, y), quarters<0xEE>(x, y)); };
  const auto pairs = [](Vec x, Vec y) { return plus(_mm512_shuffle_ps(x, y, 0x88), _mm512_shuffle_ps(x, y, 0xDD)); };
  const Vec all_pairs = pairs(pairs(halves(a, e), halves(b, f)), pairs(halves(c, g), halves(d, h)));
  const __m256 first = _mm512_castps512_ps256(all_pairs);
  const __m256 second = _mm512_extractf32x8_ps(all_pairs, 1);
  return _mm256_add_ps(_mm256_permute2f128_ps(first, second, 0x20), _mm256_permute2f128_ps(first, second, 0x31));
}
static inline float sum_lanes(Vec a) {
  return _mm_cvtss_f32(sum_lanes(a, a, a, a));
}
static inline float max_lanes(Vec a) {
  const __m256 half = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
  __m128 m = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  m = _mm_max_ps(m, _mm_movehl_ps(m, m));
  return _mm_cvtss_f32(_mm_max_ss(m, _mm_shuffle_ps(m, m, 1)));
}

// x = n ln2 + r; e^r - 1 by its Taylor polynomial of degree 7, and 2^n (avx2/simd.h).
static inline Vec exp_parts(Vec x, Vec* power) {
  x = _mm512_max_ps(all(-87.3365F), _mm512_min_ps(all(88.37F), x));
  const Vec n = _mm512_roundscale_ps(times(x, all(1.44269504F)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  Vec r = _mm512_fnmadd_ps(n, all(0.693145751953125F), x);
  r = _mm512_fnmadd_ps(n, all(1.42860682e-6F), r);
  Vec p = all(1.0F / 5040);
  p = fma(p, r, all(1.0F / 720));
  p = fma(p, r, all(1.0F / 120));
  p = fma(p, r, all(1.0F / 24));
  p = fma(p, r, all(1.0F / 6));
  p = fma(p, r, all(0.5F));
  p = fma(times(p, r), r, r);
  *power = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127)), 23));
  return p;
}

// 0 below the normal range.
static inline Vec exp(Vec x) {
  Vec power;
  const Vec p = exp_parts(x, &power);
  const __mmask16 large_enough = _mm512_cmp_ps_mask(x, all(-87.3365F), _CMP_NLT_UQ);
  return _mm512_maskz_mov_ps(large_enough, fma(power, p, power));
}

static inline Vec sigmoid(Vec x) {
  return over(all(1), plus(all(1), exp(minus(zero(), x))));
}

// tanh |x| = E / (E + 2) with E = e^{2|x|} - 1.
static inline Vec tanh(Vec x) {
  const Vec sign = _mm512_and_ps(x, all(-0.0F));
  const Vec magnitude = _mm512_min_ps(all(10), _mm512_andnot_ps(all(-0.0F), x));
  Vec power;
  const Vec p = exp_parts(plus(magnitude, magnitude), &power);
  const Vec e = fma(power, p, minus(power, all(1)));
  return _mm512_or_ps(sign, over(e, plus(e, all(2))));
}

// log(1 + y) for y in [0, 1]: 2 atanh(y / (2 + y)), series to the 15th power.
static inline Vec log1p(Vec y) {
  const Vec s = over(y, plus(y, all(2)));
  const Vec s2 = times(s, s);
  Vec p = all(1.0F / 15);
  p = fma(p, s2, all(1.0F / 13));
  p = fma(p, s2, all(1.0F / 11));
  p = fma(p, s2, all(1.0F / 9));
  p = fma(p, s2, all(1.0F / 7));
  p = fma(p, s2, all(1.0F / 5));
  p = fma(p, s2, all(1.0F / 3));
  p = fma(times(p, s2), s, s);
  return plus(p, p);
}

// Calls step(i, n) for [0, size) in steps of sixteen lanes; the last may have n < 16.
template <typename Step>
static inline void for_lanes(std::int64_t size, Step step) {
  std::int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) step(i, kLanes);
  if (i < size) step(i, size - i);
}
static inline Vec load_n(const float* from, std::int64_t n) {
  return n == kLanes ? load(from) : load_part(from, n);
}
static inline void store_n(float* to, std::int64_t n, Vec value) {
  if (n == kLanes) {
    store(to, value);
  } else {
    store_part(to, n, value);
  }
}

}  // namespace perigee::avx512
