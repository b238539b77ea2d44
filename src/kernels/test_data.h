// Random operands for the tests and benchmarks of the operators.
#pragma once

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "base/numeric.h"
#include "kernels/kernels.h"

namespace perigee::testing {

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}

  std::int64_t between(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(engine_);
  }
  float normal(float scale = 1) { return scale * std::normal_distribution<float>()(engine_); }
  std::vector<float> floats(std::int64_t n, float scale = 1) {
    std::vector<float> out(static_cast<std::size_t>(n));
    for (float& value : out) value = normal(scale);
    return out;
  }
  std::vector<float> bf16s(std::int64_t n, float scale = 1) {
    std::vector<float> out = floats(n, scale);
    for (float& value : out) value = round_bf16(value);
    return out;
  }
  std::vector<std::byte> bytes(std::int64_t n) {
    std::vector<std::byte> out(static_cast<std::size_t>(n));
    for (std::byte& value : out) value = static_cast<std::byte>(engine_() & 0xFFU);
    return out;
  }

 private:
  std::mt19937_64 engine_;
};

// A matrix with its own bytes. `padding` extra bytes after each row, so that strides differ from widths.
struct OwnedMatrix {
  std::vector<std::byte> data;
  std::vector<std::byte> scales;
  Matrix view;
};

inline OwnedMatrix random_matrix(Random& random, WeightFormat format, std::int64_t rows, std::int64_t cols,
                                 std::int64_t group = 32, std::int64_t padding = 0) {
  OwnedMatrix m;
  Matrix& w = m.view;
  w.format = format;
  w.rows = rows;
  w.cols = cols;
  w.group = group;
  std::int64_t scale_rows = rows;
  std::int64_t scale_cols = (cols + group - 1) / group;
  std::int64_t scale_bytes = 2;
  switch (format) {
    case WeightFormat::kF32:
      w.row_bytes = 4 * cols;
      break;
    case WeightFormat::kBf16:
      w.row_bytes = 2 * cols;
      break;
    case WeightFormat::kMxfp4:
      w.row_bytes = (cols + 1) / 2;
      scale_cols = (cols + 31) / 32;
      scale_bytes = 1;
      w.scale_format = ScaleFormat::kE8m0;
      break;
    case WeightFormat::kInt4Group:
      w.row_bytes = (cols + 7) / 8 * 4;
      w.scale_format = ScaleFormat::kBf16;
      break;
    case WeightFormat::kInt8Group:
      w.row_bytes = (cols + 3) / 4 * 4;
      w.scale_format = ScaleFormat::kBf16;
      break;
    case WeightFormat::kFp8Block:
      w.row_bytes = cols;
      scale_rows = (rows + 127) / 128;
      scale_cols = (cols + 127) / 128;
      w.scale_format = ScaleFormat::kBf16;
      break;
    case WeightFormat::kNone:
      break;
  }
  w.row_bytes += padding;
  m.data = random.bytes(rows * w.row_bytes);
  if (format == WeightFormat::kF32 || format == WeightFormat::kBf16) {
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < cols; ++c) {
        const float value = random.normal();
        const bf16 half = to_bf16(value);
        std::byte* at = m.data.data() + r * w.row_bytes;
        if (format == WeightFormat::kF32) std::memcpy(at + 4 * c, &value, 4);
        if (format == WeightFormat::kBf16) std::memcpy(at + 2 * c, &half, 2);
      }
    }
  } else {
    w.scale_row_bytes = scale_cols * scale_bytes;
    m.scales.resize(static_cast<std::size_t>(scale_rows * w.scale_row_bytes));
    for (std::int64_t i = 0; i < scale_rows * scale_cols; ++i) {
      const bf16 scale = to_bf16(0.01F + 0.02F * std::fabs(random.normal()));
      const auto exponent = static_cast<std::uint8_t>(random.between(0x70, 0x7F));
      if (scale_bytes == 1) std::memcpy(m.scales.data() + i, &exponent, 1);
      if (scale_bytes == 2) std::memcpy(m.scales.data() + 2 * i, &scale, 2);
    }
    for (std::byte& code : m.data) {
      // 0x7F and 0xFF are the NaNs of E4M3.
      if (format == WeightFormat::kFp8Block && (code & std::byte{0x7F}) == std::byte{0x7F}) code = std::byte{0x30};
    }
    w.scales = m.scales.data();
  }
  w.data = m.data.data();
  return m;
}

// Pages of a cache filled with rows.
struct OwnedPages {
  std::vector<std::vector<std::byte>> memory;
  std::vector<std::byte*> pages;
  PagedRows rows;
};

inline OwnedPages random_pages(Random& random, KeyFormat format, std::int64_t row, std::int64_t tokens,
                               std::int64_t offset = 0, float scale = 1) {
  OwnedPages p;
  const std::int64_t element = format == KeyFormat::kF32 ? 4 : 2;
  for (std::int64_t first = 0; first < tokens; first += kPageTokens) {
    auto& page = p.memory.emplace_back(static_cast<std::size_t>(offset + kPageTokens * row * element));
    // Rows that no token filled yet hold NaN: reading one would show.
    std::memset(page.data(), 0xFF, page.size());
    for (std::int64_t i = 0; i < std::min(kPageTokens, tokens - first) * row; ++i) {
      const float value = random.normal(scale);
      const bf16 half = to_bf16(value);
      if (format == KeyFormat::kF32) std::memcpy(page.data() + offset + 4 * i, &value, 4);
      if (format == KeyFormat::kBf16) std::memcpy(page.data() + offset + 2 * i, &half, 2);
    }
  }
  for (auto& page : p.memory) p.pages.push_back(page.data());
  p.rows = {.pages = p.pages, .offset = offset, .row = row, .format = format};
  return p;
}

}  // namespace perigee::testing
