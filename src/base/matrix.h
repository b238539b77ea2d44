// A view of one stored weight matrix in whatever format the checkpoint has. The bytes belong to the mapped
// shard (or to a load-time buffer) and outlive the view. Read-only, so free to share between threads.
#pragma once

#include <cstddef>
#include <cstdint>

namespace perigee {

enum class WeightFormat : std::uint8_t {
  kNone,
  kF32,
  kBf16,
  kMxfp4,      // data U8 [rows, cols/2], low nibble first; scales E8M0 U8 [rows, cols/32]
  kInt4Group,  // data: code q+8, low nibble first, row of ceil(cols/8) 32-bit words; scales [rows, ceil(cols/group)]
  kInt8Group,  // data: code q+128, one byte each, row of ceil(cols/4) 32-bit words; scales [rows, ceil(cols/group)]
  kFp8Block,   // data E4M3 [rows, cols]; scales F32 or BF16 [ceil(rows/128), ceil(cols/128)]
};

enum class ScaleFormat : std::uint8_t { kNone, kE8m0, kBf16, kF16, kF32 };

// y = W x with W [rows, cols] row-major: rows are outputs. The value of an element is code * scale, exact in
// fp32 for MXFP4 and (4+8 bits times 8 bits) for the integer formats with bf16 scales.
struct Matrix {
  WeightFormat format = WeightFormat::kNone;
  ScaleFormat scale_format = ScaleFormat::kNone;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  const std::byte* data = nullptr;
  std::int64_t row_bytes = 0;  // distance of two rows of data
  const std::byte* scales = nullptr;
  std::int64_t scale_row_bytes = 0;  // distance of two rows of scales (for kFp8Block: of two 128-row blocks)
  std::int64_t group = 0;            // columns that share a scale; channel-wise: >= cols

  bool empty() const { return data == nullptr; }

  // Rows [begin, begin + count) as a matrix of its own. For kFp8Block begin must be a multiple of 128.
  Matrix slice_rows(std::int64_t begin, std::int64_t count) const {
    Matrix part = *this;
    part.rows = count;
    part.data += begin * row_bytes;
    if (scales != nullptr) part.scales += (format == WeightFormat::kFp8Block ? begin / 128 : begin) * scale_row_bytes;
    return part;
  }
};

}  // namespace perigee
