// y[t, r] = sum_k w[r, k] x[t, k]: blocks of 32 columns ascending, each summed ascending; integer weights and bf16
// activations in block integers.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/block_integers.h"
#include "kernels/scalar/scalar.h"

namespace perigee::scalar {
namespace {

float dot(const float* w, const float* x, std::int64_t n) {
  float sum = 0;
  for (std::int64_t begin = 0; begin < n; begin += 32) {
    float block = 0;
    for (std::int64_t k = begin; k < std::min(n, begin + 32); ++k) block += w[k] * x[k];
    sum += block;
  }
  return sum;
}

struct IntegerBlock {
  std::array<int, kIntegerBlock> q{};
  float scale = 0;  // 2^(E - 13)
};

IntegerBlock quantize(const float* x, std::int64_t columns) {
  IntegerBlock block;
  std::uint32_t largest = 0;
  for (std::int64_t i = 0; i < columns; ++i) largest = std::max(largest, std::bit_cast<std::uint32_t>(std::fabs(x[i])));
  if (largest >= 0x7F800000U) {
    block.scale = std::numeric_limits<float>::quiet_NaN();
    return block;
  }
  const int exponent = std::max(static_cast<int>(largest >> 23) - 127, -112);
  block.scale = std::ldexp(1.0F, exponent - kIntegerBits);
  for (std::int64_t i = 0; i < columns; ++i) {
    block.q[static_cast<std::size_t>(i)] = static_cast<int>(std::nearbyint(std::ldexp(x[i], kIntegerBits - exponent)));
  }
  return block;
}

}  // namespace

void gemm(const Matrix& w, std::int64_t row_begin, std::int64_t row_end, const float* x, std::int64_t x_stride,
          std::int64_t tokens, float* y, std::int64_t y_stride, Rounding rounding) {
  std::vector<float> row(static_cast<std::size_t>(w.cols));
  for (std::int64_t r = row_begin; r < row_end; ++r) {
    dequantize(w, r, 0, w.cols, row.data());
    for (std::int64_t t = 0; t < tokens; ++t) {
      y[t * y_stride + r] = rounded(dot(row.data(), x + t * x_stride, w.cols), rounding);
    }
  }
}

void gemm_bf16(const Matrix& w, std::int64_t row_begin, std::int64_t row_end, const float* x, std::int64_t x_stride,
               std::int64_t tokens, float* y, std::int64_t y_stride, Rounding rounding) {
  if (!has_integer_product(w)) return gemm(w, row_begin, row_end, x, x_stride, tokens, y, y_stride, rounding);
  Matrix codes = w;  // the same codes with scales of 1
  codes.scale_format = ScaleFormat::kNone;
  const float unit = w.format == WeightFormat::kMxfp4 ? 0.5F : 1.0F;
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t r = row_begin; r < row_end; ++r) {
      float sum = 0;
      for (std::int64_t begin = 0; begin < w.cols; begin += kIntegerBlock) {
        const std::int64_t columns = std::min(kIntegerBlock, w.cols - begin);
        const IntegerBlock block = quantize(x + t * x_stride + begin, columns);
        std::array<float, kIntegerBlock> code{};
        dequantize(codes, r, begin, begin + columns, code.data());
        int total = 0;
        for (std::size_t i = 0; i < code.size(); ++i) total += static_cast<int>(code[i] / unit) * block.q[i];
        sum = std::fma(static_cast<float>(total), weight_scale(w, r, begin) * (block.scale * unit), sum);
      }
      y[t * y_stride + r] = rounded(sum, rounding);
    }
  }
}

void gemm_transposed(const Matrix& w, const float* x, std::int64_t x_stride, std::int64_t tokens, float* y,
                     std::int64_t y_stride, Rounding rounding) {
  std::vector<float> row(static_cast<std::size_t>(w.cols));
  for (std::int64_t t = 0; t < tokens; ++t) std::fill_n(y + t * y_stride, w.cols, 0.0F);
  for (std::int64_t r = 0; r < w.rows; ++r) {
    dequantize(w, r, 0, w.cols, row.data());
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t c = 0; c < w.cols; ++c)
        y[t * y_stride + c] += row[static_cast<std::size_t>(c)] * x[t * x_stride + r];
    }
  }
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t c = 0; c < w.cols; ++c) y[t * y_stride + c] = rounded(y[t * y_stride + c], rounding);
  }
}

}  // namespace perigee::scalar
