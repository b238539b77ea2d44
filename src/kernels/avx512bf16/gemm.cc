// bf16 and MXFP4 weights, whose values are bf16 too, by bf16 activations: 32 multiply-adds an instruction and no
// rounding of a product. Other formats and activations stay with AVX-512.
#include "kernels/avx512/slots.h"
#include "kernels/avx512bf16/expand.h"
#include "kernels/avx512bf16/slots.h"
#include "kernels/wide/gemm_tiles.inl"

namespace perigee::avx512bf16 {

void gemm_bf16(const Matrix& w, std::int64_t row_begin, std::int64_t row_end, const float* x, std::int64_t x_stride,
               std::int64_t tokens, float* y, std::int64_t y_stride, Rounding rounding) {
  const Output out{y, y_stride, rounding};
  std::int64_t row = row_begin;
  switch (w.format) {
    case WeightFormat::kBf16:
      if (tokens <= 6) row = few_tokens<Bf16Decoder, 6>(w, row_begin, row_end, x, x_stride, tokens, out);
      if (row < row_end) many_tokens<Bf16Pairs, true>(w, row, row_end, x, x_stride, tokens, out);
      return;
    case WeightFormat::kMxfp4:
      if (tokens <= 6) row = few_tokens<Mxfp4Decoder, 6>(w, row_begin, row_end, x, x_stride, tokens, out);
      if (row < row_end) many_tokens<Bf16Pairs, false>(w, row, row_end, x, x_stride, tokens, out);
      return;
    default:
      avx512::gemm_bf16(w, row_begin, row_end, x, x_stride, tokens, y, y_stride, rounding);
  }
}

}  // namespace perigee::avx512bf16
