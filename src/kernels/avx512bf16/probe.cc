#include "kernels/avx512bf16/probe.h"

#include "kernels/avx512bf16/simd.h"

namespace perigee::avx512bf16 {

void burn_dot(std::int64_t rounds) {
  Vec acc[12];
#pragma GCC unroll 12
  for (int i = 0; i < 12; ++i) acc[i] = all(static_cast<float>(i));
  const Words a = _mm512_set1_epi32(0x3F7F3F7F);  // just below one
  const Words b = _mm512_set1_epi32(0x3A833A83);
  for (std::int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 12
    for (int i = 0; i < 12; ++i) acc[i] = multiply_add(a, b, acc[i]);
  }
  Vec sum = zero();
#pragma GCC unroll 12
  for (int i = 0; i < 12; ++i) sum = plus(sum, acc[i]);
  volatile float keep = sum_lanes(sum);
  static_cast<void>(keep);
}

}  // namespace perigee::avx512bf16
