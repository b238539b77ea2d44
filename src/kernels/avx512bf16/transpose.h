#pragma once

#include "kernels/avx512bf16/simd.h"

namespace perigee::avx512bf16 {

// Sixteen rows of sixteen 32-bit elements.
static inline void transpose(Int* r) {
  Int a[16];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    a[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
    a[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
  }
  // b[4 i + j], quarter q: elements 4 q + j of rows 4 i ... 4 i + 3.
  Int b[16];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    b[4 * i] = _mm512_unpacklo_epi64(a[4 * i], a[4 * i + 2]);
    b[4 * i + 1] = _mm512_unpackhi_epi64(a[4 * i], a[4 * i + 2]);
    b[4 * i + 2] = _mm512_unpacklo_epi64(a[4 * i + 1], a[4 * i + 3]);
    b[4 * i + 3] = _mm512_unpackhi_epi64(a[4 * i + 1], a[4 * i + 3]);
  }
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const Int even_low = _mm512_shuffle_i32x4(b[j], b[4 + j], 0x88);
    const Int odd_low = _mm512_shuffle_i32x4(b[j], b[4 + j], 0xDD);
    const Int even_high = _mm512_shuffle_i32x4(b[8 + j], b[12 + j], 0x88);
    const Int odd_high = _mm512_shuffle_i32x4(b[8 + j], b[12 + j], 0xDD);
    r[j] = _mm512_shuffle_i32x4(even_low, even_high, 0x88);
    r[4 + j] = _mm512_shuffle_i32x4(odd_low, odd_high, 0x88);
    r[8 + j] = _mm512_shuffle_i32x4(even_low, even_high, 0xDD);
    r[12 + j] = _mm512_shuffle_i32x4(odd_low, odd_high, 0xDD);
  }
}

}  // namespace perigee::avx512bf16
