#include "kernels/scalar/scalar.h"

namespace perigee::scalar {
namespace {

float mean_square(const float* x, std::int64_t n) {
  float sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += x[i] * x[i];
  return sum / static_cast<float>(n);
}

}  // namespace

void rms_norm(const float* x, const float* weight, std::int64_t n, float eps, float* y, NormRounding rounding) {
  const float scale = 1.0F / std::sqrt(mean_square(x, n) + eps);
  for (std::int64_t i = 0; i < n; ++i) {
    float normed = x[i] * scale;
    if (rounding == NormRounding::kTwice) normed = round_bf16(normed);
    const float product = normed * weight[i];
    y[i] = rounding == NormRounding::kNone ? product : round_bf16(product);
  }
}

void layer_norm(const float* x, const float* weight, const float* bias, std::int64_t n, float eps, float* y,
                Rounding rounding) {
  float sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += x[i];
  const float mean = sum / static_cast<float>(n);
  float variance = 0;
  for (std::int64_t i = 0; i < n; ++i) variance += (x[i] - mean) * (x[i] - mean);
  const float scale = 1.0F / std::sqrt(variance / static_cast<float>(n) + eps);
  for (std::int64_t i = 0; i < n; ++i) {
    const float shift = bias == nullptr ? 0.0F : bias[i];
    y[i] = rounded((x[i] - mean) * scale * weight[i] + shift, rounding);
  }
}

void kda_output_norm(const float* o, const float* weight, const float* r, std::int64_t n, float eps, float* y,
                     Rounding rounding) {
  const float scale = 1.0F / std::sqrt(mean_square(o, n) + eps);
  for (std::int64_t i = 0; i < n; ++i) y[i] = rounded(o[i] * scale * weight[i] * sigmoid(r[i]), rounding);
}

void attn_res_mix(std::span<const float* const> sources, const float* weight, std::int64_t n, float eps, float* out,
                  Rounding rounding) {
  // Online softmax over the sources in their order: at most 9 of them, so the rescaling costs nothing.
  float maximum = -std::numeric_limits<float>::infinity();
  float total = 0;
  for (std::int64_t i = 0; i < n; ++i) out[i] = 0;
  for (const float* source : sources) {
    const float scale = 1.0F / std::sqrt(mean_square(source, n) + eps);
    float score = 0;
    for (std::int64_t i = 0; i < n; ++i) score += source[i] * scale * weight[i];
    const float raised = std::fmax(maximum, score);
    const float old_share = std::exp(maximum - raised);
    const float share = std::exp(score - raised);
    maximum = raised;
    total = total * old_share + share;
    for (std::int64_t i = 0; i < n; ++i) out[i] = out[i] * old_share + share * source[i];
  }
  for (std::int64_t i = 0; i < n; ++i) out[i] = rounded(out[i] / total, rounding);
}

}  // namespace perigee::scalar
