#include "checkpoint/region.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace perigee {

Result<MemoryRegion> MemoryRegion::allocate(std::size_t bytes) {
  MemoryRegion region;
  if (bytes == 0) return region;
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    return make_error(StatusCode::kResourceExhausted, "cannot allocate {} bytes for weights: {}", bytes,
                      std::strerror(errno));
  }
  ::madvise(data, bytes, MADV_HUGEPAGE);  // fewer TLB misses; only a hint
  region.data_ = static_cast<std::byte*>(data);
  region.size_ = bytes;
  return region;
}

MemoryRegion::MemoryRegion(MemoryRegion&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MemoryRegion& MemoryRegion::operator=(MemoryRegion&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MemoryRegion::~MemoryRegion() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

}  // namespace perigee
