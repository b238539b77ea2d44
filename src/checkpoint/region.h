// A block of anonymous memory for weights. Allocation fails with an error instead of ending the process, pages are
// zero and come from the system on first touch. Movable; freed with the object.
#pragma once

#include <cstddef>
#include <span>

#include "base/status.h"

namespace perigee {

class MemoryRegion {
 public:
  static Result<MemoryRegion> allocate(std::size_t bytes);

  MemoryRegion() = default;
  MemoryRegion(MemoryRegion&& other) noexcept;
  MemoryRegion& operator=(MemoryRegion&& other) noexcept;
  MemoryRegion(const MemoryRegion&) = delete;
  MemoryRegion& operator=(const MemoryRegion&) = delete;
  ~MemoryRegion();

  std::span<std::byte> bytes() { return {data_, size_}; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace perigee
