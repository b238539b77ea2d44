#include "kernels/block_integers.h"

#include <bit>

namespace perigee {

bool has_integer_product(const Matrix& w) {
  if (w.format == WeightFormat::kMxfp4) return true;
  if (w.format != WeightFormat::kInt4Group && w.format != WeightFormat::kInt8Group) return false;
  if (w.scale_format != ScaleFormat::kBf16) return false;
  return w.group >= w.cols || (w.group >= kIntegerBlock && std::has_single_bit(static_cast<std::uint64_t>(w.group)));
}

int scale_shift(const Matrix& w) {
  if (w.format == WeightFormat::kMxfp4) return 0;
  return w.group >= w.cols ? 62 : std::countr_zero(static_cast<std::uint64_t>(w.group / kIntegerBlock));
}

}  // namespace perigee
