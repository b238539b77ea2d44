#include "kernels/amx/panel.h"

#include <utility>

#include "kernels/amx/tiles.h"
#include "kernels/avx512bf16/expand.h"
#include "kernels/avx512bf16/transpose.h"
#include "kernels/block_integers.h"

namespace perigee::amx {
namespace {

using avx512::Int;
using avx512::Vec;
using avx512bf16::in_column_order;
using avx512bf16::mxfp4_words;
using avx512bf16::transpose;
using avx512bf16::upper_words;

inline Int upper_halves() {
  return _mm512_set1_epi32(static_cast<int>(0xFFFF0000U));
}

// Even columns in the lower, odd columns in the upper half of each pair; the lower half of a float is cut off.
inline Int pair_up(Vec even, Vec odd) {
  return _mm512_or_si512(_mm512_srli_epi32(_mm512_castps_si512(even), 16),
                         _mm512_and_si512(_mm512_castps_si512(odd), upper_halves()));
}
inline Vec remainder(Vec value) {
  return avx512::minus(value, _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(value), upper_halves())));
}

inline void int4_step(const std::byte* codes, float scale, std::byte* high, std::byte* low) {
  const Int bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
  const Vec table = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
  const Vec even = avx512::times(_mm512_permutexvar_ps(bytes, table), avx512::all(scale));
  const Vec odd = avx512::times(_mm512_permutexvar_ps(_mm512_srli_epi32(bytes, 4), table), avx512::all(scale));
  _mm512_storeu_si512(high, pair_up(even, odd));
  _mm512_storeu_si512(low, pair_up(remainder(even), remainder(odd)));
}

inline float bf16_at(const std::byte* from) {
  std::uint16_t bits;
  __builtin_memcpy(&bits, from, 2);
  const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
  float value;
  __builtin_memcpy(&value, &wide, 4);
  return value;
}

// The last columns of a row, fewer than a step.
void expand_tail(const Matrix& w, std::int64_t row, std::int64_t column, int terms, std::byte* out) {
  float tail[kStep] = {};
  dequantize(w, row, column, w.cols, tail);
  for (int term = 0; term < terms; ++term) {
    for (std::int64_t i = 0; i < kStep; ++i) {
      std::uint32_t bits;
      __builtin_memcpy(&bits, tail + i, 4);
      const std::uint16_t upper = static_cast<std::uint16_t>(bits >> 16);
      __builtin_memcpy(out + term * kPanelRows * 2 * kStep + 2 * i, &upper, 2);
      tail[i] -= bf16_at(out + term * kPanelRows * 2 * kStep + 2 * i);
    }
  }
}

void expand_row(const Matrix& w, std::int64_t row, std::int64_t step, std::int64_t steps, int terms, std::byte* out) {
  const std::byte* data = w.data + row * w.row_bytes;
  const std::byte* scales = w.scales + row * w.scale_row_bytes;
  const std::int64_t distance = terms * kPanelRows * 2 * kStep;
  if (w.format == WeightFormat::kBf16) {
    for (std::int64_t s = 0; s < steps; ++s) {
      _mm512_storeu_si512(out + s * distance, _mm512_loadu_si512(data + (step + s) * 2 * kStep));
    }
  } else if (w.format == WeightFormat::kMxfp4) {
    for (std::int64_t s = 0; s < steps; ++s) {
      _mm_prefetch(reinterpret_cast<const char*>(data + (step + steps + s) * kStep / 2), _MM_HINT_T1);
      _mm512_storeu_si512(out + s * distance,
                          in_column_order(mxfp4_words(data + (step + s) * kStep / 2, scales[step + s])));
    }
  } else {
    const int shift = scale_shift(w);
    for (std::int64_t s = 0; s < steps; ++s) {
      _mm_prefetch(reinterpret_cast<const char*>(data + (step + steps + s) * kStep / 2), _MM_HINT_T1);
      int4_step(data + (step + s) * kStep / 2, bf16_at(scales + 2 * ((step + s) >> shift)), out + s * distance,
                out + s * distance + kPanelRows * 2 * kStep);
    }
  }
}

}  // namespace

int terms_of(const Matrix& w) {
  switch (w.format) {
    case WeightFormat::kBf16:
    case WeightFormat::kMxfp4:
      return 1;
    case WeightFormat::kInt4Group:
      return has_integer_product(w) ? 2 : 0;
    default:
      return 0;
  }
}

void expand_panel(const Matrix& w, std::int64_t row, std::int64_t rows, std::int64_t step, std::int64_t steps,
                  std::byte* panel) {
  const int terms = terms_of(w);
  const std::int64_t whole = w.cols / kStep - step < steps ? w.cols / kStep - step : steps;
  for (std::int64_t r = 0; r < rows; ++r) {
    std::byte* out = panel + r * 2 * kStep;
    expand_row(w, row + r, step, whole, terms, out);
    if (whole < steps) {
      expand_tail(w, row + r, (step + whole) * kStep, terms, out + whole * terms * kPanelRows * 2 * kStep);
    }
  }
}

void pack_tokens(const float* x, std::int64_t x_stride, std::int64_t tokens, std::int64_t columns, std::byte* out) {
  for (std::int64_t k = 0; k < columns; k += kStep) {
    Int pairs[kTile];
    for (std::int64_t t = 0; t < kTile; ++t) {
      pairs[t] = t < tokens ? upper_words(x + t * x_stride + k, columns - k) : _mm512_set1_epi32(0);
    }
    std::byte* to = out + k / kStep * (kStep / 2) * 4 * tokens;
    if (tokens == 1) {
      _mm512_storeu_si512(to, pairs[0]);
      continue;
    }
    transpose(pairs);
    for (std::int64_t p = 0; p < kTile; ++p) {
      avx512::store_n(reinterpret_cast<float*>(to + p * 4 * tokens), tokens, _mm512_castsi512_ps(pairs[p]));
    }
  }
}

void store_tile(const float* sums, std::int64_t rows, std::int64_t tokens, bool round, float* y,
                std::int64_t y_stride) {
  Int tile[kTile];
  for (std::int64_t r = 0; r < kTile; ++r) {
    tile[r] = r < rows ? _mm512_loadu_si512(sums + r * kTile) : _mm512_set1_epi32(0);
  }
  transpose(tile);
  for (std::int64_t t = 0; t < tokens; ++t) {
    avx512::store_n(y + t * y_stride, rows,
                    avx512::rounded(_mm512_castsi512_ps(tile[t]), round ? Rounding::kBf16 : Rounding::kNone));
  }
}

}  // namespace perigee::amx
