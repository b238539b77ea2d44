#include "kernels/avx512bf16/expand.h"

#include "kernels/mxfp4_values.h"

namespace perigee::avx512bf16 {
namespace {

constexpr Mxfp4Tables mxfp4_tables() {
  Mxfp4Tables tables{};
  for (int scale = 0; scale < 256; ++scale) {
    for (std::uint32_t code = 0; code < 32; ++code)
      tables.of_scale[scale].of_code[code] = mxfp4_as_bf16(code % 16, scale);
  }
  return tables;
}

}  // namespace

constinit const Mxfp4Tables kMxfp4Tables = mxfp4_tables();

void pack(const Matrix& w, const float* x, std::int64_t n, Element* out) {
  const bool mxfp4 = w.format == WeightFormat::kMxfp4;
  std::int64_t i = 0;
  for (; i < n; i += 32) {
    const Words words = upper_words(x + i, n - i);
    store_words(out + i, mxfp4 ? in_mxfp4_order(words) : words);
  }
  for (; i % kStep != 0; i += 32) store_words(out + i, _mm512_set1_epi32(0));
}

void expand(const Matrix& w, std::int64_t row, std::int64_t begin, std::int64_t n, Element* out) {
  const std::int64_t done = w.format == WeightFormat::kMxfp4 ? expand_steps<Mxfp4Decoder>(w, row, begin, n, out)
                                                             : expand_steps<Bf16Decoder>(w, row, begin, n, out);
  if (done == n) return;
  float tail[kStep] = {};
  dequantize(w, row, begin + done, begin + n, tail);
  pack(w, tail, kStep, out + done);
}

}  // namespace perigee::avx512bf16
