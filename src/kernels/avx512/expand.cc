#include "kernels/avx512/expand.h"

#include "kernels/avx512/slots.h"

namespace perigee::avx512 {
namespace {

enum class LaneOrder : std::uint8_t {
  kNatural,
  kEvenOdd,  // of 32 columns: 0 2 .. 30, 1 3 .. 31
  kNibbles,  // of 64 columns, vector v: 2v + 8 i for i < 8, then 2v + 1 + 8 i
};

constexpr ScaleTable scale_table() {
  ScaleTable table{};
  // 2^(byte - 127): 0 is the subnormal 2^-127, 255 is NaN (spec 7.1).
  float power = 0x1p-127F;
  for (int byte = 0; byte < 255; ++byte) {
    table.of_byte[byte] = power;
    if (byte < 254) power *= 2;
  }
  table.of_byte[255] = __builtin_nanf("");
  return table;
}

void pack_step(LaneOrder order, const float* from, float* to) {
  if (order == LaneOrder::kNatural) {
    for (int v = 0; v < 4; ++v) store(to + v * kLanes, load(from + v * kLanes));
    return;
  }
  if (order == LaneOrder::kEvenOdd) {
    const Int even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const Int odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    for (int half = 0; half < 2; ++half) {
      const Vec a = load(from + 32 * half);
      const Vec b = load(from + 32 * half + kLanes);
      store(to + 32 * half, _mm512_permutex2var_ps(a, even, b));
      store(to + 32 * half + kLanes, _mm512_permutex2var_ps(a, odd, b));
    }
    return;
  }
  const Int columns = _mm512_setr_epi32(0, 8, 16, 24, 32, 40, 48, 56, 1, 9, 17, 25, 33, 41, 49, 57);
  for (int v = 0; v < 4; ++v) store(to + v * kLanes, _mm512_i32gather_ps(columns, from + 2 * v, 4));
}

LaneOrder lane_order(const Matrix& w) {
  if (w.format == WeightFormat::kBf16) return LaneOrder::kEvenOdd;
  return w.format != WeightFormat::kInt8Group && has_integer_product(w) ? LaneOrder::kNibbles : LaneOrder::kNatural;
}

}  // namespace

constinit const ScaleTable kE8m0Table = scale_table();

void pack(const Matrix& w, const float* x, std::int64_t n, float* out) {
  const LaneOrder order = lane_order(w);
  std::int64_t i = 0;
  for (; i + kStep <= n; i += kStep) pack_step(order, x + i, out + i);
  if (i == n) return;
  float part[kStep] = {};
  for (std::int64_t j = 0; i + j < n; ++j) part[j] = x[i + j];
  pack_step(order, part, out + i);
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

}  // namespace perigee::avx512
