// Inter-token gaps of the last tokens: the median and the 99th percentile that users feel.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

namespace perigee {

class GapMeter {
 public:
  void record(double seconds) {
    window_[next_ % window_.size()] = seconds;
    ++next_;
  }
  // 0 when nothing was recorded. `share` in [0, 1].
  double percentile(double share) const {
    const std::size_t count = std::min(next_, window_.size());
    if (count == 0) return 0;
    std::vector<double> sorted(window_.begin(), window_.begin() + static_cast<std::ptrdiff_t>(count));
    const auto at = std::min(count - 1, static_cast<std::size_t>(share * static_cast<double>(count)));
    std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(at), sorted.end());
    return sorted[at];
  }

 private:
  std::array<double, 2048> window_{};
  std::size_t next_ = 0;
};

}  // namespace perigee
