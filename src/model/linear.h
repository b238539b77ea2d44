// Linear layers on the pool. Several products run as one parallel loop, so that small ones share a barrier and the
// weights of each expert are read once a step.
#pragma once

#include <cstdint>
#include <span>

#include "base/matrix.h"
#include "model/step.h"

namespace perigee {

struct LinearJob {
  const Matrix* weight = nullptr;
  const float* x = nullptr;  // [rows, weight->cols]
  std::int64_t x_stride = 0;
  std::int64_t rows = 0;
  float* y = nullptr;  // [rows, weight->rows]
  std::int64_t y_stride = 0;
  Rounding rounding = Rounding::kNone;
};

void run_linear(StepContext& step, std::span<const LinearJob> jobs);

// One dense product over all rows of the step with tightly packed inputs and outputs.
LinearJob linear_job(const StepContext& step, const Matrix& weight, const float* x, float* y);

}  // namespace perigee
