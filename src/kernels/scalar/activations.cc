// Gated activations and element-wise sums (spec 3.1, 6.1, 6.3, 10).
#include "kernels/scalar/scalar.h"

namespace perigee::scalar {

void situ(const float* gate, const float* up, std::int64_t n, float beta, float linear_beta, float* y,
          Rounding rounding) {
  for (std::int64_t i = 0; i < n; ++i) {
    const float capped = linear_beta == 0 ? up[i] : linear_beta * std::tanh(up[i] / linear_beta);
    y[i] = rounded(beta * std::tanh(gate[i] / beta) * sigmoid(gate[i]) * capped, rounding);
  }
}

void swiglu(const float* gate, const float* up, std::int64_t n, float* y, Rounding rounding) {
  for (std::int64_t i = 0; i < n; ++i) {
    const float silu = rounded(gate[i] * sigmoid(gate[i]), rounding);
    y[i] = rounded(silu * up[i], rounding);
  }
}

void sigmoid_gate(const float* x, const float* r, std::int64_t n, float* y, Rounding rounding) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = rounded(x[i] * rounded(sigmoid(r[i]), rounding), rounding);
}

void add(const float* a, const float* b, std::int64_t n, float* y, Rounding rounding) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = rounded(a[i] + b[i], rounding);
}

void weighted_sum(std::span<const float* const> rows, const float* weights, std::int64_t n, float* y,
                  Rounding rounding) {
  for (std::int64_t i = 0; i < n; ++i) {
    float sum = 0;
    for (std::size_t row = 0; row < rows.size(); ++row) sum += weights[row] * rows[row][i];
    y[i] = rounded(sum, rounding);
  }
}

}  // namespace perigee::scalar
