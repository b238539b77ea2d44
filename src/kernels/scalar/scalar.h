// Declarations of the scalar truth; kernels.h documents each operator. Every file here reads like its formula.
#pragma once

#include "base/numeric.h"
#include "kernels/kernels.h"

namespace perigee::scalar {

inline float rounded(float value, Rounding rounding) {
  return rounding == Rounding::kBf16 ? round_bf16(value) : value;
}

inline float sigmoid(float x) {
  return 1.0F / (1.0F + std::exp(-x));
}

void gemm(const Matrix& w, std::int64_t row_begin, std::int64_t row_end, const float* x, std::int64_t x_stride,
          std::int64_t tokens, float* y, std::int64_t y_stride, Rounding rounding);
void gemm_bf16(const Matrix& w, std::int64_t row_begin, std::int64_t row_end, const float* x, std::int64_t x_stride,
               std::int64_t tokens, float* y, std::int64_t y_stride, Rounding rounding);
void gemm_transposed(const Matrix& w, const float* x, std::int64_t x_stride, std::int64_t tokens, float* y,
                     std::int64_t y_stride, Rounding rounding);
void rms_norm(const float* x, const float* weight, std::int64_t n, float eps, float* y, NormRounding rounding);
void layer_norm(const float* x, const float* weight, const float* bias, std::int64_t n, float eps, float* y,
                Rounding rounding);
void short_conv(const float* x, std::int64_t x_stride, const float* weight, std::int64_t channels, std::int64_t tokens,
                float* state, std::int64_t state_stride, float* y, std::int64_t y_stride, Rounding rounding);
void kda_gate(const float* z, const float* dt_bias, float a, float lower_bound, std::int64_t n, float* g);
void kda_head(const KdaHead& head, Rounding rounding);
void kda_output_norm(const float* o, const float* weight, const float* r, std::int64_t n, float eps, float* y,
                     Rounding rounding);
void mla_segment(const MlaShape& shape, const PagedRows& keys, std::span<const MlaQuery> queries, std::int64_t segment,
                 std::span<const MlaPartial> partials);
void mla_merge(const MlaShape& shape, const MlaPartial& next, const MlaPartial& running);
void mla_finish(const MlaShape& shape, const MlaPartial& running, float* out, Rounding rounding);
void index_scores(const IndexQueries& queries, const PagedRows& keys, std::int64_t begin, std::int64_t end,
                  float* scores, std::int64_t scores_stride);
void attn_res_mix(std::span<const float* const> sources, const float* weight, std::int64_t n, float eps, float* out,
                  Rounding rounding);
void situ(const float* gate, const float* up, std::int64_t n, float beta, float linear_beta, float* y,
          Rounding rounding);
void swiglu(const float* gate, const float* up, std::int64_t n, float* y, Rounding rounding);
void sigmoid_gate(const float* x, const float* r, std::int64_t n, float* y, Rounding rounding);
void add(const float* a, const float* b, std::int64_t n, float* y, Rounding rounding);
void weighted_sum(std::span<const float* const> rows, const float* weights, std::int64_t n, float* y,
                  Rounding rounding);

}  // namespace perigee::scalar
