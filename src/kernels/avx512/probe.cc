#include "kernels/avx512/probe.h"

#include "kernels/avx512/simd.h"

namespace perigee::avx512 {

void burn_fma(std::int64_t rounds) {
  Vec acc[12];
#pragma GCC unroll 12
  for (int i = 0; i < 12; ++i) acc[i] = all(static_cast<float>(i));
  const Vec a = all(0.999F);
  const Vec b = all(0.001F);
  for (std::int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 12
    for (int i = 0; i < 12; ++i) acc[i] = fma(acc[i], a, b);
  }
  Vec sum = zero();
#pragma GCC unroll 12
  for (int i = 0; i < 12; ++i) sum = plus(sum, acc[i]);
  volatile float keep = sum_lanes(sum);
  static_cast<void>(keep);
}

}  // namespace perigee::avx512
