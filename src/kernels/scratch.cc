#include "kernels/scratch.h"

#include <cstdlib>

#include "base/huge_buffer.h"

namespace perigee {

// Huge pages matter here: the operators fill most of L2, which is indexed by physical address, and 4 KiB pages from all
// over memory would evict one another.
float* scratch(Scratch slot, std::int64_t floats) {
  thread_local HugeBuffer buffers[kScratchSlots];
  HugeBuffer& buffer = buffers[static_cast<int>(slot)];
  const std::int64_t bytes = floats * 4;
  if (buffer.size() < bytes) {
    buffer = HugeBuffer((bytes + kScratchSlotBytes - 1) / kScratchSlotBytes * kScratchSlotBytes);
    if (buffer.data() == nullptr) std::abort();
  }
  return reinterpret_cast<float*>(buffer.data());
}

}  // namespace perigee
