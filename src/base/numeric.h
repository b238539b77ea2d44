// Number formats of the checkpoints and their exact conversions. Pure functions, thread-safe.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace perigee {

// bfloat16: the upper half of an IEEE float.
struct bf16 {
  std::uint16_t bits = 0;
};

inline float to_float(bf16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

// Round to nearest even. NaN stays NaN: adding the rounding constant to a NaN could carry into infinity.
inline bf16 to_bf16(float value) {
  const auto u = std::bit_cast<std::uint32_t>(value);
  if ((u & 0x7FFFFFFFU) > 0x7F800000U) return {static_cast<std::uint16_t>((u >> 16) | 0x40U)};
  return {static_cast<std::uint16_t>((u + 0x7FFFU + ((u >> 16) & 1U)) >> 16)};
}

// The nearest bf16, as a float: a rounding point of spec model.md 0.3.
inline float round_bf16(float value) {
  return to_float(to_bf16(value));
}

// IEEE half, for scales that some exports store so.
inline float half_to_float(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1FU;
  const std::uint32_t mantissa = bits & 0x3FFU;
  if (exponent == 0) {
    const float magnitude = std::ldexp(static_cast<float>(mantissa), -24);
    return sign != 0 ? -magnitude : magnitude;
  }
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000U | (mantissa << 13));
  return std::bit_cast<float>(sign | ((exponent + 112U) << 23) | (mantissa << 13));
}

// FP8 E4M3 (the "fn" kind: no infinity, 0x7F and 0xFF are NaN).
inline float e4m3_to_float(std::uint8_t bits) {
  const std::uint32_t exponent = (bits >> 3) & 0xFU;
  const std::uint32_t mantissa = bits & 7U;
  float magnitude = 0;
  if (exponent == 15 && mantissa == 7) {
    magnitude = std::numeric_limits<float>::quiet_NaN();
  } else if (exponent == 0) {
    magnitude = std::ldexp(static_cast<float>(mantissa), -9);
  } else {
    magnitude = std::ldexp(static_cast<float>(8U + mantissa), static_cast<int>(exponent) - 10);
  }
  return (bits & 0x80U) != 0 ? -magnitude : magnitude;
}

// MXFP4 element E2M1, nibble s e e m (spec model.md 7.1).
inline constexpr float kE2m1[16] = {0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,  4.0F,  6.0F,
                                    -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F};

// MXFP4 scale E8M0: 2^(byte-127). Byte 0 is 2^-127 (a subnormal float); 255 is NaN and is refused at load.
inline float e8m0_to_float(std::uint8_t byte) {
  if (byte == 0) return std::bit_cast<float>(0x00400000U);
  if (byte == 255) return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>(static_cast<std::uint32_t>(byte) << 23);
}

}  // namespace perigee
