// The total order of DSA selection: score descending, then position ascending.
#include <array>
#include <bit>
#include <numeric>

#include "kernels/kernels.h"

namespace perigee {
namespace {

// Monotone in the score, -0 equal to +0; NaN sorts last, so that a damaged score cannot break the ordering. Without
// branches: signs are random.
std::uint32_t order_key(float score) {
  const auto bits = std::bit_cast<std::uint32_t>(score + 0.0F);
  const std::uint32_t flip = (0U - (bits >> 31)) | 0x80000000U;
  return score != score ? 0 : bits ^ flip;
}

struct Digit {
  int shift;
  int bits;
};
constexpr Digit kDigits[] = {{21, 11}, {10, 11}, {0, 10}};

}  // namespace

// The k-th largest key is found digit by digit: each pass counts the keys that agree with the digits so far. Four
// passes over the scores, no memory.
std::int64_t select_top_k(const float* scores, std::int64_t n, std::int64_t k, std::int32_t* selected) {
  if (k >= n) {
    std::iota(selected, selected + n, 0);
    return n;
  }
  if (k <= 0) return 0;
  std::uint32_t threshold = 0;  // the digits found, at the lower end
  std::int64_t equal = k;       // how many keys with these digits are among the k largest
  for (const Digit& digit : kDigits) {
    const std::uint32_t mask = (1U << digit.bits) - 1;
    // Neighbours often fall into one bin; two tables keep their increments from waiting for each other.
    std::array<std::array<std::uint32_t, 2048>, 2> counts{};
    for (std::int64_t i = 0; i < n; ++i) {
      const std::uint64_t key = order_key(scores[i]);
      if (key >> (digit.shift + digit.bits) == threshold) ++counts[i & 1][(key >> digit.shift) & mask];
    }
    std::uint32_t bin = mask;
    const auto count = [&counts](std::uint32_t at) { return static_cast<std::int64_t>(counts[0][at]) + counts[1][at]; };
    while (equal > count(bin)) equal -= count(bin--);
    threshold = threshold << digit.bits | bin;
  }
  std::int64_t found = 0;
  for (std::int32_t i = 0; found < k; ++i) {
    const std::uint32_t key = order_key(scores[i]);
    if (key < threshold || (key == threshold && equal-- <= 0)) continue;
    selected[found++] = i;
  }
  return k;
}

}  // namespace perigee
