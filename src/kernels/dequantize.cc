// Stored weights to floats, one row at a time (spec 7.1, 7.3). The exact value is code * scale.
#include <cstring>

#include "base/numeric.h"
#include "kernels/kernels.h"

namespace perigee {
namespace {

template <typename T>
T load(const std::byte* from, std::int64_t index) {
  T value;
  std::memcpy(&value, from + index * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}

float scale_at(const std::byte* scales, ScaleFormat format, std::int64_t index) {
  switch (format) {
    case ScaleFormat::kE8m0:
      return e8m0_to_float(load<std::uint8_t>(scales, index));
    case ScaleFormat::kBf16:
      return to_float(load<bf16>(scales, index));
    case ScaleFormat::kF16:
      return half_to_float(load<std::uint16_t>(scales, index));
    case ScaleFormat::kF32:
      return load<float>(scales, index);
    case ScaleFormat::kNone:
      break;
  }
  return 1.0F;
}

std::uint8_t nibble(const std::byte* row, std::int64_t column) {
  const auto byte = load<std::uint8_t>(row, column / 2);
  return column % 2 == 0 ? byte & 0xFU : byte >> 4;
}

}  // namespace

float weight_scale(const Matrix& w, std::int64_t row, std::int64_t column) {
  if (w.scale_format == ScaleFormat::kNone) return 1.0F;
  const bool blocks = w.format == WeightFormat::kFp8Block;
  const std::int64_t group = w.format == WeightFormat::kMxfp4 ? 32 : blocks ? 128 : w.group;
  return scale_at(w.scales + (blocks ? row / 128 : row) * w.scale_row_bytes, w.scale_format, column / group);
}

void dequantize(const Matrix& w, std::int64_t row, std::int64_t begin, std::int64_t end, float* out) {
  const std::byte* data = w.data + row * w.row_bytes;
  const auto scale = [&](std::int64_t column) { return weight_scale(w, row, column); };
  switch (w.format) {
    case WeightFormat::kF32:
      std::memcpy(out, data + begin * 4, static_cast<std::size_t>(end - begin) * sizeof(float));
      return;
    case WeightFormat::kBf16:
      for (std::int64_t c = begin; c < end; ++c) out[c - begin] = to_float(load<bf16>(data, c));
      return;
    case WeightFormat::kMxfp4:
      for (std::int64_t c = begin; c < end; ++c) out[c - begin] = kE2m1[nibble(data, c)] * scale(c);
      return;
    case WeightFormat::kInt4Group:
      for (std::int64_t c = begin; c < end; ++c) {
        out[c - begin] = static_cast<float>(static_cast<int>(nibble(data, c)) - 8) * scale(c);
      }
      return;
    case WeightFormat::kInt8Group:
      for (std::int64_t c = begin; c < end; ++c) {
        out[c - begin] = static_cast<float>(static_cast<int>(load<std::uint8_t>(data, c)) - 128) * scale(c);
      }
      return;
    case WeightFormat::kFp8Block:
      for (std::int64_t c = begin; c < end; ++c) out[c - begin] = e4m3_to_float(load<std::uint8_t>(data, c)) * scale(c);
      return;
    case WeightFormat::kNone:
      break;
  }
  for (std::int64_t c = begin; c < end; ++c) out[c - begin] = 0;
}

}  // namespace perigee
