// Products of floats: bf16 and f32 are decoded where they lie, other formats expanded (gemm_tiles.inl).
#include "kernels/wide/gemm_tiles.inl"

namespace perigee::PERIGEE_PATH {

void gemm(const Matrix& w, std::int64_t row_begin, std::int64_t row_end, const float* x, std::int64_t x_stride,
          std::int64_t tokens, float* y, std::int64_t y_stride, Rounding rounding) {
  const Output out{y, y_stride, rounding};
  const auto run = [&]<typename Pairs>() {
    // From three tokens on, panels are as fast.
    const std::int64_t row =
        tokens > 2 ? row_begin : few_tokens<PairDecoder<Pairs>, 2>(w, row_begin, row_end, x, x_stride, tokens, out);
    if (row < row_end) many_tokens<Pairs, true>(w, row, row_end, x, x_stride, tokens, out);
  };
  switch (w.format) {
    case WeightFormat::kBf16:
      return run.template operator()<Bf16Pairs>();
    case WeightFormat::kF32:
      return run.template operator()<F32Pairs>();
    default:
      break;
  }
  many_tokens<F32Pairs, false>(w, row_begin, row_end, x, x_stride, tokens, out);
}

}  // namespace perigee::PERIGEE_PATH
