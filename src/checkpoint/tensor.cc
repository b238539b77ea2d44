#include "checkpoint/tensor.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace perigee {
namespace {

struct DtypeInfo {
  std::string_view name;
  std::int64_t bytes;
};

// In the order of the enumeration.
constexpr DtypeInfo kDtypes[] = {
    {"BOOL", 1}, {"U8", 1},   {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1}, {"I16", 2}, {"U16", 2},
    {"F16", 2},  {"BF16", 2}, {"I32", 4}, {"U32", 4},     {"F32", 4},     {"I64", 8},     {"U64", 8}, {"F64", 8},
};

}  // namespace

std::string_view dtype_name(Dtype dtype) {
  return kDtypes[static_cast<std::size_t>(dtype)].name;
}

std::int64_t dtype_bytes(Dtype dtype) {
  return kDtypes[static_cast<std::size_t>(dtype)].bytes;
}

std::optional<Dtype> parse_dtype(std::string_view name) {
  for (std::size_t i = 0; i < std::size(kDtypes); ++i) {
    if (kDtypes[i].name == name) return static_cast<Dtype>(i);
  }
  return std::nullopt;
}

std::int64_t Shape::elements() const {
  std::int64_t product = 1;
  for (std::size_t axis = 0; axis < rank_; ++axis) product *= extents_[axis];
  return product;
}

std::string Shape::to_string() const {
  return fmt::format("[{}]", fmt::join(extents_.begin(), extents_.begin() + static_cast<std::ptrdiff_t>(rank_), ", "));
}

Result<TensorTable> TensorTable::build(std::vector<TensorView> tensors) {
  std::ranges::sort(tensors, {}, &TensorView::name);
  const auto twice = std::ranges::adjacent_find(tensors, {}, &TensorView::name);
  if (twice != tensors.end()) return data_loss("tensor {}: expected once, found twice", twice->name);
  TensorTable table;
  table.tensors_ = std::move(tensors);
  return table;
}

const TensorView* TensorTable::find(std::string_view name) const {
  const auto it = std::ranges::lower_bound(tensors_, name, {}, &TensorView::name);
  return it != tensors_.end() && it->name == name ? &*it : nullptr;
}

}  // namespace perigee
