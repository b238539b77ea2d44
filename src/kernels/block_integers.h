// Products of integer weights with bf16 activations (the bf16 path) are sums of integers, so that every path and every
// shape of a kernel gives the same bits. For a block of 32 columns:
//
//   E  = exponent of the largest |x| of the block, at least -112
//   q  = x 2^(13 - E), to the nearest integer, ties to even: |q| <= 16384
//   S  = sum of code * q, exact: |code| <= 12 gives |S| < 2^23, which a float holds; |code| <= 128 gives |S| <= 2^26,
//        rounded to a float once
//   y  = fma(S, weight scale * 2^(E - 13) * unit, y), blocks ascending
//
// A bf16 has 8 significant bits: q is x itself wherever x lies within a factor of 64 of the block's largest; below, the
// error is at most 2^-15 of the largest, a 64th of what rounding that one to bf16 cost. A block with an infinity or a
// NaN has a NaN for its scale.
#pragma once

#include <cstdint>

#include "base/matrix.h"

namespace perigee {

inline constexpr std::int64_t kIntegerBlock = 32;
inline constexpr int kIntegerBits = 13;

// MXFP4 (codes are twice the E2M1 value, unit 1/2), and INT4 and INT8 with bf16 scales for groups of whole blocks (code
// - 8 and code - 128, unit 1).
bool has_integer_product(const Matrix& w);

// Blocks that share a scale are 1 << scale_shift; one scale for the whole row: a shift that leaves 0 of any block.
int scale_shift(const Matrix& w);

}  // namespace perigee
