// Comparisons in the goldens' own measures: relative error of a row, absolute error, equal choices up to margins.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace perigee {

// ||got - want|| / ||want||; a row stored as zeros must be zero; NaN counts as infinity.
inline double row_error(std::span<const float> got, std::span<const float> want) {
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double d = static_cast<double>(got[i]) - static_cast<double>(want[i]);
    difference += d * d;
    norm += static_cast<double>(want[i]) * static_cast<double>(want[i]);
  }
  if (!std::isfinite(difference)) return std::numeric_limits<double>::infinity();
  if (norm == 0) return difference == 0 ? 0 : std::numeric_limits<double>::infinity();
  return std::sqrt(difference / norm);
}

// Errors of consecutive rows of `width` values.
inline std::vector<double> row_errors(std::span<const float> got, std::span<const float> want, std::size_t width) {
  std::vector<double> errors;
  for (std::size_t i = 0; i + width <= want.size(); i += width) {
    errors.push_back(row_error(got.subspan(i, width), want.subspan(i, width)));
  }
  return errors;
}

inline double worst(const std::vector<double>& errors) {
  return errors.empty() ? 0 : *std::max_element(errors.begin(), errors.end());
}

inline double median(std::vector<double> errors) {
  if (errors.empty()) return 0;
  std::sort(errors.begin(), errors.end());
  const std::size_t half = errors.size() / 2;
  return errors.size() % 2 == 1 ? errors[half] : (errors[half - 1] + errors[half]) / 2;
}

// |got - want|, where equal infinities differ by nothing.
inline double absolute_error(double got, double want) {
  if (got == want) return 0;
  const double difference = std::abs(got - want);
  return std::isnan(difference) ? std::numeric_limits<double>::infinity() : difference;
}

inline std::size_t argmax(std::span<const float> row) {
  return static_cast<std::size_t>(std::max_element(row.begin(), row.end()) - row.begin());
}

}  // namespace perigee
