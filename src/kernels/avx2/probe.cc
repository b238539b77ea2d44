#include "kernels/probe.h"

#include "kernels/avx2/probe.h"
#include "kernels/avx2/simd.h"

namespace perigee {

// Twelve chains, as the tiles have: more than latency times throughput of any core so far.
void avx2::burn_fma(std::int64_t rounds) {
  Vec acc[12];
#pragma GCC unroll 12
  for (int i = 0; i < 12; ++i) acc[i] = all(static_cast<float>(i));
  const Vec a = all(0.999F);
  const Vec b = all(0.001F);
  for (std::int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 12
    for (int i = 0; i < 12; ++i) acc[i] = _mm256_fmadd_ps(acc[i], a, b);
  }
  Vec sum = zero();
#pragma GCC unroll 12
  for (int i = 0; i < 12; ++i) sum = _mm256_add_ps(sum, acc[i]);
  volatile float keep = sum_lanes(sum);
  static_cast<void>(keep);
}

// Four streams a quarter apart: one alone does not keep enough lines in flight.
std::uint64_t read_probe(const std::byte* data, std::size_t bytes) {
  using avx2::Int;
  Int sums[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) sums[i] = _mm256_setzero_si256();
  const std::size_t quarter = bytes / 4;
  for (std::size_t at = 0; at < quarter; at += 128) {
#pragma GCC unroll 4
    for (std::size_t stream = 0; stream < 4; ++stream) {
      const auto* from = reinterpret_cast<const Int*>(data + stream * quarter + at);
      sums[2 * stream] =
          _mm256_xor_si256(sums[2 * stream], _mm256_xor_si256(_mm256_loadu_si256(from), _mm256_loadu_si256(from + 1)));
      sums[2 * stream + 1] = _mm256_xor_si256(
          sums[2 * stream + 1], _mm256_xor_si256(_mm256_loadu_si256(from + 2), _mm256_loadu_si256(from + 3)));
    }
  }
#pragma GCC unroll 8
  for (int i = 1; i < 8; ++i) sums[0] = _mm256_xor_si256(sums[0], sums[i]);
  return static_cast<std::uint64_t>(_mm256_extract_epi64(sums[0], 0) ^ _mm256_extract_epi64(sums[0], 2));
}

}  // namespace perigee
