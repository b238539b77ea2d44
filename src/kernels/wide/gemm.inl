// y = W x with vector lanes along K. One output element is, for both shapes below,
//   sum over blocks of kBlock columns, ascending: each lane's sum over the block's vectors, ascending, added by
//   sum_lanes.
// Which column sits in which lane depends on the weight format alone (expand.h), so tokens, rows and threads never
// change a bit.
//
// One or two tokens: rows are decoded in registers, four at a time; bound by reading the weights.
// More tokens: 16 rows x kBlock columns are expanded to floats once in L2 and multiplied with all tokens in tiles of
// 4 rows x kTileTokens tokens; bound by FMA.

#include "kernels/wide/panel_prefetch.inl"

namespace perigee::PERIGEE_PATH {
namespace {

constexpr std::int64_t kStride = kBlock + 16;  // a power of two apart, rows would share a few sets of L1
constexpr std::int64_t kPanelRows = 16;
constexpr std::int64_t kTokenBlock = 2 * kTileTokens;
constexpr std::int64_t kFewRows = 8;                  // rows that share a block of activations in L1
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

// Adds the sums of four rows of the first token for the current block.
inline void emit(const Output& out, std::int64_t row, __m128 sums, bool first, bool last) {
  float* y = out.y + row;
  if (!first) sums = _mm_add_ps(_mm_loadu_ps(y), sums);
  if (last && out.rounding == Rounding::kBf16) sums = round_bf16(sums);
  _mm_storeu_ps(y, sums);
}

// All tokens of the chunk times one expanded panel. sums: [tokens][kPanelRows], started by the first block.
void multiply_panel(const float* panel, std::int64_t rows, const float* packed, std::int64_t tokens,
                    std::int64_t vectors, bool first, PanelPrefetch& prefetch, float* sums) {
  for (std::int64_t t = 0; t < tokens; t += kTokenBlock) {
    const std::int64_t end = t + kTokenBlock < tokens ? t + kTokenBlock : tokens;
    for (std::int64_t r = 0; r < rows; r += 4) {
      for (std::int64_t u = t; u < end;) {
        // Four tokens left are two and two: a tile of one waits for its chains.
        std::int64_t count = end - u < kTileTokens ? end - u : kTileTokens;
        if (end - u == kTileTokens + 1) count = (kTileTokens + 1) / 2;
        prefetch.advance();
        __m128 block[kTileTokens];
        tile_of<kTileTokens>(count, panel + r * kStride, packed + u * kStride, vectors, block);
        for (std::int64_t i = 0; i < count; ++i) {
          float* to = sums + (u + i) * kPanelRows + r;
          _mm_store_ps(to, first ? block[i] : _mm_add_ps(_mm_load_ps(to), block[i]));
        }
        u += count;
      }
    }
  }
}

// Between the output and the compact sums of a panel, whose rows of y are far apart.
void load_sums(const Output& out, std::int64_t token, std::int64_t tokens, std::int64_t row, std::int64_t rows,
               float* sums) {
  for (std::int64_t t = 0; t < tokens; ++t) {
    const float* y = out.y + (token + t) * out.stride + row;
    for (std::int64_t r = 0; r < rows; ++r) sums[t * kPanelRows + r] = y[r];
  }
}
void store_sums(const Output& out, std::int64_t token, std::int64_t tokens, std::int64_t row, std::int64_t rows,
                bool last, const float* sums) {
  const Rounding rounding = last ? out.rounding : Rounding::kNone;
  for (std::int64_t t = 0; t < tokens; ++t) {
    float* y = out.y + (token + t) * out.stride + row;
    const float* from = sums + t * kPanelRows;
    for_lanes(rows,
              [=](std::int64_t r, std::int64_t lanes) { store_n(y + r, lanes, rounded(load(from + r), rounding)); });
  }
}

// Activations are packed for as many blocks of columns as fit L2; a panel then runs through those blocks before the
// next one begins, so that with few tokens each weight row is read along its length.
void many_tokens(const Matrix& w, LaneOrder order, std::int64_t row_begin, std::int64_t row_end, const float* x,
                 std::int64_t x_stride, std::int64_t tokens, const Output& out) {
  const std::int64_t chunk_size = tokens < kTokenChunk ? tokens : kTokenChunk;
  const std::int64_t blocks_of_w = (w.cols + kBlock - 1) / kBlock;
  std::int64_t blocks = kTokenChunk / chunk_size;
  if (blocks > blocks_of_w) blocks = blocks_of_w;
  float* packed = scratch(Scratch::kActivations, blocks * chunk_size * kStride);
  float* panel = scratch(Scratch::kWeights, kPanelRows * kStride);
  float* sums = scratch(Scratch::kScores, kTokenChunk * kPanelRows);
  for (std::int64_t chunk = 0; chunk < tokens; chunk += chunk_size) {
    const std::int64_t count = tokens - chunk < chunk_size ? tokens - chunk : chunk_size;
    for (std::int64_t begin = 0; begin < w.cols; begin += blocks * kBlock) {
      const std::int64_t end = begin + blocks * kBlock < w.cols ? begin + blocks * kBlock : w.cols;
      for (std::int64_t k = begin; k < end; k += kBlock) {
        float* to = packed + (k - begin) / kBlock * chunk_size * kStride;
        for (std::int64_t t = 0; t < count; ++t) {
          pack(order, x + (chunk + t) * x_stride + k, end - k < kBlock ? end - k : kBlock, to + t * kStride);
        }
      }
      for (std::int64_t row = row_begin; row < row_end; row += kPanelRows) {
        const std::int64_t rows = row_end - row < kPanelRows ? row_end - row : kPanelRows;
        const std::int64_t padded = (rows + 3) / 4 * 4;
        if (begin > 0) load_sums(out, chunk, count, row, rows, sums);
        for (std::int64_t k = begin; k < end; k += kBlock) {
          const std::int64_t columns = end - k < kBlock ? end - k : kBlock;
          for (std::int64_t r = 0; r < rows; ++r) expand(w, row + r, k, columns, panel + r * kStride);
          for (std::int64_t i = rows * kStride; i < padded * kStride; ++i) panel[i] = 0;
          const bool next_block = k + kBlock < end;
          const std::int64_t next_row = next_block ? row : row + kPanelRows;
          const std::int64_t left = row_end - next_row;
          PanelPrefetch prefetch(w, next_row, left < kPanelRows ? left : kPanelRows, next_block ? k + kBlock : begin,
                                 kBlock, padded / 4 * ((count + kTileTokens - 1) / kTileTokens));
          multiply_panel(panel, padded, packed + (k - begin) / kBlock * chunk_size * kStride, count,
                         (columns + kStep - 1) / kStep * (kStep / kLanes), k == 0, prefetch, sums);
        }
        store_sums(out, chunk, count, row, rows, end == w.cols, sums);
      }
    }
  }
}

// Four rows of one token, decoded on the way from memory to the registers; the activations of a step stay in four
// registers.
template <typename Decoder>
inline void one_token_rows(const Matrix& w, std::int64_t row, const float* packed, const Output& out) {
  const Decoder decoder(w, row);
  for (std::int64_t k = 0; k < w.cols; k += kBlock) {
    const std::int64_t columns = w.cols - k < kBlock ? w.cols - k : kBlock;
    const std::int64_t first_step = k / kStep;
    const std::int64_t end_step = first_step + columns / kStep;
    Vec acc[4];
#pragma GCC unroll 4
    for (int r = 0; r < 4; ++r) acc[r] = zero();
    for (std::int64_t s = first_step; s < end_step; ++s) {
      Vec x[4];
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) x[v] = load_once(packed + s * kStep + v * kLanes);
#pragma GCC unroll 4
      for (int r = 0; r < 4; ++r) {
        Vec ws[4];
        decoder.step(r, s, ws);
#pragma GCC unroll 4
        for (int v = 0; v < 4; ++v) acc[r] = fma(ws[v], x[v], acc[r]);
      }
    }
    if (columns % kStep != 0) {
      alignas(64) float tail[kStep];
      for (int r = 0; r < 4; ++r) {
        expand(w, row + r, end_step * kStep, columns % kStep, tail);
        for (int v = 0; v < 4; ++v) {
          acc[r] = fma(load(tail + v * kLanes), load(packed + end_step * kStep + v * kLanes), acc[r]);
        }
      }
    }
    emit(out, row, sum_lanes(acc[0], acc[1], acc[2], acc[3]), k == 0, k + kBlock >= w.cols);
  }
}

// Two tokens, as a decode batch often gives an expert: each decoded step of four rows meets both. From three tokens on
// the panels of many_tokens are as fast.
template <typename Decoder>
void two_tokens(const Matrix& w, LaneOrder order, std::int64_t row_begin, std::int64_t row_end, const float* x,
                std::int64_t x_stride, const Output& out) {
  const std::int64_t stride = (w.cols + kStep - 1) / kStep * kStep + 16;  // the tokens would share sets of L1
  float* packed = scratch(Scratch::kActivations, 2 * stride);
  for (std::int64_t t = 0; t < 2; ++t) pack(order, x + t * x_stride, w.cols, packed + t * stride);
  std::int64_t row = row_begin;
  for (; row + 4 <= row_end; row += 4) {
    const Decoder decoder(w, row);
    for (std::int64_t k = 0; k < w.cols; k += kBlock) {
      const std::int64_t columns = w.cols - k < kBlock ? w.cols - k : kBlock;
      const std::int64_t end_step = k / kStep + columns / kStep;
      Vec acc[4][2];
#pragma GCC unroll 4
      for (int r = 0; r < 4; ++r) acc[r][0] = acc[r][1] = zero();
      for (std::int64_t s = k / kStep; s < end_step; ++s) {
#pragma GCC unroll 4
        for (int r = 0; r < 4; ++r) {
          Vec ws[4];
          decoder.step(r, s, ws);
          const float* xs = packed + s * kStep;
          asm volatile("" : "+r"(xs));  // or the activations of a step would be kept, in registers that are not there
#pragma GCC unroll 4
          for (int v = 0; v < 4; ++v) {
            acc[r][0] = fma(ws[v], load(xs + v * kLanes), acc[r][0]);
            acc[r][1] = fma(ws[v], load(xs + stride + v * kLanes), acc[r][1]);
          }
        }
      }
      if (columns % kStep != 0) {
        alignas(64) float tail[kStep];
        for (int r = 0; r < 4; ++r) {
          expand(w, row + r, end_step * kStep, columns % kStep, tail);
          for (int t = 0; t < 2; ++t) {
            const float* xs = packed + t * stride + end_step * kStep;
            for (int v = 0; v < 4; ++v) {
              acc[r][t] = fma(load(tail + v * kLanes), load(xs + v * kLanes), acc[r][t]);
            }
          }
        }
      }
      for (int t = 0; t < 2; ++t) {
        emit({out.y + t * out.stride, out.stride, out.rounding}, row,
             sum_lanes(acc[0][t], acc[1][t], acc[2][t], acc[3][t]), k == 0, k + kBlock >= w.cols);
      }
    }
  }
  if (row < row_end) many_tokens(w, order, row, row_end, x, x_stride, 2, out);
}

template <typename Decoder>
void one_token(const Matrix& w, LaneOrder order, std::int64_t row_begin, std::int64_t row_end, const float* x,
               const Output& out) {
  float* packed = scratch(Scratch::kActivations, (w.cols + kStep - 1) / kStep * kStep);
  pack(order, x, w.cols, packed);
  std::int64_t row = row_begin;
  for (; row + 4 <= row_end; row += 4) one_token_rows<Decoder>(w, row, packed, out);
  if (row < row_end) many_tokens(w, order, row, row_end, x, w.cols, 1, out);
}

}  // namespace

void gemm(const Matrix& w, std::int64_t row_begin, std::int64_t row_end, const float* x, std::int64_t x_stride,
          std::int64_t tokens, float* y, std::int64_t y_stride, Rounding rounding) {
  const Output out{y, y_stride, rounding};
  const LaneOrder order = lane_order(w);
  const auto run = [&]<typename Decoder>() {
    if (tokens == 1) return one_token<Decoder>(w, order, row_begin, row_end, x, out);
    if (tokens == 2) return two_tokens<Decoder>(w, order, row_begin, row_end, x, x_stride, out);
    many_tokens(w, order, row_begin, row_end, x, x_stride, tokens, out);
  };
  switch (w.format) {
    case WeightFormat::kBf16:
      return run.template operator()<Bf16Decoder>();
    case WeightFormat::kF32:
      return run.template operator()<F32Decoder>();
    default:
      break;
  }
  many_tokens(w, order, row_begin, row_end, x, x_stride, tokens, out);
}

}  // namespace perigee::PERIGEE_PATH
