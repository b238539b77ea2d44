#include "base/huge_buffer.h"

#include <sys/mman.h>

namespace perigee {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

}  // namespace

HugeBuffer::HugeBuffer(std::int64_t bytes) {
  if (bytes <= 0) return;
  mapped_ = static_cast<std::size_t>(bytes) + kHugePage;
  map_ = ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map_ == MAP_FAILED) {
    map_ = nullptr;
    return;
  }
  const auto address = reinterpret_cast<std::uintptr_t>(map_);
  data_ = static_cast<std::byte*>(map_) + (kHugePage - address % kHugePage) % kHugePage;
  size_ = bytes;
  // Advice only: without transparent huge pages the memory works all the same.
  ::madvise(data_, static_cast<std::size_t>(bytes), MADV_HUGEPAGE);
}

HugeBuffer::~HugeBuffer() {
  if (map_ != nullptr) ::munmap(map_, mapped_);
}

}  // namespace perigee
