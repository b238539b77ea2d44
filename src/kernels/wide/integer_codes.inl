// What products in block integers (kernels/block_integers.h) are made of: codes of a row, activations in 15 bits,
// scales.
#include "kernels/block_integers.h"
#include "kernels/kernels.h"

namespace perigee::PERIGEE_PATH {
namespace {

// kBias makes codes unsigned; the sum of q takes it back. expand: the words of the codes in the dwords of sixteen bytes
// of each row of a group, two columns a lane; kWords is their order in each 8 columns.
template <typename Format>
struct Nibbles {
  static constexpr std::int64_t kBlockBytes = kIntegerBlock / 2;
  static constexpr std::int8_t kWords[8] = {0, 4, 2, 6, 1, 5, 3, 7};
  template <typename Put>
  static void expand(Int dword, Put put) {
    for (const Int nibbles : {low_nibbles(dword), high_nibbles(dword)}) {
      const Int codes = Format::codes(nibbles);
      put(low_bytes(codes));
      put(high_bytes(codes));
    }
  }
};
struct Mxfp4Codes : Nibbles<Mxfp4Codes> {
  static constexpr ScaleFormat kScales = ScaleFormat::kE8m0;
  static constexpr int kBias = 12;
  static constexpr float kUnit = 0.5F;
  static Int codes(Int nibbles) {
    // Twice the E2M1 value (spec model.md 7.1), plus the bias.
    alignas(16) static constexpr std::uint8_t kTable[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};
    return look_up(kTable, nibbles);
  }
};
struct Int4Codes : Nibbles<Int4Codes> {
  static constexpr ScaleFormat kScales = ScaleFormat::kBf16;
  static constexpr int kBias = 8;
  static constexpr float kUnit = 1.0F;
  static Int codes(Int nibbles) { return nibbles; }
};
struct Int8Codes {
  static constexpr ScaleFormat kScales = ScaleFormat::kBf16;
  static constexpr int kBias = 128;
  static constexpr float kUnit = 1.0F;
  static constexpr std::int64_t kBlockBytes = kIntegerBlock;
  static constexpr std::int8_t kWords[8] = {0, 2, 1, 3, 4, 6, 5, 7};
  template <typename Put>
  static void expand(Int dword, Put put) {
    put(low_bytes(dword));
    put(high_bytes(dword));
  }
};

// Rows that share vectors: row r at data + r * stride.
struct Group {
  const std::byte* data;
  std::int64_t stride;
  const std::byte* scales;
  std::int64_t scale_stride;
};
// Rows row, row + apart, ...; one row, repeated, where apart is 0.
inline Group group_at(const Matrix& w, std::int64_t row, std::int64_t apart) {
  return {w.data + row * w.row_bytes, apart * w.row_bytes, w.scales + row * w.scale_row_bytes,
          apart * w.scale_row_bytes};
}

// 32 columns of one token. words: q in the order of the columns.
struct QuantizedBlock {
  __m256i words[2];
  std::int32_t sum;
  float scale;  // 2^(E - 13)
};

inline QuantizedBlock quantize(const float* x, std::int64_t columns) {
  alignas(32) float padded[kIntegerBlock];
  if (columns < kIntegerBlock) {
    for (std::int64_t i = 0; i < kIntegerBlock; ++i) padded[i] = i < columns ? x[i] : 0;
    x = padded;
  }
  __m256 v[4];
  __m256i largest = _mm256_setzero_si256();
  for (int i = 0; i < 4; ++i) {
    v[i] = _mm256_loadu_ps(x + 8 * i);
    const __m256i magnitude = _mm256_and_si256(_mm256_castps_si256(v[i]), _mm256_set1_epi32(0x7FFFFFFF));
    largest = _mm256_max_epi32(largest, magnitude);
  }
  __m128i m = _mm_max_epi32(_mm256_castsi256_si128(largest), _mm256_extracti128_si256(largest, 1));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4E));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xB1));
  int exponent = _mm_cvtsi128_si32(m) >> 23;  // biased by 127
  QuantizedBlock out{};
  if (exponent == 255) {
    out.scale = __builtin_nanf("");
    return out;
  }
  if (exponent < 15) exponent = 15;
  const auto power_of_two = [](int biased) { return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(biased << 23))); };
  out.scale = power_of_two(exponent - kIntegerBits);
  const __m256 factor = _mm256_set1_ps(power_of_two(254 + kIntegerBits - exponent));
  __m256i q[4];
  for (int i = 0; i < 4; ++i) q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], factor));
  out.words[0] = _mm256_permute4x64_epi64(_mm256_packs_epi32(q[0], q[1]), 0xD8);
  out.words[1] = _mm256_permute4x64_epi64(_mm256_packs_epi32(q[2], q[3]), 0xD8);
  const __m256i pairs = _mm256_add_epi32(_mm256_add_epi32(q[0], q[1]), _mm256_add_epi32(q[2], q[3]));
  __m128i s = _mm_add_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4E));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xB1));
  out.sum = _mm_cvtsi128_si32(s);
  return out;
}

// Scales of the rows of a group as floats, entries [begin, end) of each: out [end - begin][kLanes].
inline __m256 floats_of_e8m0(__m128i bytes) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu8_epi32(bytes), 23));
}
inline float e8m0(std::byte byte) {
  const int e = static_cast<int>(byte);
  // 2^-127 is subnormal, 255 a NaN: one bit of the fraction makes both.
  const int bits = (e << 23) | (e == 0 || e == 255 ? 0x400000 : 0);
  return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(bits)));
}
inline float bf16_at(const std::byte* from) {
  std::uint16_t word;
  __builtin_memcpy(&word, from, 2);
  return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(static_cast<int>(word) << 16)));
}

inline void expand_e8m0_scales(const Group& group, std::int64_t begin, std::int64_t end, float* out) {
  __m128i lowest = _mm_set1_epi8(-1);  // of byte + 1: 0 and 1 are the bytes 255 and 0
  std::int64_t b = begin;
  for (; b + 8 <= end; b += 8) {
    for (int half = 0; half < kLanes; half += 8) {
      __m128i r[8];
      for (int i = 0; i < 8; ++i) {
        r[i] = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(group.scales + (half + i) * group.scale_stride + b));
      }
      __m128i pairs[4];
      for (int i = 0; i < 4; ++i) pairs[i] = _mm_unpacklo_epi8(r[2 * i], r[2 * i + 1]);
      const __m128i low0 = _mm_unpacklo_epi16(pairs[0], pairs[1]);
      const __m128i high0 = _mm_unpackhi_epi16(pairs[0], pairs[1]);
      const __m128i low1 = _mm_unpacklo_epi16(pairs[2], pairs[3]);
      const __m128i high1 = _mm_unpackhi_epi16(pairs[2], pairs[3]);
      const __m128i two_blocks[4] = {_mm_unpacklo_epi32(low0, low1), _mm_unpackhi_epi32(low0, low1),
                                     _mm_unpacklo_epi32(high0, high1), _mm_unpackhi_epi32(high0, high1)};
      for (int i = 0; i < 4; ++i) {
        lowest = _mm_min_epu8(lowest, _mm_add_epi8(two_blocks[i], _mm_set1_epi8(1)));
        float* to = out + (b - begin + 2 * i) * kLanes + half;
        _mm256_storeu_ps(to, floats_of_e8m0(two_blocks[i]));
        _mm256_storeu_ps(to + kLanes, floats_of_e8m0(_mm_srli_si128(two_blocks[i], 8)));
      }
    }
  }
  if (_mm_movemask_epi8(_mm_cmpeq_epi8(_mm_min_epu8(lowest, _mm_set1_epi8(1)), lowest)) != 0) b = begin;
  for (; b < end; ++b) {
    for (int r = 0; r < kLanes; ++r) out[(b - begin) * kLanes + r] = e8m0(group.scales[r * group.scale_stride + b]);
  }
}

inline void expand_bf16_scales(const Group& group, std::int64_t begin, std::int64_t end, float* out) {
  std::int64_t b = begin;
  for (; b + 8 <= end; b += 8) {
    for (int half = 0; half < kLanes; half += 8) {
      __m128i r[8];
      for (int i = 0; i < 8; ++i) {
        r[i] =
            _mm_loadu_si128(reinterpret_cast<const __m128i*>(group.scales + (half + i) * group.scale_stride + 2 * b));
      }
      __m128i low[4];
      __m128i high[4];
      for (int i = 0; i < 4; ++i) {
        low[i] = _mm_unpacklo_epi16(r[2 * i], r[2 * i + 1]);
        high[i] = _mm_unpackhi_epi16(r[2 * i], r[2 * i + 1]);
      }
      const auto four_blocks = [&](const __m128i* pairs, float* to) {
        const __m128i low0 = _mm_unpacklo_epi32(pairs[0], pairs[1]);
        const __m128i high0 = _mm_unpackhi_epi32(pairs[0], pairs[1]);
        const __m128i low1 = _mm_unpacklo_epi32(pairs[2], pairs[3]);
        const __m128i high1 = _mm_unpackhi_epi32(pairs[2], pairs[3]);
        const __m128i blocks[4] = {_mm_unpacklo_epi64(low0, low1), _mm_unpackhi_epi64(low0, low1),
                                   _mm_unpacklo_epi64(high0, high1), _mm_unpackhi_epi64(high0, high1)};
        for (int i = 0; i < 4; ++i) {
          _mm256_storeu_ps(to + i * kLanes,
                           _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(blocks[i]), 16)));
        }
      };
      four_blocks(low, out + (b - begin) * kLanes + half);
      four_blocks(high, out + (b - begin + 4) * kLanes + half);
    }
  }
  for (; b < end; ++b) {
    for (int r = 0; r < kLanes; ++r) {
      out[(b - begin) * kLanes + r] = bf16_at(group.scales + r * group.scale_stride + 2 * b);
    }
  }
}

template <typename Codes>
inline void expand_scales(const Group& group, std::int64_t begin, std::int64_t end, float* out) {
  if constexpr (Codes::kScales == ScaleFormat::kE8m0) {
    expand_e8m0_scales(group, begin, end, out);
  } else {
    expand_bf16_scales(group, begin, end, out);
  }
}

std::int64_t blocks_of(const Matrix& w) {
  return (w.cols + kIntegerBlock - 1) / kIntegerBlock;
}

// Bytes of the codes of a row.
template <typename Codes>
std::int64_t code_bytes(const Matrix& w) {
  return (w.cols * Codes::kBlockBytes + kIntegerBlock - 1) / kIntegerBlock;
}

// The end of rows shorter than `bytes`, zeros behind it: row r at out + r * bytes.
void copy_ends(const Group& group, std::int64_t rows, std::int64_t at, std::int64_t left, std::int64_t bytes,
               std::byte* out) {
  for (std::int64_t r = 0; r < kLanes; ++r) {
    for (std::int64_t i = 0; i < bytes; ++i) {
      out[r * bytes + i] = r < rows && i < left ? group.data[r * group.stride + at + i] : std::byte{0};
    }
  }
}

}  // namespace
}  // namespace perigee::PERIGEE_PATH
