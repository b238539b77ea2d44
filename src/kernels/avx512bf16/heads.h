// Products of the heads of a query with cached keys, lanes along heads: keys are broadcast from where they lie, by
// pairs of columns, and no key is transposed or copied. Shared by index scores and attention.
#pragma once

#include "kernels/avx512bf16/transpose.h"
#include "kernels/wide/fetch.inl"

namespace perigee::avx512bf16 {

static inline std::int64_t head_groups(std::int64_t heads) {
  return (heads + kLanes - 1) / kLanes;
}

// q [heads, width], bf16 values, as pairs [width / 2][groups][16 heads][2 columns]; heads that are not there are zero.
static inline void pack_heads(const float* q, std::int64_t heads, std::int64_t width, Element* pairs) {
  const std::int64_t groups = head_groups(heads);
  for (std::int64_t g = 0; g < groups; ++g) {
    const std::int64_t first = g * kLanes;
    const std::int64_t count = heads - first < kLanes ? heads - first : kLanes;
    for (std::int64_t c = 0; c < width; c += 32) {
      Words rows[kLanes];
      for (std::int64_t h = 0; h < kLanes; ++h) {
        rows[h] = h < count ? upper_words(q + (first + h) * width + c, width - c) : _mm512_set1_epi32(0);
      }
      transpose(rows);
      const std::int64_t in_block = width - c < 32 ? (width - c) / 2 : kLanes;
      for (std::int64_t p = 0; p < in_block; ++p) store_words(pairs + ((c / 2 + p) * groups + g) * 32, rows[p]);
    }
  }
}

// Asks for the rows of keys that come later, a line at a time: a burst of 32 fills all the slots that a core has for
// misses, and the products wait behind them.
template <int kKeys>
struct NextKeys {
  const std::byte* rows[kKeys];
  void at_column(std::int64_t c) const {
    constexpr std::int64_t kApart = 32 / kKeys;  // columns; a line has 32
    if (c % kApart == 0) fetch(rows[c % 32 / kApart] + c / 32 * 64);
  }
};
struct NoNextKeys {
  void at_column(std::int64_t /*c*/) const {}
};

// acc[k][g] = products of key k with kGroups neighbouring groups of heads, columns ascending. stride: elements from one
// pair of columns to the next, 32 groups.
template <int kKeys, int kGroups, typename Next>
static inline void dot_heads(const std::byte* const* keys, const Next& next, std::int64_t width, const Element* pairs,
                             std::int64_t stride, Vec (&acc)[kKeys][kGroups]) {
#pragma GCC unroll 16
  for (int k = 0; k < kKeys; ++k) {
#pragma GCC unroll 2
    for (int g = 0; g < kGroups; ++g) acc[k][g] = zero();
  }
  for (std::int64_t c = 0; c < width; c += 2, pairs += stride) {
    next.at_column(c);
    Words heads[kGroups];
#pragma GCC unroll 2
    for (int g = 0; g < kGroups; ++g) heads[g] = load_once(pairs + 32 * g);
#pragma GCC unroll 16
    for (int k = 0; k < kKeys; ++k) {
      const Words key = broadcast_pair(keys[k] + 2 * c);
#pragma GCC unroll 2
      for (int g = 0; g < kGroups; ++g) acc[k][g] = multiply_add(heads[g], key, acc[k][g]);
    }
  }
}

}  // namespace perigee::avx512bf16
