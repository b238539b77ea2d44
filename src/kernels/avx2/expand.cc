#include "kernels/avx2/expand.h"

#include <utility>

#include "kernels/mxfp4_values.h"

namespace perigee::avx2 {
namespace {

enum class LaneOrder : std::uint8_t {
  kNatural,
  kEvenOdd,  // of 16 columns: 0 2 4 .. 14, 1 3 5 .. 15
  kNibbles,  // of 16 columns: 0 4 8 12 1 5 9 13, 2 6 10 14 3 7 11 15
};

constexpr std::uint32_t small_integer_bf16(int value) {
  const std::uint32_t magnitude = static_cast<std::uint32_t>(value < 0 ? -value : value);
  if (magnitude == 0) return 0;
  std::uint32_t exponent = 0;
  while ((magnitude >> (exponent + 1)) != 0) ++exponent;
  const std::uint32_t fraction = (magnitude << (7 - exponent)) & 0x7FU;
  return (value < 0 ? 0x8000U : 0U) | ((127U + exponent) << 7) | fraction;
}

constexpr NibbleTable int4_table() {
  NibbleTable table{};
  for (int code = 0; code < 16; ++code) {
    const std::uint32_t bits = small_integer_bf16(code - 8);
    table.low[code] = static_cast<std::uint8_t>(bits & 0xFFU);
    table.high[code] = static_cast<std::uint8_t>(bits >> 8);
  }
  return table;
}

constexpr NibbleTable mxfp4_table(int scale) {
  NibbleTable table{};
  for (std::uint32_t code = 0; code < 16; ++code) {
    const std::uint32_t bits = mxfp4_as_bf16(code, scale);
    table.low[code] = static_cast<std::uint8_t>(bits & 0xFFU);
    table.high[code] = static_cast<std::uint8_t>(bits >> 8);
  }
  return table;
}

template <int... kScales>
constexpr Mxfp4Tables mxfp4_tables(std::integer_sequence<int, kScales...>) {
  return {{mxfp4_table(kScales)...}};
}

LaneOrder lane_order(const Matrix& w) {
  if (w.format == WeightFormat::kBf16) return LaneOrder::kEvenOdd;
  return w.format != WeightFormat::kInt8Group && has_integer_product(w) ? LaneOrder::kNibbles : LaneOrder::kNatural;
}

}  // namespace

constinit const NibbleTable kInt4Table = int4_table();
constinit const Mxfp4Tables kMxfp4Tables = mxfp4_tables(std::make_integer_sequence<int, 256>());

void pack(const Matrix& w, const float* x, std::int64_t n, float* out) {
  const LaneOrder order = lane_order(w);
  std::int64_t i = 0;
  const auto pack_16 = [order](const float* from, float* to) {
    if (order == LaneOrder::kNatural) {
      store(to, load(from));
      store(to + 8, load(from + 8));
      return;
    }
    if (order == LaneOrder::kEvenOdd) {
      const Vec a = load(from);
      const Vec b = load(from + 8);
      const auto in_order = [](Vec v) { return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(v), 0xD8)); };
      store(to, in_order(_mm256_shuffle_ps(a, b, 0x88)));
      store(to + 8, in_order(_mm256_shuffle_ps(a, b, 0xDD)));
      return;
    }
    __m128 a = _mm_loadu_ps(from);
    __m128 b = _mm_loadu_ps(from + 4);
    __m128 c = _mm_loadu_ps(from + 8);
    __m128 d = _mm_loadu_ps(from + 12);
    _MM_TRANSPOSE4_PS(a, b, c, d);
    _mm_storeu_ps(to, a);
    _mm_storeu_ps(to + 4, b);
    _mm_storeu_ps(to + 8, c);
    _mm_storeu_ps(to + 12, d);
  };
  for (; i + 16 <= n; i += 16) pack_16(x + i, out + i);
  const std::int64_t end = (n + kStep - 1) / kStep * kStep;
  for (; i < end; i += 16) {
    float part[16] = {};
    for (std::int64_t j = 0; j < 16 && i + j < n; ++j) part[j] = x[i + j];
    pack_16(part, out + i);
  }
}

void expand(const Matrix& w, std::int64_t row, std::int64_t begin, std::int64_t n, float* out) {
  const LaneOrder order = lane_order(w);
  std::int64_t done = 0;
  if (w.format == WeightFormat::kF32) {
    done = expand_steps<PairDecoder<F32Pairs>>(w, row, begin, n, out);
  } else if (w.format == WeightFormat::kBf16) {
    done = expand_steps<PairDecoder<Bf16Pairs>>(w, row, begin, n, out);
  } else if (w.format == WeightFormat::kMxfp4) {
    done = expand_steps<Mxfp4Decoder>(w, row, begin, n, out);
  } else if (order == LaneOrder::kNibbles) {
    done = expand_steps<Int4Decoder>(w, row, begin, n, out);
  } else {
    dequantize(w, row, begin, begin + n, out);
    for (std::int64_t i = n; i % kStep != 0; ++i) out[i] = 0;
    return;
  }
  if (done == n) return;
  float tail[kStep] = {};
  dequantize(w, row, begin + done, begin + n, tail);
  pack(w, tail, kStep, out + done);
}

}  // namespace perigee::avx2
