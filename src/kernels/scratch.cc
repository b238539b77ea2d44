#include <cstdlib>
#include <memory>

#include "kernels/scratch.h"

namespace perigee {
namespace {

struct Free {
  void operator()(float* memory) const { std::free(memory); }
};

struct Buffer {
  std::unique_ptr<float, Free> memory;
  std::int64_t floats = 0;
};

}  // namespace

float* scratch(Scratch slot, std::int64_t floats) {
  thread_local Buffer buffers[5];
  Buffer& buffer = buffers[static_cast<int>(slot)];
  if (buffer.floats < floats) {
    buffer.floats = (floats + 1023) / 1024 * 1024;
    buffer.memory.reset(static_cast<float*>(std::aligned_alloc(64, static_cast<std::size_t>(buffer.floats) * 4)));
    if (buffer.memory == nullptr) std::abort();
  }
  return buffer.memory.get();
}

}  // namespace perigee
