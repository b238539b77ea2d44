// y[t, r] = sum_k w[r, k] x[t, k] in tiles of 16 rows x 16 tokens x 32 columns. Every element is one chain of tile
// products in ascending order of K (INT4: the two terms of a step after each other), whatever the number of tokens, so
// tokens, rows and threads never change a bit.
//
// bf16 weights of few tokens are read where they lie; other formats, and bf16 for many tokens, go through a panel of 32
// rows x 1024 columns in L2. Bound by reading the weights up to about a hundred tokens, by the tile unit beyond.
#include "kernels/amx/panel.h"
#include "kernels/amx/slots.h"
#include "kernels/amx/tiles.h"
#include "kernels/avx512bf16/slots.h"
#include "kernels/scratch.h"

namespace perigee::amx {
namespace {

constexpr std::int64_t kPanelSteps = 32;
constexpr std::int64_t kPairTokens = 2 * kTile;
constexpr std::int64_t kTokenChunk = 512;
constexpr std::int64_t kPackedTiles = 1024;  // packed activations: 1 MiB of L2
constexpr std::int64_t kPrefetchSteps = 8;   // lines ahead in each of the weight rows read in place

struct WeightTiles {
  const std::byte* data;
  std::int64_t stride;  // of two rows
  std::int64_t second;  // distance of the second row tile
  std::int64_t step;    // distance of two steps
  std::int64_t term;    // distance of two terms of a step
  int terms;
  bool in_place;
};
struct TokenTiles {
  const std::byte* data[2];
  std::int64_t stride[2];  // of two pairs of columns
};

// Adds `steps` steps to the sums of up to 32 rows x 32 tokens; sums: four tiles [row tile][token tile].
template <bool kTwoRows, bool kTwoTokens>
void multiply(const WeightTiles& w, const TokenTiles& x, std::int64_t steps, bool first, float* sums) {
  constexpr std::int64_t kSums = kTileBytes / 4;
  settle_memory();
  if (first) {
    _tile_zero(0);
    if constexpr (kTwoTokens) _tile_zero(1);
    if constexpr (kTwoRows) _tile_zero(2);
    if constexpr (kTwoRows && kTwoTokens) _tile_zero(3);
  } else {
    _tile_loadd(0, sums, 64);
    if constexpr (kTwoTokens) _tile_loadd(1, sums + kSums, 64);
    if constexpr (kTwoRows) _tile_loadd(2, sums + 2 * kSums, 64);
    if constexpr (kTwoRows && kTwoTokens) _tile_loadd(3, sums + 3 * kSums, 64);
  }
  for (std::int64_t s = 0; s < steps; ++s) {
    _tile_loadd(6, x.data[0] + s * kTile * x.stride[0], x.stride[0]);
    if constexpr (kTwoTokens) _tile_loadd(7, x.data[1] + s * kTile * x.stride[1], x.stride[1]);
    if (w.in_place) {
      const std::byte* ahead = w.data + (s + kPrefetchSteps) * w.step;
      for (std::int64_t r = 0; r < (kTwoRows ? 2 * kTile : kTile); ++r) {
        _mm_prefetch(reinterpret_cast<const char*>(ahead + r * w.stride), _MM_HINT_T0);
      }
    }
    for (int term = 0; term < w.terms; ++term) {
      const std::byte* from = w.data + s * w.step + term * w.term;
      _tile_loadd(4, from, w.stride);
      _tile_dpbf16ps(0, 4, 6);
      if constexpr (kTwoTokens) _tile_dpbf16ps(1, 4, 7);
      if constexpr (kTwoRows) {
        _tile_loadd(5, from + w.second, w.stride);
        _tile_dpbf16ps(2, 5, 6);
        if constexpr (kTwoTokens) _tile_dpbf16ps(3, 5, 7);
      }
    }
  }
  _tile_stored(0, sums, 64);
  if constexpr (kTwoTokens) _tile_stored(1, sums + kSums, 64);
  if constexpr (kTwoRows) _tile_stored(2, sums + 2 * kSums, 64);
  if constexpr (kTwoRows && kTwoTokens) _tile_stored(3, sums + 3 * kSums, 64);
}

void multiply_shape(const TileShape& shape, const WeightTiles& w, const TokenTiles& x, std::int64_t steps, bool first,
                    float* sums) {
  if (shape.rows[1] > 0) {
    if (shape.tokens[1] > 0) {
      multiply<true, true>(w, x, steps, first, sums);
    } else {
      multiply<true, false>(w, x, steps, first, sums);
    }
  } else if (shape.tokens[1] > 0) {
    multiply<false, true>(w, x, steps, first, sums);
  } else {
    multiply<false, false>(w, x, steps, first, sums);
  }
}

std::int64_t smaller(std::int64_t a, std::int64_t b) {
  return a < b ? a : b;
}
std::int64_t beyond(std::int64_t n, std::int64_t part) {
  return n > part ? n - part : 0;
}

class Product {
 public:
  Product(const Matrix& w, int terms, std::int64_t row_end, const float* x, std::int64_t x_stride, std::int64_t tokens,
          float* y, std::int64_t y_stride, Rounding rounding)
      : w_(w),
        terms_(terms),
        row_end_(row_end),
        x_(x),
        x_stride_(x_stride),
        y_(y),
        y_stride_(y_stride),
        rounding_(rounding),
        steps_((w.cols + kStep - 1) / kStep),
        chunk_(smaller(tokens, kTokenChunk)),
        // Steps whose packed activations of one chunk fit: a multiple of the panel's.
        range_(kPackedTiles / ((chunk_ + kTile - 1) / kTile) / kPanelSteps * kPanelSteps),
        packed_(bytes(Scratch::kActivations, (chunk_ + kTile - 1) / kTile * smaller(range_, steps_) * kTileBytes)),
        panel_(bytes(Scratch::kWeights, kPanelSteps * terms * kPanelRows * 2 * kStep)),
        sums_(scratch(Scratch::kScores, (chunk_ + kPairTokens - 1) / kPairTokens * kTileBytes)) {}

  void run(std::int64_t row_begin, std::int64_t tokens) {
    for (std::int64_t token = 0; token < tokens; token += chunk_) {
      const std::int64_t count = smaller(tokens - token, chunk_);
      for (std::int64_t begin = 0; begin < steps_; begin += range_) {
        const std::int64_t end = smaller(begin + range_, steps_);
        pack(token, count, begin, end);
        for (std::int64_t row = row_begin; row < row_end_; row += kPanelRows) rows(row, token, count, begin, end);
      }
    }
  }

 private:
  static std::byte* bytes(Scratch slot, std::int64_t size) {
    return reinterpret_cast<std::byte*>(scratch(slot, (size + 3) / 4));
  }

  // Token tiles lie one behind the other, each with all its steps.
  void pack(std::int64_t token, std::int64_t count, std::int64_t begin, std::int64_t end) {
    const std::int64_t columns = smaller(w_.cols, end * kStep) - begin * kStep;
    for (std::int64_t t = 0; t < count; t += kTile) {
      pack_tokens(x_ + (token + t) * x_stride_ + begin * kStep, x_stride_, smaller(count - t, kTile), columns,
                  packed_ + t / kTile * (end - begin) * kTileBytes);
    }
  }

  // A panel of rows through steps [begin, end). The sums rest in y between two such ranges: floats, not rounded yet.
  void rows(std::int64_t row, std::int64_t token, std::int64_t count, std::int64_t begin, std::int64_t end) {
    const std::int64_t panel_rows = smaller(row_end_ - row, kPanelRows);
    const bool in_place_format = w_.format == WeightFormat::kBf16 && count <= kPairTokens;
    if (begin > 0) load_sums(row, panel_rows, token, count);
    for (std::int64_t step = begin; step < end; step += kPanelSteps) {
      const std::int64_t steps = smaller(end - step, kPanelSteps);
      const bool in_place = in_place_format && (step + steps) * kStep <= w_.cols;
      if (!in_place) expand_panel(w_, row, panel_rows, step, steps, panel_);
      const WeightTiles weights =
          in_place ? WeightTiles{w_.data + row * w_.row_bytes + step * 2 * kStep,
                                 w_.row_bytes,
                                 kTile * w_.row_bytes,
                                 2 * kStep,
                                 0,
                                 1,
                                 true}
                   : WeightTiles{panel_, 2 * kStep, kTileBytes, terms_ * kPanelRows * 2 * kStep, kPanelRows * 2 * kStep,
                                 terms_, false};
      for (std::int64_t t = 0; t < count; t += kPairTokens) {
        const TileShape shape = {{smaller(panel_rows, kTile), beyond(panel_rows, kTile)},
                                 {smaller(count - t, kTile), beyond(smaller(count - t, kPairTokens), kTile)}};
        if (!(shape == configured_)) {
          configure(shape);
          configured_ = shape;
        }
        TokenTiles tokens{};
        for (std::int64_t i = 0; i < 2; ++i) {
          tokens.stride[i] = 4 * shape.tokens[i];
          tokens.data[i] =
              packed_ + (t / kTile + i) * (end - begin) * kTileBytes + (step - begin) * kTile * tokens.stride[i];
        }
        multiply_shape(shape, weights, tokens, steps, step == 0, sums_ + t / kPairTokens * kTileBytes);
      }
    }
    store_sums(row, panel_rows, token, count, end == steps_);
  }

  float* tile_sums(std::int64_t t, std::int64_t r) const {
    return sums_ + t / kPairTokens * kTileBytes + (2 * (r / kTile) + t % kPairTokens / kTile) * (kTileBytes / 4);
  }
  void store_sums(std::int64_t row, std::int64_t rows, std::int64_t token, std::int64_t count, bool last) const {
    settle_memory();
    for (std::int64_t t = 0; t < count; t += kTile) {
      for (std::int64_t r = 0; r < rows; r += kTile) {
        store_tile(tile_sums(t, r), smaller(rows - r, kTile), smaller(count - t, kTile),
                   last && rounding_ == Rounding::kBf16, y_ + (token + t) * y_stride_ + row + r, y_stride_);
      }
    }
  }
  void load_sums(std::int64_t row, std::int64_t rows, std::int64_t token, std::int64_t count) const {
    for (std::int64_t t = 0; t < count; ++t) {
      for (std::int64_t r = 0; r < rows; ++r) {
        tile_sums(t, r)[r % kTile * kTile + t % kTile] = y_[(token + t) * y_stride_ + row + r];
      }
    }
  }

  const Matrix& w_;
  const int terms_;
  const std::int64_t row_end_;
  const float* const x_;
  const std::int64_t x_stride_;
  float* const y_;
  const std::int64_t y_stride_;
  const Rounding rounding_;
  const std::int64_t steps_;
  const std::int64_t chunk_;
  const std::int64_t range_;
  std::byte* const packed_;
  std::byte* const panel_;
  float* const sums_;
  TileShape configured_{};
};

}  // namespace

void gemm_bf16(const Matrix& w, std::int64_t row_begin, std::int64_t row_end, const float* x, std::int64_t x_stride,
               std::int64_t tokens, float* y, std::int64_t y_stride, Rounding rounding) {
  const int terms = terms_of(w);
  if (terms == 0) {
    avx512bf16::gemm_bf16(w, row_begin, row_end, x, x_stride, tokens, y, y_stride, rounding);
    return;
  }
  if (tokens == 0 || row_begin >= row_end) return;
  Product(w, terms, row_end, x, x_stride, tokens, y, y_stride, rounding).run(row_begin, tokens);
  _tile_release();
}

}  // namespace perigee::amx
