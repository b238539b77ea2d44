// y = W^T x with lanes along the columns, rows ascending: the absorbed query of MLA (spec 3.2), one small matrix a
// head. A strip of 24 columns is expanded in L1 once and meets the tokens in tiles of four.
#include "kernels/wide/fetch.inl"

namespace perigee::PERIGEE_PATH {
namespace {

constexpr int kVectors = 3;
constexpr std::int64_t kStrip = kVectors * kLanes;

constexpr std::int64_t kRowsAhead = 8;

void expand_strip(const Matrix& w, std::int64_t column, std::int64_t columns, float* strip) {
  const std::int64_t vectors = w.format == WeightFormat::kBf16 ? columns / kLanes : 0;
  for (std::int64_t r = 0; r < w.rows; ++r) {
    const std::byte* row = w.data + r * w.row_bytes;
    float* out = strip + r * kStrip;
    // A strip is a thin part of each row: the first one brings the whole rows, which memory gives much faster.
    if (column == 0) fetch_to_l2(row + kRowsAhead * w.row_bytes, w.row_bytes);
    for (std::int64_t v = 0; v < kVectors; ++v) {
      store(out + v * kLanes, v < vectors ? load_bf16(row + 2 * (column + v * kLanes)) : zero());
    }
    if (vectors * kLanes < columns) {
      dequantize(w, r, column + vectors * kLanes, column + columns, out + vectors * kLanes);
    }
  }
}

template <int kTokens>
inline void tile(const float* strip, std::int64_t rows, const float* x, std::int64_t x_stride, float* y,
                 std::int64_t y_stride, std::int64_t columns, Rounding rounding) {
  Vec acc[kTokens][kVectors];
#pragma GCC unroll 4
  for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) acc[t][v] = zero();
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    Vec ws[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) ws[v] = load_once(strip + r * kStrip + v * kLanes);
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) {
      const Vec xs = broadcast_once(x + t * x_stride + r);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) acc[t][v] = fma(ws[v], xs, acc[t][v]);
    }
  }
#pragma GCC unroll 4
  for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const std::int64_t lanes = columns - v * kLanes;
      if (lanes > 0) {
        store_n(y + t * y_stride + v * kLanes, lanes < kLanes ? lanes : kLanes, rounded(acc[t][v], rounding));
      }
    }
  }
}

}  // namespace

void gemm_transposed(const Matrix& w, const float* x, std::int64_t x_stride, std::int64_t tokens, float* y,
                     std::int64_t y_stride, Rounding rounding) {
  float* strip = scratch(Scratch::kWeights, w.rows * kStrip);
  for (std::int64_t c = 0; c < w.cols; c += kStrip) {
    const std::int64_t columns = w.cols - c < kStrip ? w.cols - c : kStrip;
    expand_strip(w, c, columns, strip);
    std::int64_t t = 0;
    for (; t + 4 <= tokens; t += 4) {
      tile<4>(strip, w.rows, x + t * x_stride, x_stride, y + t * y_stride + c, y_stride, columns, rounding);
    }
    for (; t < tokens; ++t) {
      tile<1>(strip, w.rows, x + t * x_stride, x_stride, y + t * y_stride + c, y_stride, columns, rounding);
    }
  }
}

}  // namespace perigee::PERIGEE_PATH
