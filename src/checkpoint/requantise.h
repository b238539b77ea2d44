// bf16 matrices as int8 groups, made while a checkpoint is opened: `--weights int8`. Half of the bytes to read for each
// token, and products in integers (kernels/block_integers.h). It changes what the model computes, so nobody gets it who
// did not ask; `perigee eval` says by how much.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "checkpoint/inventory.h"
#include "checkpoint/region.h"

namespace perigee {

struct Requantised {
  MemoryRegion region;              // what the matrices point into now
  std::int64_t replaced_bytes = 0;  // stored bytes that nobody reads any more
};

struct RequantiseOptions {
  bool stored_in_mappings = false;  // the stored bytes are mapped files, whose pages are given back
  bool show_progress = false;
};

// Each matrix of `specs` that is stored as BF16, may be re-quantised (TensorSpec::keep_bf16) and is none of the plain
// ones becomes kInt8Group with a bf16 scale for every 32 columns:
//   scale = bf16(largest |w| of the group / 127), code = w / scale to the nearest integer in [-127, 127]
// A group whose largest is below 2^-100 becomes zeros. Fails where a weight is not finite.
Result<Requantised> requantise_int8(const std::vector<TensorSpec>& specs, const RequantiseOptions& options);

}  // namespace perigee
