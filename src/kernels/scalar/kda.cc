// Kimi Delta Attention: short convolution, decay gate, recurrence in its token form (spec 2.2-2.5).
#include <vector>

#include "kernels/scalar/scalar.h"

namespace perigee::scalar {

void short_conv(const float* x, std::int64_t x_stride, const float* weight, std::int64_t channels, std::int64_t tokens,
                float* state, std::int64_t state_stride, float* y, std::int64_t y_stride, Rounding rounding) {
  for (std::int64_t c = 0; c < channels; ++c) {
    const float* w = weight + 4 * c;
    float past[3] = {state[c], state[state_stride + c], state[2 * state_stride + c]};
    for (std::int64_t t = 0; t < tokens; ++t) {
      const float now = x[t * x_stride + c];
      const float sum = w[0] * past[0] + w[1] * past[1] + w[2] * past[2] + w[3] * now;
      y[t * y_stride + c] = rounded(sum * sigmoid(sum), rounding);
      past[0] = past[1];
      past[1] = past[2];
      past[2] = now;
    }
    for (int j = 0; j < 3; ++j) state[j * state_stride + c] = past[j];
  }
}

void kda_gate(const float* z, const float* dt_bias, float a, float lower_bound, std::int64_t n, float* g) {
  for (std::int64_t i = 0; i < n; ++i) {
    const float shifted = z[i] + dt_bias[i];
    if (lower_bound < 0) {
      g[i] = lower_bound * sigmoid(a * shifted);
    } else {
      g[i] = -a * (std::fmax(shifted, 0.0F) + std::log1p(std::exp(-std::fabs(shifted))));
    }
  }
}

void kda_head(const KdaHead& head, Rounding rounding) {
  const std::int64_t n = head.dim;
  const auto size = static_cast<std::size_t>(n);
  std::vector<float> q(size);
  std::vector<float> k(size);
  std::vector<float> u(size);
  const auto l2_normed = [n](const float* x, float factor, std::vector<float>& out) {
    float sum = 0;
    for (std::int64_t i = 0; i < n; ++i) sum += x[i] * x[i];
    const float scale = 1.0F / std::sqrt(sum + 1e-6F) * factor;
    for (std::int64_t i = 0; i < n; ++i) out[static_cast<std::size_t>(i)] = x[i] * scale;
  };
  for (std::int64_t t = 0; t < head.tokens; ++t) {
    const std::int64_t at = t * head.stride;
    l2_normed(head.q + at, 1.0F / std::sqrt(static_cast<float>(n)), q);
    l2_normed(head.k + at, 1.0F, k);
    const float beta = head.beta[t * head.beta_stride];

    // S <- diag(e^g) S and S^T k
    for (std::int64_t j = 0; j < n; ++j) u[static_cast<std::size_t>(j)] = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      float* row = head.state + i * n;
      const float decay = std::exp(head.g[at + i]);
      const float key = k[static_cast<std::size_t>(i)];
      for (std::int64_t j = 0; j < n; ++j) {
        row[j] *= decay;
        u[static_cast<std::size_t>(j)] += row[j] * key;
      }
    }
    // u <- beta (v - S^T k)
    for (std::int64_t j = 0; j < n; ++j) {
      auto& value = u[static_cast<std::size_t>(j)];
      value = beta * (head.v[at + j] - value);
    }
    // S <- S + k u^T and o = S^T q
    float* o = head.o + at;
    for (std::int64_t j = 0; j < n; ++j) o[j] = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      float* row = head.state + i * n;
      for (std::int64_t j = 0; j < n; ++j) {
        row[j] += k[static_cast<std::size_t>(i)] * u[static_cast<std::size_t>(j)];
        o[j] += row[j] * q[static_cast<std::size_t>(i)];
      }
    }
    for (std::int64_t j = 0; j < n; ++j) o[j] = rounded(o[j], rounding);
  }
}

}  // namespace perigee::scalar
