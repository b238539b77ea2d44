// The total order of DSA selection: score descending, then position ascending.
#include "kernels/top_k.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
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

float score_of(std::uint32_t order_key) {
  return std::bit_cast<float>((order_key & 0x80000000U) != 0 ? order_key ^ 0x80000000U : ~order_key);
}

struct Digit {
  int shift;
  int bits;
};
constexpr Digit kDigits[] = {{21, 11}, {10, 11}, {0, 10}};

// The k-th largest key, and how many keys equal to it are among the k largest. Digit by digit: each pass counts the
// keys that agree with the digits so far.
struct Threshold {
  std::uint32_t key;
  std::int64_t equal;
  // Whether a key is among the k largest; to be asked in the order of positions.
  bool admits(std::uint32_t other) { return other > key || (other == key && equal-- > 0); }
};
template <typename KeyAt>
Threshold find_threshold(std::int64_t n, std::int64_t k, KeyAt key_at) {
  Threshold found = {.key = 0, .equal = k};  // the key's lower end holds the digits found
  for (const Digit& digit : kDigits) {
    const std::uint32_t mask = (1U << digit.bits) - 1;
    // Neighbours often fall into one bin; two tables keep their increments from waiting for each other.
    std::array<std::array<std::uint32_t, 2048>, 2> counts{};
    for (std::int64_t i = 0; i < n; ++i) {
      const std::uint64_t key = key_at(i);
      if (key >> (digit.shift + digit.bits) == found.key) ++counts[i & 1][(key >> digit.shift) & mask];
    }
    std::uint32_t bin = mask;
    const auto count = [&counts](std::uint32_t at) { return static_cast<std::int64_t>(counts[0][at]) + counts[1][at]; };
    while (found.equal > count(bin)) found.equal -= count(bin--);
    found.key = found.key << digit.bits | bin;
  }
  return found;
}

constexpr std::size_t kGroups = 4096;
constexpr std::size_t kCandidates = 2 * kGroups;
constexpr std::int64_t kTogether = 16;  // scores that are compared before one of them is looked at

// The largest of each of `groups` groups of scores, every groups-th one; -infinity where there is none but NaN.
void group_maxima(const float* scores, std::int64_t n, std::int64_t groups, float* largest) {
  std::fill_n(largest, groups, -std::numeric_limits<float>::infinity());
  for (std::int64_t at = 0; at + groups <= n; at += groups) {
    for (std::int64_t i = 0; i < groups; ++i) {
      const float score = scores[at + i];
      largest[i] = score > largest[i] ? score : largest[i];  // passes by a NaN
    }
  }
}

// The k-th largest of the maxima of at least k groups: k scores reach it, and of many scores not many more. A bound of
// -infinity excludes nothing.
float reached_by_k(const float* maxima, std::int64_t count, std::int64_t k) {
  return score_of(find_threshold(count, k, [=](std::int64_t i) { return order_key(maxima[i]); }).key);
}

// NaN reaches every bound: it may have to be selected, last of all.
bool reaches(float score, float lowest) {
  return !(score < lowest);
}

// Calls collect(begin, end) for the runs of scores in which one reaches `lowest`, and for the rest that fills no run;
// stops where it returns false, and returns whether it never did.
template <typename Collect>
bool each_run_that_reaches(float lowest, const float* scores, std::int64_t n, Collect collect) {
  std::int64_t at = 0;
  for (; at + kTogether <= n; at += kTogether) {
    int any = 0;
    for (std::int64_t i = at; i < at + kTogether; ++i) any |= reaches(scores[i], lowest) ? 1 : 0;
    if (any != 0 && !collect(at, at + kTogether)) return false;
  }
  return collect(at, n);
}

// Selects among the scores that reach `lowest`, at least k of them; false where they are too many.
bool select_from(float lowest, const float* scores, std::int64_t n, std::int64_t k, std::int32_t* selected) {
  std::array<std::uint32_t, kCandidates + 1> keys;
  std::array<std::int32_t, kCandidates + 1> positions;
  std::size_t count = 0;
  const auto collect = [&](std::int64_t begin, std::int64_t end) {  // false: no room
    if (count + kTogether > kCandidates) return false;
    for (std::int64_t i = begin; i < end; ++i) {
      keys[count] = order_key(scores[i]);
      positions[count] = static_cast<std::int32_t>(i);
      count += reaches(scores[i], lowest) ? 1 : 0;
    }
    return true;
  };
  if (!each_run_that_reaches(lowest, scores, n, collect)) return false;

  Threshold threshold = find_threshold(static_cast<std::int64_t>(count), k,
                                       [&](std::int64_t i) { return keys[static_cast<std::size_t>(i)]; });
  for (std::size_t i = 0; i < count; ++i) {
    if (threshold.admits(keys[i])) *selected++ = positions[i];
  }
  return true;
}

}  // namespace

// Of many scores most lie below a bound that a first pass finds; a second collects the rest. Four passes over all
// scores where they are few, or where too many equal the bound.
std::int64_t select_top_k(const float* scores, std::int64_t n, std::int64_t k, std::int32_t* selected) {
  if (k >= n) {
    std::iota(selected, selected + n, 0);
    return n;
  }
  if (k <= 0) return 0;
  constexpr auto kGroupCount = static_cast<std::int64_t>(kGroups);
  if (2 * k <= kGroupCount && n >= 4 * kGroupCount) {
    std::array<float, kGroups> largest;
    group_maxima(scores, n, kGroupCount, largest.data());
    if (select_from(reached_by_k(largest.data(), kGroupCount, k), scores, n, k, selected)) return k;
  }
  const auto key_at = [&](std::int64_t i) { return order_key(scores[i]); };
  Threshold threshold = find_threshold(n, k, key_at);
  for (std::int64_t i = 0, found = 0; found < k; ++i) {
    if (threshold.admits(key_at(i))) selected[found++] = static_cast<std::int32_t>(i);
  }
  return k;
}

void PiecewiseTopK::start(std::int64_t n, std::int64_t k, std::int64_t piece, std::int64_t room) {
  n_ = n;
  k_ = k;
  piece_ = piece;
  pieces_ = (n + piece - 1) / piece;
  // Twice as many groups as scores wanted: their k-th largest maximum is reached by few more than k scores.
  groups_ = std::min(piece, (2 * k + pieces_ - 1) / pieces_);
  const std::int64_t most_pieces = (room + piece - 1) / piece;
  maxima_.ensure(2 * k + most_pieces);
  counts_.ensure(most_pieces);
  positions_.ensure(room);
}

std::int64_t PiecewiseTopK::size_of(std::int64_t index) const {
  return std::min(piece_, n_ - index * piece_);
}

void PiecewiseTopK::note(std::int64_t index, const float* scores) {
  group_maxima(scores + index * piece_, size_of(index), groups_, maxima_.data() + index * groups_);
}

void PiecewiseTopK::bound() {
  const std::int64_t count = pieces_ * groups_;
  lowest_ = count < k_ ? -std::numeric_limits<float>::infinity() : reached_by_k(maxima_.data(), count, k_);
}

void PiecewiseTopK::collect(std::int64_t index, float* scores) {
  const std::int64_t first = index * piece_;
  float* mine = scores + first;  // those that were found are never more than those that were looked at
  std::int32_t* positions = positions_.data() + first;
  std::int64_t count = 0;
  each_run_that_reaches(lowest_, mine, size_of(index), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const float score = mine[i];
      mine[count] = score;
      positions[count] = static_cast<std::int32_t>(first + i);
      count += reaches(score, lowest_) ? 1 : 0;
    }
    return true;
  });
  counts_.data()[index] = count;
}

void PiecewiseTopK::finish(float* scores, std::int32_t* selected) {
  std::int32_t* positions = positions_.data();
  std::int64_t count = counts_.data()[0];
  for (std::int64_t index = 1; index < pieces_; ++index) {
    const std::int64_t from = index * piece_;
    std::copy_n(scores + from, counts_.data()[index], scores + count);
    std::copy_n(positions + from, counts_.data()[index], positions + count);
    count += counts_.data()[index];
  }
  Threshold threshold = find_threshold(count, k_, [&](std::int64_t i) { return order_key(scores[i]); });
  for (std::int64_t i = 0; i < count; ++i) {
    if (threshold.admits(order_key(scores[i]))) *selected++ = positions[i];
  }
}

}  // namespace perigee
