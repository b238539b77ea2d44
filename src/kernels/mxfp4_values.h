// The sixteen values of an MXFP4 element under each scale, as bf16: tables that paths build at compile time.
#pragma once

#include <cstdint>

namespace perigee {

// bf16 bits of the E2M1 code (spec model.md 7.1) times 2^(scale - 127): infinity where that overflows, subnormal below,
// NaN for scale 255.
constexpr std::uint16_t mxfp4_as_bf16(std::uint32_t code, int scale) {
  if (scale == 255) return 0x7FC0U;
  const std::uint32_t exponent = (code >> 1) & 3U;
  const std::uint32_t fraction = code & 1U;
  const std::uint32_t sign = (code & 8U) << 12;
  if (exponent == 0 && fraction == 0) return static_cast<std::uint16_t>(sign);
  const std::uint32_t significand = exponent != 0 && fraction != 0 ? 0xC0U : 0x80U;
  const int biased = scale + (exponent == 0 ? -1 : static_cast<int>(exponent) - 1);
  if (biased >= 255) return static_cast<std::uint16_t>(sign | 0x7F80U);
  if (biased <= 0) return static_cast<std::uint16_t>(sign | (significand >> (1 - biased)));
  return static_cast<std::uint16_t>(sign | (static_cast<std::uint32_t>(biased) << 7) | (significand & 0x7FU));
}

}  // namespace perigee
