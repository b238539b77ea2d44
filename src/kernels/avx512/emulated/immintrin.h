// The AVX-512 instructions that this folder's sources use, as loops over sixteen lanes: the test of the path on
// machines that cannot run it. Found before the compiler's own <immintrin.h>, which it includes for AVX2.
#pragma once
#pragma GCC system_header  // include_next is an extension

#include_next <immintrin.h>

#include <cmath>
#include <cstdint>
#include <cstring>

namespace perigee::emulated {

struct Floats {
  float v[16];
};
struct Ints {
  std::uint32_t v[16];
};

template <typename To, typename From>
inline To bits(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(To));
  return to;
}
template <typename Lane>
inline Floats floats(Lane lane) {
  Floats out;
  for (int i = 0; i < 16; ++i) out.v[i] = lane(i);
  return out;
}
template <typename Lane>
inline Ints ints(Lane lane) {
  Ints out;
  for (int i = 0; i < 16; ++i) out.v[i] = static_cast<std::uint32_t>(lane(i));
  return out;
}

using Mask = std::uint16_t;
inline bool on(Mask mask, int i) {
  return ((mask >> i) & 1) != 0;
}

inline Floats zero() {
  return floats([](int) { return 0.0F; });
}
inline Floats set(float x) {
  return floats([&](int) { return x; });
}
template <typename... T>
inline Floats setr_f(T... x) {
  const float list[16] = {static_cast<float>(x)...};
  return floats([&](int i) { return list[i]; });
}
inline Ints set_i(int x) {
  return ints([&](int) { return x; });
}
template <typename... T>
inline Ints setr_i(T... x) {
  const int list[16] = {x...};
  return ints([&](int i) { return list[i]; });
}
inline Floats load_f(const void* p) {
  Floats x;
  std::memcpy(&x, p, 64);
  return x;
}
inline Ints load_i(const void* p) {
  Ints x;
  std::memcpy(&x, p, 64);
  return x;
}
inline void store_f(void* p, Floats x) {
  std::memcpy(p, &x, 64);
}
inline Floats maskz_load(Mask m, const float* p) {
  return floats([&](int i) { return on(m, i) ? p[i] : 0.0F; });
}
inline void mask_store(float* p, Mask m, Floats x) {
  for (int i = 0; i < 16; ++i) {
    if (on(m, i)) p[i] = x.v[i];
  }
}
inline Floats add(Floats a, Floats b) {
  return floats([&](int i) { return a.v[i] + b.v[i]; });
}
inline Floats sub(Floats a, Floats b) {
  return floats([&](int i) { return a.v[i] - b.v[i]; });
}
inline Floats mul(Floats a, Floats b) {
  return floats([&](int i) { return a.v[i] * b.v[i]; });
}
inline Floats div(Floats a, Floats b) {
  return floats([&](int i) { return a.v[i] / b.v[i]; });
}
inline Floats fmadd(Floats a, Floats b, Floats c) {
  return floats([&](int i) { return std::fma(a.v[i], b.v[i], c.v[i]); });
}
inline Floats fnmadd(Floats a, Floats b, Floats c) {
  return floats([&](int i) { return std::fma(-a.v[i], b.v[i], c.v[i]); });
}
inline Floats max(Floats a, Floats b) {
  return floats([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
inline Floats min(Floats a, Floats b) {
  return floats([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
}
inline Ints and_i(Ints a, Ints b) {
  return ints([&](int i) { return a.v[i] & b.v[i]; });
}
inline Ints or_i(Ints a, Ints b) {
  return ints([&](int i) { return a.v[i] | b.v[i]; });
}
inline Floats and_f(Floats a, Floats b) {
  return bits<Floats>(and_i(bits<Ints>(a), bits<Ints>(b)));
}
inline Floats or_f(Floats a, Floats b) {
  return bits<Floats>(or_i(bits<Ints>(a), bits<Ints>(b)));
}
inline Floats andnot_f(Floats a, Floats b) {
  const Ints x = bits<Ints>(a);
  const Ints y = bits<Ints>(b);
  return bits<Floats>(ints([&](int i) { return ~x.v[i] & y.v[i]; }));
}
inline Ints add_i(Ints a, Ints b) {
  return ints([&](int i) { return a.v[i] + b.v[i]; });
}
inline Ints slli(Ints a, unsigned n) {
  return ints([&](int i) { return a.v[i] << n; });
}
inline Ints srli(Ints a, unsigned n) {
  return ints([&](int i) { return a.v[i] >> n; });
}
inline Ints srlv(Ints a, Ints n) {
  return ints([&](int i) { return n.v[i] > 31 ? 0U : a.v[i] >> n.v[i]; });
}
inline Ints mask_or(Ints from, Mask m, Ints a, Ints b) {
  return ints([&](int i) { return on(m, i) ? a.v[i] | b.v[i] : from.v[i]; });
}
inline Floats mask_blend(Mask m, Floats a, Floats b) {
  return floats([&](int i) { return on(m, i) ? b.v[i] : a.v[i]; });
}
inline Floats maskz_mov(Mask m, Floats a) {
  return floats([&](int i) { return on(m, i) ? a.v[i] : 0.0F; });
}
inline Mask compare(Floats a, Floats b, int predicate) {
  Mask m = 0;
  for (int i = 0; i < 16; ++i) {
    const bool unordered = a.v[i] != a.v[i] || b.v[i] != b.v[i];
    const bool set_lane = predicate == _CMP_UNORD_Q ? unordered : unordered || a.v[i] >= b.v[i];  // _CMP_NLT_UQ
    m = static_cast<Mask>(m | (set_lane ? 1U << i : 0U));
  }
  return m;
}
inline Floats round_even(Floats a) {
  return floats([&](int i) { return std::nearbyint(a.v[i]); });
}
inline Ints to_ints(Floats a) {
  return ints([&](int i) { return static_cast<std::int32_t>(std::nearbyint(a.v[i])); });
}
inline Ints widen_words(__m256i words) {
  std::uint16_t w[16];
  std::memcpy(w, &words, 32);
  return ints([&](int i) { return w[i]; });
}
inline Ints twice(__m256i half) {
  std::uint32_t w[8];
  std::memcpy(w, &half, 32);
  return ints([&](int i) { return w[i % 8]; });
}
inline Floats permute(Ints at, Floats a) {
  return floats([&](int i) { return a.v[at.v[i] & 15U]; });
}
inline Floats permute2(Floats a, Ints at, Floats b) {
  return floats([&](int i) { return (at.v[i] & 16U) != 0 ? b.v[at.v[i] & 15U] : a.v[at.v[i] & 15U]; });
}
inline Floats gather(Ints at, const void* base) {
  return floats([&](int i) { return static_cast<const float*>(base)[at.v[i]]; });
}
// Per quarter: elements first, first + 1 of a and b in turn.
inline Ints unpack32(Ints a, Ints b, int first) {
  return ints([&](int i) { return (i % 2 == 0 ? a : b).v[i / 4 * 4 + first + i % 4 / 2]; });
}
inline Ints unpack64(Ints a, Ints b, int first) {
  return ints([&](int i) { return (i % 4 < 2 ? a : b).v[i / 4 * 4 + first + i % 2]; });
}
inline Floats shuffle_floats(Floats a, Floats b, int control) {
  return floats([&](int i) {
    const int from = i / 4 * 4 + ((control >> (2 * (i % 4))) & 3);
    return i % 4 < 2 ? a.v[from] : b.v[from];
  });
}
inline Ints shuffle_quarters(Ints a, Ints b, int control) {
  return ints([&](int i) { return (i < 8 ? a : b).v[((control >> (i / 4 * 2)) & 3) * 4 + i % 4]; });
}
inline void store_i(void* p, Ints x) {
  std::memcpy(p, &x, 64);
}
// Instructions that work within 128 bits, on two halves.
template <typename Half>
inline Ints halves(Ints a, Ints b, Half half) {
  Ints out;
  for (int i = 0; i < 2; ++i) {
    const auto load = [i](const Ints& x) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x.v) + i); };
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out.v) + i, half(load(a), load(b)));
  }
  return out;
}
inline Ints shuffle_bytes(Ints a, Ints at) {
  return halves(a, at, [](__m256i x, __m256i y) { return _mm256_shuffle_epi8(x, y); });
}
inline Ints maddubs(Ints a, Ints b) {
  return halves(a, b, [](__m256i x, __m256i y) { return _mm256_maddubs_epi16(x, y); });
}
inline Ints madd16(Ints a, Ints b) {
  return halves(a, b, [](__m256i x, __m256i y) { return _mm256_madd_epi16(x, y); });
}
inline Ints add16(Ints a, Ints b) {
  return halves(a, b, [](__m256i x, __m256i y) { return _mm256_add_epi16(x, y); });
}
inline Floats cvt_f(Ints a) {
  return floats([&](int i) { return static_cast<float>(static_cast<std::int32_t>(a.v[i])); });
}
inline Ints four_times(__m128i quarter) {
  std::uint32_t w[4];
  std::memcpy(w, &quarter, 16);
  return ints([&](int i) { return w[i % 4]; });
}
inline Ints insert_quarter(Ints a, __m128i quarter, int at) {
  std::memcpy(a.v + 4 * at, &quarter, 16);
  return a;
}
inline __m256 half(Floats a, int which) {
  return _mm256_loadu_ps(a.v + 8 * which);
}
inline __m128 quarter(Floats a) {
  return _mm_loadu_ps(a.v);
}
inline Floats widen_quarter(__m128 a) {
  Floats out = zero();
  _mm_storeu_ps(out.v, a);
  return out;
}

}  // namespace perigee::emulated

#undef _mm512_setr_ps
#undef _mm512_setr_epi32
#define __m512 perigee::emulated::Floats
#define __m512i perigee::emulated::Ints
#define __mmask16 perigee::emulated::Mask
#define _mm512_setzero_ps perigee::emulated::zero
#define _mm512_set1_ps perigee::emulated::set
#define _mm512_setr_ps perigee::emulated::setr_f
#define _mm512_set1_epi32 perigee::emulated::set_i
#define _mm512_setr_epi32 perigee::emulated::setr_i
#define _mm512_loadu_ps perigee::emulated::load_f
#define _mm512_loadu_si512 perigee::emulated::load_i
#define _mm512_storeu_ps perigee::emulated::store_f
#define _mm512_maskz_loadu_ps perigee::emulated::maskz_load
#define _mm512_mask_storeu_ps perigee::emulated::mask_store
#define _mm512_unpacklo_epi32(a, b) perigee::emulated::unpack32(a, b, 0)
#define _mm512_unpackhi_epi32(a, b) perigee::emulated::unpack32(a, b, 2)
#define _mm512_unpacklo_epi64(a, b) perigee::emulated::unpack64(a, b, 0)
#define _mm512_unpackhi_epi64(a, b) perigee::emulated::unpack64(a, b, 2)
#undef _mm512_shuffle_i32x4
#define _mm512_shuffle_ps perigee::emulated::shuffle_floats
#define _mm512_shuffle_i32x4 perigee::emulated::shuffle_quarters
#define _mm512_storeu_si512 perigee::emulated::store_i
#define _mm512_shuffle_epi8 perigee::emulated::shuffle_bytes
#define _mm512_maddubs_epi16 perigee::emulated::maddubs
#define _mm512_madd_epi16 perigee::emulated::madd16
#define _mm512_add_epi16 perigee::emulated::add16
#define _mm512_cvtepi32_ps perigee::emulated::cvt_f
#define _mm512_broadcast_i32x4 perigee::emulated::four_times
#undef _mm512_inserti32x4
#define _mm512_inserti32x4 perigee::emulated::insert_quarter
#define _mm512_add_ps perigee::emulated::add
#define _mm512_sub_ps perigee::emulated::sub
#define _mm512_mul_ps perigee::emulated::mul
#define _mm512_div_ps perigee::emulated::div
#define _mm512_fmadd_ps perigee::emulated::fmadd
#define _mm512_fnmadd_ps perigee::emulated::fnmadd
#define _mm512_max_ps perigee::emulated::max
#define _mm512_min_ps perigee::emulated::min
#define _mm512_and_ps perigee::emulated::and_f
#define _mm512_or_ps perigee::emulated::or_f
#define _mm512_andnot_ps perigee::emulated::andnot_f
#define _mm512_and_si512 perigee::emulated::and_i
#define _mm512_add_epi32 perigee::emulated::add_i
#define _mm512_slli_epi32 perigee::emulated::slli
#define _mm512_srli_epi32 perigee::emulated::srli
#define _mm512_srlv_epi32 perigee::emulated::srlv
#define _mm512_mask_or_epi32 perigee::emulated::mask_or
#define _mm512_mask_blend_ps perigee::emulated::mask_blend
#define _mm512_maskz_mov_ps perigee::emulated::maskz_mov
#define _mm512_cmp_ps_mask perigee::emulated::compare
#define _mm512_roundscale_ps(a, mode) perigee::emulated::round_even(a)
#define _mm512_cvtps_epi32 perigee::emulated::to_ints
#define _mm512_cvtepu16_epi32 perigee::emulated::widen_words
#define _mm512_broadcast_i64x4 perigee::emulated::twice
#define _mm512_permutexvar_ps perigee::emulated::permute
#define _mm512_permutex2var_ps perigee::emulated::permute2
#define _mm512_i32gather_ps(at, base, scale) perigee::emulated::gather(at, base)
#define _mm512_castps_si512 perigee::emulated::bits<perigee::emulated::Ints>
#define _mm512_castsi512_ps perigee::emulated::bits<perigee::emulated::Floats>
#define _mm512_castps512_ps256(a) perigee::emulated::half(a, 0)
#define _mm512_extractf32x8_ps perigee::emulated::half
#define _mm512_castps512_ps128 perigee::emulated::quarter
#define _mm512_castps128_ps512 perigee::emulated::widen_quarter
#define _mm512_cvtss_f32(a) ((a).v[0])
