// Arithmetic on sizes that come from files and clients: overflow is an answer, not undefined behaviour.
#pragma once

#include <concepts>
#include <optional>
#include <type_traits>

namespace perigee {

template <std::integral T>
std::optional<T> checked_add(T a, T b) {
  T result{};
  if (__builtin_add_overflow(a, b, &result)) return std::nullopt;
  return result;
}

template <std::integral T>
std::optional<T> checked_mul(T a, T b) {
  T result{};
  if (__builtin_mul_overflow(a, b, &result)) return std::nullopt;
  return result;
}

template <std::integral T>
constexpr T ceil_div(T a, T b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

// The next multiple of `unit`.
template <std::integral T>
constexpr T align_up(T value, std::type_identity_t<T> unit) {
  return ceil_div<T>(value, unit) * unit;
}

}  // namespace perigee
