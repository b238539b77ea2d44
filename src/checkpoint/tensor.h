// Stored tensors: element types, shapes and views of their bytes. Values, so thread-safe as such.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace perigee {

enum class Dtype : std::uint8_t {
  kBool,
  kU8,
  kI8,
  kF8E4M3,
  kF8E5M2,
  kF8E8M0,
  kI16,
  kU16,
  kF16,
  kBf16,
  kI32,
  kU32,
  kF32,
  kI64,
  kU64,
  kF64
};

std::string_view dtype_name(Dtype dtype);  // as in safetensors headers: "BF16"
std::int64_t dtype_bytes(Dtype dtype);
std::optional<Dtype> parse_dtype(std::string_view name);

// Up to kMaxRank extents, each >= 0; the product fits 63 bits (whoever builds one from a file checks that).
class Shape {
 public:
  static constexpr std::size_t kMaxRank = 6;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> extents) {
    for (const std::int64_t extent : extents) push_back(extent);
  }

  std::size_t rank() const { return rank_; }
  std::int64_t operator[](std::size_t axis) const { return extents_[axis]; }
  void push_back(std::int64_t extent) { extents_[rank_++] = extent; }
  std::int64_t elements() const;
  std::string to_string() const;  // "[3, 4]"
  friend bool operator==(const Shape&, const Shape&) = default;

 private:
  std::array<std::int64_t, kMaxRank> extents_{};
  std::size_t rank_ = 0;
};

struct TensorView {
  std::string name;
  Dtype dtype = Dtype::kU8;
  Shape shape;
  std::span<const std::byte> data;  // elements() * dtype_bytes(dtype) bytes, row-major, little-endian
  std::uint32_t file = 0;           // index into the owner's list of files

  bool aligned() const { return reinterpret_cast<std::uintptr_t>(data.data()) % dtype_bytes(dtype) == 0; }
};

// Tensors sorted by name.
class TensorTable {
 public:
  TensorTable() = default;
  // Refuses a name that occurs twice.
  static Result<TensorTable> build(std::vector<TensorView> tensors);

  const TensorView* find(std::string_view name) const;  // nullptr when there is none
  std::size_t size() const { return tensors_.size(); }
  auto begin() const { return tensors_.begin(); }
  auto end() const { return tensors_.end(); }
  const TensorView& operator[](std::size_t index) const { return tensors_[index]; }

 private:
  std::vector<TensorView> tensors_;
};

}  // namespace perigee
