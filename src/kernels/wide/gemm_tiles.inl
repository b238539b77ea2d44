// y = W x with vector lanes along K. One output element is, for both shapes below,
//   sum over blocks of kBlock columns, ascending: each lane's sum over the block's vectors, ascending, added by
//   sum_lanes.
// Which column sits in which lane depends on the weight format alone (expand.h), so tokens, rows and threads never
// change a bit. A path's expand.h says what packed activations are: floats, or bf16 that are multiplied in pairs.
//
// Few tokens: four rows at a time are decoded in registers; bound by reading the weights.
// More tokens: tiles of kTileRows rows x kTileTokens tokens; the activations of a tile stay in L1 while panels of 16
// rows x kBlock columns go by. bf16 and f32 are decoded in the tile itself and pay for any number of tokens; other
// formats are expanded to a panel once in L2. Bound by reading the weights up to about six tokens, then by products.
#include "kernels/wide/panel_rows.inl"

namespace perigee::PERIGEE_PATH {
namespace {

constexpr std::int64_t kElementBytes = sizeof(Element);
constexpr std::int64_t kVector = 4 * kLanes / kElementBytes;  // columns
constexpr std::int64_t kStride =
    kBlock + 64 / kElementBytes;  // a power of two apart, rows would share a few sets of L1
constexpr std::int64_t kPackedBlocks = kPackedBytes / kElementBytes / kBlock;  // tokens times blocks
static_assert(kPackedBlocks % kTileTokens == 0);                               // a chunk of whole tiles stays within it

Element* elements(Scratch slot, std::int64_t count) {
  return reinterpret_cast<Element*>(scratch(slot, (count * kElementBytes + 3) / 4));
}

struct Output {
  float* y;
  std::int64_t stride;
  Rounding rounding;
};

// Sums of a panel: [rows / kTileRows][tokens][kTileRows].
struct PanelSums {
  float* data;
  std::int64_t tokens;
  float* at(std::int64_t row, std::int64_t token) const {
    return data + (row / kTileRows * tokens + token) * kTileRows + row % kTileRows;
  }
};

struct Tile {
  const std::byte* rows;  // kTileRows, row_bytes apart
  std::int64_t row_bytes;
  std::int64_t pairs;  // of vectors
  std::int64_t ahead;  // bytes from here to what the next panel needs
  const Element* x;    // tokens kStride apart
  bool first;          // starts the sums
  float* sums;         // [kTokens][kTileRows]
};

template <int kTokens, bool kFetch, typename Pairs>
inline void tile(const Tile& in) {
  Vec acc[kTokens][kTileRows];
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 4
    for (int r = 0; r < kTileRows; ++r) acc[t][r] = zero();
  }
  const std::byte* from = in.rows;
  const Element* x = in.x;
  const std::int64_t row_bytes = in.row_bytes;
#pragma GCC unroll 2
  for (std::int64_t pair = 0; pair < in.pairs; ++pair) {
    Words ws[kTileRows];
#pragma GCC unroll 4
    for (int r = 0; r < kTileRows; ++r) ws[r] = Pairs::first(from + r * row_bytes);
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      const Words columns = load_once(x + t * kStride);
#pragma GCC unroll 4
      for (int r = 0; r < kTileRows; ++r) acc[t][r] = multiply_add(ws[r], columns, acc[t][r]);
    }
    if (kFetch && pair * Pairs::kBytes % 64 == 0) {
#pragma GCC unroll 4
      for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 2
        for (std::int64_t line = 0; line < Pairs::kBytes; line += 64) {
          fetch_to_l2(from + r * row_bytes + in.ahead + line);
        }
      }
    }
    // A large tile loads the words again: its registers are for the sums.
    if constexpr (kTokens >= kTileTokens - 1) asm("" : "+r"(from));
#pragma GCC unroll 4
    for (int r = 0; r < kTileRows; ++r) ws[r] = Pairs::second(from + r * row_bytes);
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      const Words columns = load_once(x + t * kStride + kVector);
#pragma GCC unroll 4
      for (int r = 0; r < kTileRows; ++r) acc[t][r] = multiply_add(ws[r], columns, acc[t][r]);
    }
    from += Pairs::kBytes;
    x += 2 * kVector;
  }
  constexpr int kSums = kTokens * kTileRows;
  const auto sum = [&acc](int i) { return acc[i / kTileRows][i % kTileRows]; };
#pragma GCC unroll 8
  for (int i = 0; i + 8 <= kSums; i += 8) {
    const __m256 block =
        sum_lanes(sum(i), sum(i + 1), sum(i + 2), sum(i + 3), sum(i + 4), sum(i + 5), sum(i + 6), sum(i + 7));
    _mm256_storeu_ps(in.sums + i, in.first ? block : _mm256_add_ps(_mm256_loadu_ps(in.sums + i), block));
  }
  if constexpr (kSums % 8 >= 4) {
    constexpr int kFour = kSums / 8 * 8;
    const __m128 block = sum_lanes(sum(kFour), sum(kFour + 1), sum(kFour + 2), sum(kFour + 3));
    _mm_storeu_ps(in.sums + kFour, in.first ? block : _mm_add_ps(_mm_loadu_ps(in.sums + kFour), block));
  }
  if constexpr (kSums % 4 != 0) {
    static_assert(kSums % 4 == 2);
    auto* last = reinterpret_cast<__m64*>(in.sums + kSums - 2);
    const __m128 block = sum_lanes(sum(kSums - 2), sum(kSums - 1), sum(kSums - 2), sum(kSums - 1));
    _mm_storel_pi(last, in.first ? block : _mm_add_ps(_mm_loadl_pi(block, last), block));
  }
}

template <int kTokens, bool kFetch, typename Pairs>
inline void tile_of(std::int64_t count, const Tile& in) {
  if (count == kTokens) {
    tile<kTokens, kFetch, Pairs>(in);
  } else if constexpr (kTokens > 1) {
    tile_of<kTokens - 1, kFetch, Pairs>(count, in);
  }
}

// All tokens of the chunk times one panel, whose rows are those of `w`, in whole tiles. ahead: 0 where nothing is to be
// fetched.
template <typename Pairs>
void multiply_panel(const Matrix& w, const Element* packed, std::int64_t tokens, std::int64_t pairs, std::int64_t ahead,
                    bool first, const PanelSums& sums) {
  const std::int64_t tiles = (tokens + kTileTokens - 1) / kTileTokens;
  std::int64_t t = 0;
  for (std::int64_t i = 0; i < tiles; ++i) {
    const std::int64_t left = tiles - i;
    const std::int64_t count = (tokens - t + left - 1) / left;  // of equal size: small tiles wait for their chains
    for (std::int64_t r = 0; r < w.rows; r += kTileRows) {
      const Tile in{.rows = w.data + r * w.row_bytes,
                    .row_bytes = w.row_bytes,
                    .pairs = pairs,
                    .ahead = ahead,
                    .x = packed + t * kStride,
                    .first = first,
                    .sums = sums.at(r, t)};
      if (ahead != 0 && r / kTileRows % tiles == i) {  // each row once, evenly over the tiles
        tile_of<kTileTokens, true, Pairs>(count, in);
      } else {
        tile_of<kTileTokens, false, Pairs>(count, in);
      }
    }
    t += count;
  }
}

std::int64_t whole_tiles(std::int64_t rows) {
  return (rows + kTileRows - 1) / kTileRows * kTileRows;
}

// Rows of a panel that go to and from y four at a time: those whose sums are neighbours in both.
std::int64_t rows_by_four(const PanelRows& rows) {
  return kTileRows == 4 && rows.apart == 1 ? rows.count / 4 * 4 : 0;
}

// Between the output and the sums of a panel.
void load_sums(const Output& out, std::int64_t token, const PanelRows& rows, const PanelSums& sums) {
  const std::int64_t together = rows_by_four(rows);
  for (std::int64_t t = 0; t < sums.tokens; ++t) {
    const float* y = out.y + (token + t) * out.stride + rows.first;
    for (std::int64_t r = 0; r < together; r += 4) _mm_storeu_ps(sums.at(r, t), _mm_loadu_ps(y + r));
    for (std::int64_t r = together; r < rows.count; ++r) *sums.at(r, t) = y[r * rows.apart];
  }
}
void store_sums(const Output& out, std::int64_t token, const PanelRows& rows, bool last, const PanelSums& sums) {
  if (last && out.rounding == Rounding::kBf16) {
    const std::int64_t size = whole_tiles(rows.count) * sums.tokens;
    for_lanes(size,
              [&](std::int64_t i, std::int64_t n) { store_n(sums.data + i, n, round_bf16(load_n(sums.data + i, n))); });
  }
  const std::int64_t together = rows_by_four(rows);
  for (std::int64_t t = 0; t < sums.tokens; ++t) {
    float* y = out.y + (token + t) * out.stride + rows.first;
    for (std::int64_t r = 0; r < together; r += 4) _mm_storeu_ps(y + r, _mm_loadu_ps(sums.at(r, t)));
    for (std::int64_t r = together; r < rows.count; ++r) y[r * rows.apart] = *sums.at(r, t);
  }
}

// The block of columns that starts at k, as floats, with rows of zeros to whole tiles. Asks for what lies `ahead` bytes
// behind.
void expand_panel(const Matrix& w, const PanelRows& rows, std::int64_t k, std::int64_t columns, std::int64_t ahead,
                  Element* panel) {
  for (std::int64_t r = 0; r < rows.count; ++r) {
    const std::int64_t row = rows.first + r * rows.apart;
    fetch_to_l2(w.data + row * w.row_bytes + k * w.row_bytes / w.cols + ahead, kBlock * w.row_bytes / w.cols);
    expand(w, row, k, columns, panel + r * kStride);
  }
  for (std::int64_t i = rows.count * kStride; i < whole_tiles(rows.count) * kStride; ++i) panel[i] = 0;
}

// Activations are packed for as many blocks of columns as fit L2; a panel then runs through those blocks before the
// next one begins, so that its sums seldom wait in y and each weight row is read along its length. kInPlace: whole
// tiles read the weights where they lie.
template <typename Pairs, bool kInPlace>
void many_tokens(const Matrix& w, std::int64_t row_begin, std::int64_t row_end, const float* x, std::int64_t x_stride,
                 std::int64_t tokens, const Output& out) {
  const std::int64_t blocks_of_w = (w.cols + kBlock - 1) / kBlock;
  // Expansion must be shared by many tokens; without it all columns of fewer tokens are better.
  std::int64_t limit = kInPlace ? kPackedBlocks / blocks_of_w : kPackedBlocks;
  if (limit < kSmallChunk) limit = kSmallChunk;
  const std::int64_t chunks = (tokens + limit - 1) / limit;
  const std::int64_t even = (tokens + chunks - 1) / chunks;
  const std::int64_t chunk_size = chunks > 1 ? (even + kTileTokens - 1) / kTileTokens * kTileTokens : even;
  std::int64_t blocks = kPackedBlocks / chunk_size;
  if (blocks > blocks_of_w) blocks = blocks_of_w;
  Element* packed = elements(Scratch::kActivations, blocks * chunk_size * kStride);
  Element* panel = elements(Scratch::kWeights, kPanelRows * kStride);
  float* sums_memory = scratch(Scratch::kScores, kPackedBlocks * kPanelRows);
  for (std::int64_t chunk = 0; chunk < tokens; chunk += chunk_size) {
    const std::int64_t count = tokens - chunk < chunk_size ? tokens - chunk : chunk_size;
    const PanelSums sums{sums_memory, count};
    for (std::int64_t begin = 0; begin < w.cols; begin += blocks * kBlock) {
      const std::int64_t end = begin + blocks * kBlock < w.cols ? begin + blocks * kBlock : w.cols;
      for (std::int64_t t = 0; t < count; ++t) {
        for (std::int64_t k = begin; k < end; k += kBlock) {
          pack(w, x + (chunk + t) * x_stride + k, end - k < kBlock ? end - k : kBlock,
               packed + ((k - begin) / kBlock * chunk_size + t) * kStride);
        }
      }
      for_panels(row_begin, row_end, tokens <= kFarTokens, [&](const PanelRows& rows) {
        if (begin > 0) load_sums(out, chunk, rows, sums);
        for (std::int64_t k = begin; k < end; k += kBlock) {
          const std::int64_t columns = end - k < kBlock ? end - k : kBlock;
          const std::int64_t ahead = (k + kBlock < end ? kBlock : begin - k) * w.row_bytes / w.cols +
                                     (k + kBlock < end ? 0 : rows.next * w.row_bytes);
          const Element* activations = packed + (k - begin) / kBlock * chunk_size * kStride;
          if (kInPlace && columns % kStep == 0 && rows.count % kTileRows == 0) {
            Matrix part = rows_apart(w, rows.first, rows.count, rows.apart);
            part.data += k / (2 * kVector) * Pairs::kBytes;
            multiply_panel<Pairs>(part, activations, count, columns / (2 * kVector), ahead, k == 0, sums);
          } else {
            expand_panel(w, rows, k, columns, ahead, panel);
            const Matrix part{.rows = whole_tiles(rows.count),
                              .data = reinterpret_cast<const std::byte*>(panel),
                              .row_bytes = kStride * kElementBytes};
            const std::int64_t steps = (columns + kStep - 1) / kStep;
            multiply_panel<PackedPairs>(part, activations, count, 2 * steps, 0, k == 0, sums);
          }
        }
        store_sums(out, chunk, rows, end == w.cols, sums);
      });
    }
  }
}

// Rows i, i + quarter, i + 2 quarter and i + 3 quarter of some rows: y has them as far apart.
struct FourRows {
  Matrix w;
  float* y;
  std::int64_t quarter;
  Rounding rounding;

  FourRows(const Matrix& all, std::int64_t row, std::int64_t apart, const Output& out)
      : w(rows_apart(all, row, 4, apart)), y(out.y + row), quarter(apart), rounding(out.rounding) {}
  void store(std::int64_t token_offset, __m128 sums) const {
    alignas(16) float values[4];
    _mm_store_ps(values, rounding == Rounding::kBf16 ? round_bf16(sums) : sums);
    for (int r = 0; r < 4; ++r) y[token_offset + r * quarter] = values[r];
  }
};

// Asks for what the stream of a row needs some hundred nanoseconds later; steps of formats of fewer bytes take longer.
template <std::int64_t kBytes>
inline void fetch_ahead(const std::byte* row, std::int64_t step) {
  constexpr std::int64_t kAhead = kBytes <= 64 ? 2048 : 1024;
#pragma GCC unroll 4
  for (std::int64_t line = 0; line < kBytes; line += 64) fetch(row + step * kBytes + kAhead + line);
}

// Decoded on the way from memory to the registers; the activations of a step stay in four registers.
template <typename Decoder>
inline void one_token_rows(const FourRows& rows, const Element* packed) {
  const Matrix& w = rows.w;
  const Decoder decoder(w, 0);
  __m128 total = _mm_setzero_ps();
  for (std::int64_t k = 0; k < w.cols; k += kBlock) {
    const std::int64_t columns = w.cols - k < kBlock ? w.cols - k : kBlock;
    const std::int64_t first_step = k / kStep;
    const std::int64_t end_step = first_step + columns / kStep;
    Vec acc[4];
#pragma GCC unroll 4
    for (int r = 0; r < 4; ++r) acc[r] = zero();
    for (std::int64_t s = first_step; s < end_step; ++s) {
      Words x[4];
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) x[v] = load_once(packed + s * kStep + v * kVector);
#pragma GCC unroll 4
      for (int r = 0; r < 4; ++r) {
        fetch_ahead<Decoder::kStepBytes>(decoder.data.row(r), s);
        Words ws[4];
        decoder.step(r, s, ws);
#pragma GCC unroll 4
        for (int v = 0; v < 4; ++v) acc[r] = multiply_add(ws[v], x[v], acc[r]);
      }
    }
    if (columns % kStep != 0) {
      alignas(64) Element tail[kStep];
      for (int r = 0; r < 4; ++r) {
        expand(w, r, end_step * kStep, columns % kStep, tail);
        for (int v = 0; v < 4; ++v) {
          acc[r] =
              multiply_add(load_once(tail + v * kVector), load_once(packed + end_step * kStep + v * kVector), acc[r]);
        }
      }
    }
    const __m128 sums = sum_lanes(acc[0], acc[1], acc[2], acc[3]);
    total = k == 0 ? sums : _mm_add_ps(total, sums);
  }
  rows.store(0, total);
}

// A few tokens, as a decode batch often gives an expert: each decoded step of four rows meets all of them. Token t lies
// t * stride elements behind the first.
template <typename Decoder, int kTokens>
inline void some_token_rows(const FourRows& rows, const Element* packed, std::int64_t stride, std::int64_t y_stride) {
  const Matrix& w = rows.w;
  const Decoder decoder(w, 0);
  __m128 totals[kTokens] = {};
  for (std::int64_t k = 0; k < w.cols; k += kBlock) {
    const std::int64_t columns = w.cols - k < kBlock ? w.cols - k : kBlock;
    const std::int64_t end_step = k / kStep + columns / kStep;
    Vec acc[4][kTokens];
#pragma GCC unroll 4
    for (int r = 0; r < 4; ++r) {
#pragma GCC unroll 6
      for (int t = 0; t < kTokens; ++t) acc[r][t] = zero();
    }
    for (std::int64_t s = k / kStep; s < end_step; ++s) {
      const Element* xs = packed + s * kStep;
      if constexpr (requires { decoder.vector(0, s, 0); }) {
        // All four rows meet a vector of activations while it is in a register: a quarter of the loads.
#pragma GCC unroll 4
        for (int r = 0; r < 4; ++r) fetch_ahead<Decoder::kStepBytes>(decoder.data.row(r), s);
#pragma GCC unroll 4
        for (int v = 0; v < 4; ++v) {
          Words ws[4];
#pragma GCC unroll 4
          for (int r = 0; r < 4; ++r) ws[r] = decoder.vector(r, s, v);
#pragma GCC unroll 6
          for (int t = 0; t < kTokens; ++t) {
            const Words x = load_once(xs + t * stride + v * kVector);
#pragma GCC unroll 4
            for (int r = 0; r < 4; ++r) acc[r][t] = multiply_add(ws[r], x, acc[r][t]);
          }
        }
      } else {
#pragma GCC unroll 4
        for (int r = 0; r < 4; ++r) {
          fetch_ahead<Decoder::kStepBytes>(decoder.data.row(r), s);
          Words ws[4];
          decoder.step(r, s, ws);
          asm volatile("" : "+r"(xs));  // or the activations of a step would be kept, in registers that are not there
#pragma GCC unroll 4
          for (int v = 0; v < 4; ++v) {
#pragma GCC unroll 6
            for (int t = 0; t < kTokens; ++t) {
              acc[r][t] = multiply_add(ws[v], load_words(xs + t * stride + v * kVector), acc[r][t]);
            }
          }
        }
      }
    }
    if (columns % kStep != 0) {
      alignas(64) Element tail[kStep];
      for (int r = 0; r < 4; ++r) {
        expand(w, r, end_step * kStep, columns % kStep, tail);
        for (int t = 0; t < kTokens; ++t) {
          const Element* xs = packed + t * stride + end_step * kStep;
          for (int v = 0; v < 4; ++v) {
            acc[r][t] = multiply_add(load_words(tail + v * kVector), load_words(xs + v * kVector), acc[r][t]);
          }
        }
      }
    }
    for (int t = 0; t < kTokens; ++t) {
      const __m128 sums = sum_lanes(acc[0][t], acc[1][t], acc[2][t], acc[3][t]);
      totals[t] = k == 0 ? sums : _mm_add_ps(totals[t], sums);
    }
  }
  for (int t = 0; t < kTokens; ++t) rows.store(t * y_stride, totals[t]);
}

template <typename Decoder, int kTokens>
inline void some_token_rows_of(std::int64_t count, const FourRows& rows, const Element* packed, std::int64_t stride,
                               std::int64_t y_stride) {
  if (count == kTokens) {
    some_token_rows<Decoder, kTokens>(rows, packed, stride, y_stride);
  } else if constexpr (kTokens > 2) {
    some_token_rows_of<Decoder, kTokens - 1>(count, rows, packed, stride, y_stride);
  }
}

// Up to kMost tokens; returns the first row that is left, fewer than four of them.
template <typename Decoder, int kMost>
std::int64_t few_tokens(const Matrix& w, std::int64_t row_begin, std::int64_t row_end, const float* x,
                        std::int64_t x_stride, std::int64_t tokens, const Output& out) {
  // Two tokens would share sets of L1.
  const std::int64_t stride = (w.cols + kStep - 1) / kStep * kStep + 64 / kElementBytes;
  Element* packed = elements(Scratch::kActivations, tokens * stride);
  for (std::int64_t t = 0; t < tokens; ++t) pack(w, x + t * x_stride, w.cols, packed + t * stride);
  const std::int64_t quarter = (row_end - row_begin) / 4;
  for (std::int64_t row = row_begin; row < row_begin + quarter; ++row) {
    const FourRows rows(w, row, quarter, out);
    if (tokens == 1) {
      one_token_rows<Decoder>(rows, packed);
    } else {
      some_token_rows_of<Decoder, kMost>(tokens, rows, packed, stride, out.stride);
    }
  }
  return row_begin + 4 * quarter;
}

}  // namespace
}  // namespace perigee::PERIGEE_PATH
