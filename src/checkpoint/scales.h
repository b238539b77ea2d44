// A scale that is not a number poisons every product of its group, so such a checkpoint is refused (spec 7.1).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/inventory.h"

namespace perigee {

struct ScaleCheck {
  std::int64_t bytes = 0;    // of all scales
  std::int64_t checked = 0;  // of them looked at
};

// Looks at every scale where all scales together have at most `complete_bytes`; otherwise at the first 4 KiB of the
// scales of at most 4096 matrices, evenly chosen (reading all of them costs K3 85 GB from disk before the first
// token). An error names the tensor and the value. Parallel.
Result<ScaleCheck> check_scales(const std::vector<TensorSpec>& specs, std::int64_t complete_bytes);

constexpr std::int64_t kCompleteScaleBytes = std::int64_t{1} << 30;

}  // namespace perigee
