// Slots of the AVX-512 BF16 path; kernels.h documents each operator. All others are those of AVX-512.
#pragma once

#include "kernels/kernels.h"

namespace perigee::avx512bf16 {

void gemm_bf16(const Matrix& w, std::int64_t row_begin, std::int64_t row_end, const float* x, std::int64_t x_stride,
               std::int64_t tokens, float* y, std::int64_t y_stride, Rounding rounding);
void mla_segment(const MlaShape& shape, const PagedRows& keys, std::span<const MlaQuery> queries, std::int64_t segment,
                 std::span<const MlaPartial> partials);
void index_scores(const IndexQueries& queries, const PagedRows& keys, std::int64_t begin, std::int64_t end,
                  float* scores, std::int64_t scores_stride);

}  // namespace perigee::avx512bf16
