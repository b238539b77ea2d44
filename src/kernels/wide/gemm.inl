// y = W x with vector lanes along K. One output element is, for both shapes below,
//   sum over blocks of 512 columns, ascending: the eight lanes' sums of the block's vectors, ascending, added by
//   sum_lanes.
// Which column sits in which lane depends on the weight format alone (order.h), so tokens, rows and threads never
// change a bit.
//
// One token: rows are decoded in registers, 4 or 6 at a time; bound by reading the weights.
// More tokens: 16 rows x kBlock columns are expanded to floats once in L2 and multiplied with all tokens in tiles of
// 4 rows x kTileTokens tokens; bound by FMA.

namespace perigee::PERIGEE_PATH {
namespace {

constexpr std::int64_t kStride = kBlock + 16;  // a power of two apart, rows would share a few sets of L1
constexpr std::int64_t kPanelRows = 16;
constexpr std::int64_t kTokenBlock = 2 * kTileTokens;
constexpr std::int64_t kTokenChunk = 73728 / kBlock;  // packed activations of one chunk: 304 KiB of L2

// 4 rows x kTokens tokens over `vectors` vectors. Rows of w and tokens of x lie kStride floats apart.
template <int kTokens>
inline void tile(const float* w, const float* x, std::int64_t vectors, __m128* sums) {
  Vec acc[4][kTokens];
#pragma GCC unroll 4
  for (int r = 0; r < 4; ++r) {
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) acc[r][t] = zero();
  }
  for (std::int64_t v = 0; v < vectors; ++v) {
    Vec xs[kTokens];
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) xs[t] = load_once(x + t * kStride + v * kLanes);
#pragma GCC unroll 4
    for (int r = 0; r < 4; ++r) {
      const Vec ws = load_once(w + r * kStride + v * kLanes);
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t) acc[r][t] = fma(ws, xs[t], acc[r][t]);
    }
  }
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) sums[t] = sum_lanes(acc[0][t], acc[1][t], acc[2][t], acc[3][t]);
}

template <int kTokens>
inline void tile_of(std::int64_t count, const float* w, const float* x, std::int64_t vectors, __m128* sums) {
  if (count == kTokens) {
    tile<kTokens>(w, x, vectors, sums);
  } else if constexpr (kTokens > 1) {
    tile_of<kTokens - 1>(count, w, x, vectors, sums);
  }
}

struct Output {
  float* y;
  std::int64_t stride;
  Rounding rounding;
};

// Adds the sums of four rows of one token for the current block; `rows` < 4 at the end of the range.
inline void emit(const Output& out, std::int64_t token, std::int64_t row, std::int64_t rows, __m128 sums, bool first,
                 bool last) {
  float* y = out.y + token * out.stride + row;
  alignas(16) float part[4] = {0, 0, 0, 0};
  if (!first) {
    if (rows == 4) {
      sums = _mm_add_ps(_mm_loadu_ps(y), sums);
    } else {
      for (std::int64_t r = 0; r < rows; ++r) part[r] = y[r];
      sums = _mm_add_ps(_mm_load_ps(part), sums);
    }
  }
  if (last && out.rounding == Rounding::kBf16) sums = round_bf16(sums);
  if (rows == 4) {
    _mm_storeu_ps(y, sums);
  } else {
    _mm_store_ps(part, sums);
    for (std::int64_t r = 0; r < rows; ++r) y[r] = part[r];
  }
}

void many_tokens(const Matrix& w, LaneOrder order, std::int64_t row_begin, std::int64_t row_end, const float* x,
                 std::int64_t x_stride, std::int64_t tokens, const Output& out) {
  float* packed = scratch(Scratch::kActivations, (tokens < kTokenChunk ? tokens : kTokenChunk) * kStride);
  float* panel = scratch(Scratch::kWeights, kPanelRows * kStride);
  for (std::int64_t chunk = 0; chunk < tokens; chunk += kTokenChunk) {
    const std::int64_t chunk_tokens = tokens - chunk < kTokenChunk ? tokens - chunk : kTokenChunk;
    for (std::int64_t k = 0; k < w.cols; k += kBlock) {
      const std::int64_t columns = w.cols - k < kBlock ? w.cols - k : kBlock;
      const std::int64_t vectors = (columns + kStep - 1) / kStep * (kStep / kLanes);
      const bool first = k == 0;
      const bool last = k + kBlock >= w.cols;
      for (std::int64_t t = 0; t < chunk_tokens; ++t) {
        pack(order, x + (chunk + t) * x_stride + k, columns, packed + t * kStride);
      }
      for (std::int64_t row = row_begin; row < row_end; row += kPanelRows) {
        const std::int64_t rows = row_end - row < kPanelRows ? row_end - row : kPanelRows;
        const std::int64_t padded = (rows + 3) / 4 * 4;
        for (std::int64_t r = 0; r < rows; ++r) expand(w, row + r, k, columns, panel + r * kStride);
        for (std::int64_t i = rows * kStride; i < padded * kStride; ++i) panel[i] = 0;
        for (std::int64_t t = 0; t < chunk_tokens; t += kTokenBlock) {
          const std::int64_t end = t + kTokenBlock < chunk_tokens ? t + kTokenBlock : chunk_tokens;
          for (std::int64_t r = 0; r < rows; r += 4) {
            const float* rows_at = panel + r * kStride;
            const std::int64_t valid = rows - r < 4 ? rows - r : 4;
            for (std::int64_t u = t; u < end; u += kTileTokens) {
              const std::int64_t count = end - u < kTileTokens ? end - u : kTileTokens;
              __m128 sums[kTileTokens];
              tile_of<kTileTokens>(count, rows_at, packed + u * kStride, vectors, sums);
              for (std::int64_t i = 0; i < count; ++i) {
                emit(out, chunk + u + i, row + r, valid, sums[i], first, last);
              }
            }
          }
        }
      }
    }
  }
}

// kRows rows of one token, decoded on the way from memory to the registers; the activations of a step stay in four
// registers. Rows beyond the range (kRows = 6 at its end) never occur: the caller hands those to many_tokens.
template <typename Decoder, int kRows>
inline void one_token_rows(const Matrix& w, std::int64_t row, const float* packed, const Output& out) {
  const Decoder decoder(w, row);
  for (std::int64_t k = 0; k < w.cols; k += kBlock) {
    const std::int64_t columns = w.cols - k < kBlock ? w.cols - k : kBlock;
    const std::int64_t first_step = k / kStep;
    const std::int64_t end_step = first_step + columns / kStep;
    Vec acc[kRows];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) acc[r] = zero();
    for (std::int64_t s = first_step; s < end_step; ++s) {
      Vec x[4];
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) x[v] = load_once(packed + s * kStep + v * kLanes);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        Vec ws[4];
        decoder.step(r, s, ws);
#pragma GCC unroll 4
        for (int v = 0; v < 4; ++v) acc[r] = fma(ws[v], x[v], acc[r]);
      }
    }
    if (columns % kStep != 0) {
      alignas(64) float tail[kStep];
      for (int r = 0; r < kRows; ++r) {
        expand(w, row + r, end_step * kStep, columns % kStep, tail);
        for (int v = 0; v < 4; ++v) {
          acc[r] = fma(load(tail + v * kLanes), load(packed + end_step * kStep + v * kLanes), acc[r]);
        }
      }
    }
    const bool last = k + kBlock >= w.cols;
    emit(out, 0, row, 4, sum_lanes(acc[0], acc[1], acc[2], acc[3]), k == 0, last);
    if constexpr (kRows == 6) {
      emit(out, 0, row + 4, 2, sum_lanes(acc[4], acc[5], zero(), zero()), k == 0, last);
    }
  }
}

template <typename Decoder, int kRows>
void one_token(const Matrix& w, LaneOrder order, std::int64_t row_begin, std::int64_t row_end, const float* x,
               const Output& out) {
  float* packed = scratch(Scratch::kActivations, (w.cols + kStep - 1) / kStep * kStep);
  pack(order, x, w.cols, packed);
  std::int64_t row = row_begin;
  for (; row + kRows <= row_end; row += kRows) one_token_rows<Decoder, kRows>(w, row, packed, out);
  if (row < row_end) many_tokens(w, order, row, row_end, x, w.cols, 1, out);
}

}  // namespace

void gemm(const Matrix& w, std::int64_t row_begin, std::int64_t row_end, const float* x, std::int64_t x_stride,
          std::int64_t tokens, float* y, std::int64_t y_stride, Rounding rounding) {
  const Output out{y, y_stride, rounding};
  const LaneOrder order = lane_order(w);
  if (tokens != 1) {
    many_tokens(w, order, row_begin, row_end, x, x_stride, tokens, out);
    return;
  }
  switch (w.format) {
    case WeightFormat::kBf16:
      one_token<Bf16Decoder, 4>(w, order, row_begin, row_end, x, out);
      return;
    case WeightFormat::kF32:
      one_token<F32Decoder, 4>(w, order, row_begin, row_end, x, out);
      return;
    case WeightFormat::kMxfp4:
      one_token<Mxfp4Decoder, 6>(w, order, row_begin, row_end, x, out);
      return;
    case WeightFormat::kInt4Group:
      if (order == LaneOrder::kNibbles && w.scale_format == ScaleFormat::kBf16) {
        one_token<Int4Decoder, 4>(w, order, row_begin, row_end, x, out);
        return;
      }
      break;
    default:
      break;
  }
  many_tokens(w, order, row_begin, row_end, x, x_stride, tokens, out);
}

}  // namespace perigee::PERIGEE_PATH
