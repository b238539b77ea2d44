// Vector helpers of the AVX2 path. Everything is static (internal linkage): this code is compiled with -mavx2 -mfma,
// and a shared inline copy could be linked into code that runs on older machines.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/kernels.h"
#include "kernels/scratch.h"

#define PERIGEE_PATH avx2

namespace perigee::avx2 {

using Vec = __m256;
using Int = __m256i;
static constexpr std::int64_t kLanes = 8;

static inline Vec zero() {
  return _mm256_setzero_ps();
}
static inline Vec load(const float* from) {
  return _mm256_loadu_ps(from);
}
static inline void store(float* to, Vec value) {
  _mm256_storeu_ps(to, value);
}
// Keeps one loaded vector in a register: the compiler would rather fold the load into each of its uses, and the tiles
// would then be bound by loads.
static inline Vec load_once(const float* from) {
  Vec value = _mm256_loadu_ps(from);
  asm("" : "+x"(value));
  return value;
}
static inline Vec broadcast_once(const float* from) {
  Vec value = _mm256_broadcast_ss(from);
  asm("" : "+x"(value));
  return value;
}
static inline Vec all(float value) {
  return _mm256_set1_ps(value);
}

// Lanes [0, n) set.
static inline Int lane_mask(std::int64_t n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
static inline Vec load_part(const float* from, std::int64_t n) {
  return _mm256_maskload_ps(from, lane_mask(n));
}
static inline void store_part(float* to, std::int64_t n, Vec value) {
  _mm256_maskstore_ps(to, lane_mask(n), value);
}

static inline Vec plus(Vec a, Vec b) {
  return _mm256_add_ps(a, b);
}
static inline Vec minus(Vec a, Vec b) {
  return _mm256_sub_ps(a, b);
}
static inline Vec times(Vec a, Vec b) {
  return _mm256_mul_ps(a, b);
}
static inline Vec over(Vec a, Vec b) {
  return _mm256_div_ps(a, b);
}
static inline Vec fma(Vec a, Vec b, Vec c) {
  return _mm256_fmadd_ps(a, b, c);
}
static inline Vec larger(Vec a, Vec b) {
  return _mm256_max_ps(a, b);
}  // b where either is NaN
static inline Vec broadcast(const float* from) {
  return _mm256_broadcast_ss(from);
}
static inline Vec minus_magnitude(Vec a) {
  return _mm256_or_ps(a, all(-0.0F));
}
static inline float first_lane(Vec a) {
  return _mm256_cvtss_f32(a);
}
// Lanes [0, n) of a, `other` elsewhere.
static inline Vec first_lanes(Vec a, std::int64_t n, Vec other) {
  return _mm256_blendv_ps(other, a, _mm256_castsi256_ps(lane_mask(n)));
}
static inline float inverse_root(float value) {
  return 1.0F / _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(value)));
}

// Eight bf16 values as floats, in order.
static inline Vec load_bf16(const std::byte* from) {
  const __m128i words = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(words), 16));
}

// Round to nearest even; NaN stays NaN (base/numeric.h to_bf16).
static inline Vec round_bf16(Vec value) {
  const Int bits = _mm256_castps_si256(value);
  const Int odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const Int up = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
  const Int nan = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const Vec picked =
      _mm256_blendv_ps(_mm256_castsi256_ps(up), _mm256_castsi256_ps(nan), _mm256_cmp_ps(value, value, _CMP_UNORD_Q));
  return _mm256_and_ps(picked, _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(0xFFFF0000U))));
}
static inline __m128 round_bf16(__m128 value) {
  return _mm256_castps256_ps128(round_bf16(_mm256_castps128_ps256(value)));
}
static inline Vec rounded(Vec value, Rounding rounding) {
  return rounding == Rounding::kBf16 ? round_bf16(value) : value;
}

// The eight lanes of a, b, c and d summed as ((0+1)+(2+3)) + ((4+5)+(6+7)): the one order of every dot product here.
static inline __m128 sum_lanes(Vec a, Vec b, Vec c, Vec d) {
  const Vec pairs = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
  return _mm_add_ps(_mm256_castps256_ps128(pairs), _mm256_extractf128_ps(pairs, 1));
}
static inline __m256 sum_lanes(Vec a, Vec b, Vec c, Vec d, Vec e, Vec f, Vec g, Vec h) {
  return _mm256_set_m128(sum_lanes(e, f, g, h), sum_lanes(a, b, c, d));
}
static inline float sum_lanes(Vec a) {
  return _mm_cvtss_f32(sum_lanes(a, a, a, a));
}
static inline float max_lanes(Vec a) {
  __m128 m = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  m = _mm_max_ps(m, _mm_movehl_ps(m, m));
  return _mm_cvtss_f32(_mm_max_ss(m, _mm_shuffle_ps(m, m, 1)));
}

// x = n ln2 + r, |r| <= ln2 / 2. Returns e^r - 1 by its Taylor polynomial (degree 7: 5e-9 relative) and 2^n.
// Finite bounds keep 2^n a normal number. NaN passes through (the second operand of min and max).
static inline Vec exp_parts(Vec x, Vec* power) {
  x = _mm256_max_ps(all(-87.3365F), _mm256_min_ps(all(88.37F), x));
  const Vec n = _mm256_round_ps(_mm256_mul_ps(x, all(1.44269504F)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  Vec r = _mm256_fnmadd_ps(n, all(0.693145751953125F), x);
  r = _mm256_fnmadd_ps(n, all(1.42860682e-6F), r);
  Vec p = all(1.0F / 5040);
  p = _mm256_fmadd_ps(p, r, all(1.0F / 720));
  p = _mm256_fmadd_ps(p, r, all(1.0F / 120));
  p = _mm256_fmadd_ps(p, r, all(1.0F / 24));
  p = _mm256_fmadd_ps(p, r, all(1.0F / 6));
  p = _mm256_fmadd_ps(p, r, all(0.5F));
  p = _mm256_fmadd_ps(_mm256_mul_ps(p, r), r, r);
  const Int exponent = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
  *power = _mm256_castsi256_ps(exponent);
  return p;
}

// 0 below the normal range.
static inline Vec exp(Vec x) {
  Vec power;
  const Vec p = exp_parts(x, &power);
  const Vec too_small = _mm256_cmp_ps(x, all(-87.3365F), _CMP_LT_OQ);
  return _mm256_andnot_ps(too_small, _mm256_fmadd_ps(power, p, power));
}

static inline Vec sigmoid(Vec x) {
  const Vec e = exp(_mm256_sub_ps(zero(), x));
  return _mm256_div_ps(all(1), _mm256_add_ps(all(1), e));
}

// tanh |x| = E / (E + 2) with E = e^{2|x|} - 1, which keeps its relative accuracy near 0.
static inline Vec tanh(Vec x) {
  const Vec sign = _mm256_and_ps(x, all(-0.0F));
  const Vec magnitude = _mm256_min_ps(all(10), _mm256_andnot_ps(all(-0.0F), x));
  Vec power;
  const Vec p = exp_parts(_mm256_add_ps(magnitude, magnitude), &power);
  const Vec e = _mm256_fmadd_ps(power, p, _mm256_sub_ps(power, all(1)));
  return _mm256_or_ps(sign, _mm256_div_ps(e, _mm256_add_ps(e, all(2))));
}

// log(1 + y) for y in [0, 1]: 2 atanh(s) with s = y / (2 + y) <= 1/3, series to s^15.
static inline Vec log1p(Vec y) {
  const Vec s = _mm256_div_ps(y, _mm256_add_ps(y, all(2)));
  const Vec s2 = _mm256_mul_ps(s, s);
  Vec p = all(1.0F / 15);
  p = _mm256_fmadd_ps(p, s2, all(1.0F / 13));
  p = _mm256_fmadd_ps(p, s2, all(1.0F / 11));
  p = _mm256_fmadd_ps(p, s2, all(1.0F / 9));
  p = _mm256_fmadd_ps(p, s2, all(1.0F / 7));
  p = _mm256_fmadd_ps(p, s2, all(1.0F / 5));
  p = _mm256_fmadd_ps(p, s2, all(1.0F / 3));
  p = _mm256_fmadd_ps(_mm256_mul_ps(p, s2), s, s);
  return _mm256_add_ps(p, p);
}

// Calls step(i, n) for [0, size) in steps of eight lanes; the last may have n < 8.
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

}  // namespace perigee::avx2
