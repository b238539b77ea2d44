#include "model/kda.h"

#include <array>
#include <cmath>

#include "model/linear.h"

namespace perigee {

void KdaLayer::forward(StepContext& step, std::int64_t layer, const KdaWeights& weights, const float* x, float* out) {
  const KdaConfig& kda = step.config.kda;
  const std::int64_t width = kda.width();
  const std::int64_t rows = step.rows;
  float* projected = projected_.ensure(rows * 3 * width);
  float* decay_low = decay_low_.ensure(rows * kda.head_dim);
  float* gate_low = gate_low_.ensure(rows * kda.head_dim);
  float* decay = decay_.ensure(rows * width);
  float* gate = gate_.ensure(rows * width);
  float* beta = beta_.ensure(rows * kda.heads);
  q_.ensure(rows * width);
  k_.ensure(rows * width);
  v_.ensure(rows * width);
  o_.ensure(rows * width);

  LinearJob q = linear_job(step, weights.q, x, projected);
  LinearJob k = linear_job(step, weights.k, x, projected + width);
  LinearJob v = linear_job(step, weights.v, x, projected + 2 * width);
  q.y_stride = k.y_stride = v.y_stride = 3 * width;
  const std::array inputs = {
      q,
      k,
      v,
      kda.full_rank_gate ? linear_job(step, weights.g, x, gate) : linear_job(step, weights.g_a, x, gate_low),
      linear_job(step, weights.f_a, x, decay_low),
      linear_job(step, weights.b, x, beta)};
  run_linear(step, inputs);

  const std::array low_rank = {linear_job(step, weights.f_b, decay_low, decay),
                               linear_job(step, weights.g_b, gate_low, gate)};
  run_linear(step, std::span(low_rank).first(kda.full_rank_gate ? 1 : 2));

  const auto segments = static_cast<std::int64_t>(step.segments.size());
  step.pool.run(segments * kda.heads, [&](std::int64_t index, int /*thread*/) {
    head(step, layer, weights, index / kda.heads, index % kda.heads);
  });

  const std::array output = {linear_job(step, weights.o, o_.data(), out)};
  run_linear(step, output);
}

// One head of one segment, token by token: the order of every sum is that of single-token decode.
void KdaLayer::head(StepContext& step, std::int64_t layer, const KdaWeights& weights, std::int64_t segment,
                    std::int64_t head) {
  const KdaConfig& kda = step.config.kda;
  const Kernels& kernels = step.kernels;
  const std::int64_t dim = kda.head_dim;
  const std::int64_t width = kda.width();
  const std::int64_t row = step.segment_row[static_cast<std::size_t>(segment)];
  const Segment& part = step.segments[static_cast<std::size_t>(segment)];
  const auto tokens = static_cast<std::int64_t>(part.tokens.size());
  const StateLayout::KdaPlace& place = step.layout.kda[static_cast<std::size_t>(layer)];
  const std::int64_t column = row * width + head * dim;

  const std::array<float*, 3> convolved = {q_.data() + column, k_.data() + column, v_.data() + column};
  float* taps = part.sequence.recurrent + place.convolution;
  for (std::int64_t i = 0; i < 3; ++i) {
    const std::int64_t channel = i * width + head * dim;
    kernels.short_conv(projected_.data() + row * 3 * width + channel, 3 * width, weights.conv.data() + channel * 4, dim,
                       tokens, taps + channel, 3 * width, convolved[static_cast<std::size_t>(i)], width, step.rounding);
  }

  float* decay = decay_.data() + column;
  float* beta = beta_.data() + row * kda.heads + head;
  for (std::int64_t t = 0; t < tokens; ++t) {
    kernels.kda_gate(decay + t * width, weights.dt_bias.data() + head * dim, weights.a[static_cast<std::size_t>(head)],
                     static_cast<float>(kda.gate_lower_bound), dim, decay + t * width);
    float& b = beta[t * kda.heads];
    b = 1.0F / (1.0F + std::exp(-b));
  }

  float* o = o_.data() + column;
  kernels.kda_head({.tokens = tokens,
                    .dim = dim,
                    .stride = width,
                    .q = convolved[0],
                    .k = convolved[1],
                    .v = convolved[2],
                    .g = decay,
                    .beta = beta,
                    .beta_stride = kda.heads,
                    .state = part.sequence.recurrent + place.state + head * dim * dim,
                    .o = o},
                   step.rounding);
  const float* gate = gate_.data() + column;
  for (std::int64_t t = 0; t < tokens; ++t) {
    kernels.kda_output_norm(o + t * width, weights.o_norm.data(), gate + t * width, dim,
                            static_cast<float>(step.config.rms_eps), o + t * width, step.rounding);
  }
}

}  // namespace perigee
