// The AVX-512 instructions that only this folder's sources use, as loops; the rest comes from avx512/emulated, which
// stands next in the search order.
#pragma once
#pragma GCC system_header  // include_next is an extension

#include_next <immintrin.h>

#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace perigee::emulated {

struct Words {
  std::uint16_t v[32];
};

inline Ints widen_bytes(__m128i bytes) {
  std::uint8_t b[16];
  std::memcpy(b, &bytes, 16);
  return ints([&](int i) { return b[i]; });
}
struct Longs {
  std::uint64_t v[8];
};
inline Ints setr_longs(std::uint64_t a, std::uint64_t b, std::uint64_t c, std::uint64_t d, std::uint64_t e,
                       std::uint64_t f, std::uint64_t g, std::uint64_t h) {
  return bits<Ints>(Longs{{a, b, c, d, e, f, g, h}});
}
inline Ints srlv_longs(Ints a, Ints n) {
  auto out = bits<Longs>(a);
  const auto counts = bits<Longs>(n);
  for (int i = 0; i < 8; ++i) out.v[i] = counts.v[i] > 63 ? 0 : out.v[i] >> counts.v[i];
  return bits<Ints>(out);
}
inline Ints permute_words(Ints at, Ints a) {
  const auto index = bits<Words>(at);
  const auto from = bits<Words>(a);
  Words out;
  for (int i = 0; i < 32; ++i) out.v[i] = from.v[index.v[i] & 31U];
  return bits<Ints>(out);
}
inline Ints permute_words2(Ints a, Ints at, Ints b) {
  const auto index = bits<Words>(at);
  const auto low = bits<Words>(a);
  const auto high = bits<Words>(b);
  Words out;
  for (int i = 0; i < 32; ++i) out.v[i] = (index.v[i] & 32U) != 0 ? high.v[index.v[i] & 31U] : low.v[index.v[i] & 31U];
  return bits<Ints>(out);
}

inline float flushed(float x) {
  return std::fabs(x) < FLT_MIN ? std::copysign(0.0F, x) : x;
}

using Mask32 = std::uint32_t;
inline Ints maskz_load_words(Mask32 mask, const void* from) {
  Words out;
  for (int i = 0; i < 32; ++i) {
    out.v[i] = 0;
    if (((mask >> i) & 1U) != 0) std::memcpy(&out.v[i], static_cast<const char*>(from) + 2 * i, 2);
  }
  return bits<Ints>(out);
}

// As Intel's manual gives it, and as AMD's Zen 5 computes it: the odd element first, each product fused with its
// addition, subnormals as zero.
inline float word(std::uint32_t pair, int which) {
  return flushed(bits<float>(which == 0 ? pair << 16 : pair & 0xFFFF0000U));
}
inline Floats dot_bf16(Floats sum, Ints a, Ints b) {
  return floats([&](int i) {
    const float odd = flushed(std::fma(word(a.v[i], 1), word(b.v[i], 1), flushed(sum.v[i])));
    return flushed(std::fma(word(a.v[i], 0), word(b.v[i], 0), odd));
  });
}

}  // namespace perigee::emulated

#define __m512bh perigee::emulated::Ints
#define _mm512_dpbf16_ps perigee::emulated::dot_bf16
#define _mm512_cvtepu8_epi32 perigee::emulated::widen_bytes
#define _mm512_setr_epi64 perigee::emulated::setr_longs
#define _mm512_srlv_epi64 perigee::emulated::srlv_longs
#define __mmask32 perigee::emulated::Mask32
#define _mm512_maskz_loadu_epi16 perigee::emulated::maskz_load_words
#define _mm512_permutexvar_epi16 perigee::emulated::permute_words
#define _mm512_permutex2var_epi16 perigee::emulated::permute_words2
#define _mm512_or_si512 perigee::emulated::or_i
