// The total order of DSA selection: score descending, then position ascending.
#include <algorithm>
#include <bit>
#include <numeric>
#include <vector>

#include "kernels/kernels.h"

namespace perigee {
namespace {

// Monotone in the score, -0 equal to +0; NaN sorts last, so that a damaged score cannot break the ordering.
std::uint32_t order_key(float score) {
  if (score != score) return 0;
  const auto bits = std::bit_cast<std::uint32_t>(score + 0.0F);
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}

}  // namespace

std::int64_t select_top_k(const float* scores, std::int64_t n, std::int64_t k, std::int32_t* selected) {
  if (k >= n) {
    std::iota(selected, selected + n, 0);
    return n;
  }
  if (k <= 0) return 0;
  std::vector<std::int32_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  std::nth_element(order.begin(), order.begin() + (k - 1), order.end(), [scores](std::int32_t a, std::int32_t b) {
    const std::uint32_t key_a = order_key(scores[a]);
    const std::uint32_t key_b = order_key(scores[b]);
    return key_a != key_b ? key_a > key_b : a < b;
  });
  std::copy_n(order.begin(), k, selected);
  std::sort(selected, selected + k);
  return k;
}

}  // namespace perigee
