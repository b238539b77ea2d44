// y[t, r] = sum_k w[r, k] x[t, k]: blocks of 32 columns ascending, each summed ascending.
#include <algorithm>
#include <vector>

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
