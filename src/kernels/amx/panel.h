// Operands of the tile products: weights as bf16 in rows of 32 columns, activations as pairs of columns side by side.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/matrix.h"

namespace perigee::amx {

static constexpr std::int64_t kPanelRows = 32;

// bf16 terms whose sum is a weight of this format exactly: 1, or 2 for INT4, whose code times scale has eleven bits.
// 0 for a format that AVX-512 multiplies.
int terms_of(const Matrix& w);

// Steps [step, step + steps) of `rows` rows as [step][term][kPanelRows][32] bf16; columns beyond the matrix are zero.
void expand_panel(const Matrix& w, std::int64_t row, std::int64_t rows, std::int64_t step, std::int64_t steps,
                  std::byte* panel);

// Columns [column, column + columns) of `tokens` <= 16 rows of floats that hold bf16 values, as
// [step][16 pairs of columns][tokens][2] bf16, with zeros up to a whole step.
void pack_tokens(const float* x, std::int64_t x_stride, std::int64_t tokens, std::int64_t columns, std::byte* out);

// Sums of one tile, [16 rows][16 tokens], to y[token][row].
void store_tile(const float* sums, std::int64_t rows, std::int64_t tokens, bool round, float* y, std::int64_t y_stride);

}  // namespace perigee::amx
