// Large anonymous memory that asks for huge pages: weights and caches are read in order, and 4 KiB pages would cost a
// table walk every few hundred nanoseconds. Memory is placed on the NUMA node of the thread that touches it first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace perigee {

// Zero-filled, 2 MiB aligned; data() is null when the system refused the memory. Movable.
class HugeBuffer {
 public:
  HugeBuffer() = default;
  explicit HugeBuffer(std::int64_t bytes);
  HugeBuffer(HugeBuffer&& other) noexcept { swap(other); }
  HugeBuffer& operator=(HugeBuffer&& other) noexcept {
    swap(other);
    return *this;
  }
  HugeBuffer(const HugeBuffer&) = delete;
  HugeBuffer& operator=(const HugeBuffer&) = delete;
  ~HugeBuffer();

  std::byte* data() const { return data_; }
  std::int64_t size() const { return size_; }

 private:
  void swap(HugeBuffer& other) noexcept {
    std::swap(map_, other.map_);
    std::swap(mapped_, other.mapped_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }

  void* map_ = nullptr;
  std::size_t mapped_ = 0;
  std::byte* data_ = nullptr;
  std::int64_t size_ = 0;
};

}  // namespace perigee
