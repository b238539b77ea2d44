// A grow-only, 64-byte aligned scratch array without initialisation. Steps of equal size allocate nothing after the
// first. Not thread-safe while it grows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace perigee {

template <typename T>
class Buffer {
 public:
  // At least `count` elements; the content is lost when the buffer has to grow.
  T* ensure(std::int64_t count) {
    if (count > capacity_) {
      data_.reset();
      data_.reset(static_cast<T*>(::operator new(static_cast<std::size_t>(count) * sizeof(T), std::align_val_t{64})));
      capacity_ = count;
    }
    return data_.get();
  }
  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }

 private:
  struct Free {
    void operator()(T* data) const { ::operator delete(data, std::align_val_t{64}); }
  };
  std::unique_ptr<T, Free> data_;
  std::int64_t capacity_ = 0;
};

}  // namespace perigee
