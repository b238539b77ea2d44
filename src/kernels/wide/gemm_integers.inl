// y = W x for 4-bit weights and bf16 activations, in block integers: kernels/block_integers.h has the formula. All sums
// of integers are exact, so only the order of the blocks is kept; lanes are what each shape likes best.
//
// One or two tokens: lanes along K. A step is 8 kLanes columns of each row of a group; codes are bytes, q is two signed
// bytes, 256 high + low. Codes are shifted by a bias to be unsigned, which the sum of q takes back:
//   words of a row: high <= 4 * 24 * 64, low <= 4 * 24 * 128, below 2^15.
// Bound by reading the weights.
//
// More tokens: lanes are rows. 16 rows x 512 columns are expanded to words, two columns a lane, once in L1, and meet
// all tokens in tiles of 16 rows x kIntegerTileTokens. 16 multiply-adds an instruction against 8 of FMA, but each needs
// an addition of its own.
#include "kernels/block_integers.h"
#include "kernels/wide/panel_rows.inl"

namespace perigee::PERIGEE_PATH {
namespace {

constexpr std::int64_t kBlockBytes = kIntegerBlock / 2;
constexpr std::int64_t kStepBytes = 4 * kLanes;
constexpr std::int64_t kStepBlocks = kQuarters;

struct Mxfp4Codes {
  static constexpr int kBias = 12;
  static constexpr float kUnit = 0.5F;
  static Int codes(Int nibbles) {
    // Twice the E2M1 value (spec model.md 7.1), plus the bias.
    alignas(16) static constexpr std::uint8_t kTable[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};
    return look_up(kTable, nibbles);
  }
};
struct Int4Codes {
  static constexpr int kBias = 8;
  static constexpr float kUnit = 1.0F;
  static Int codes(Int nibbles) { return nibbles; }
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

// Bytes in column order: those of even columns, then those of odd ones.
inline __m256i even_then_odd(__m256i bytes) {
  const __m256i order = _mm256_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15, 0, 2, 4, 6, 8, 10, 12,
                                         14, 1, 3, 5, 7, 9, 11, 13, 15);
  return _mm256_permute4x64_epi64(_mm256_shuffle_epi8(bytes, order), 0xD8);
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

inline void expand_scales(Mxfp4Codes /*codes*/, const Group& group, std::int64_t begin, std::int64_t end, float* out) {
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

inline void expand_scales(Int4Codes /*codes*/, const Group& group, std::int64_t begin, std::int64_t end, float* out) {
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

std::int64_t blocks_of(const Matrix& w) {
  return (w.cols + kIntegerBlock - 1) / kIntegerBlock;
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

// ---- One or two tokens.

// Of one token. bytes: of each step, four vectors: high bytes of even and of odd columns, low bytes of both.
struct PackedBytes {
  std::byte* bytes;
  std::int32_t* offsets;  // of each block: - bias * sum of q
  float* scales;
};

template <typename Codes>
void pack_bytes(const float* x, std::int64_t columns, std::int64_t blocks, const PackedBytes& to) {
  for (std::int64_t b = 0; b < blocks; ++b) {
    const std::int64_t left = columns - b * kIntegerBlock;
    const QuantizedBlock block = left > 0 ? quantize(x + b * kIntegerBlock, left) : QuantizedBlock{};
    const auto in_order = [](__m256i v) { return _mm256_permute4x64_epi64(v, 0xD8); };
    __m256i rounded_up[2];
    for (int i = 0; i < 2; ++i) {
      rounded_up[i] = _mm256_srai_epi16(_mm256_add_epi16(block.words[i], _mm256_set1_epi16(128)), 8);
    }
    const __m256i high = even_then_odd(in_order(_mm256_packs_epi16(rounded_up[0], rounded_up[1])));
    const __m256i mask = _mm256_set1_epi16(0xFF);
    const __m256i low = even_then_odd(
        in_order(_mm256_packus_epi16(_mm256_and_si256(block.words[0], mask), _mm256_and_si256(block.words[1], mask))));
    std::byte* step = to.bytes + b / kStepBlocks * 4 * kStepBytes + b % kStepBlocks * kBlockBytes;
    const auto put = [step](int vector, __m128i value) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(step + vector * kStepBytes), value);
    };
    put(0, _mm256_castsi256_si128(high));
    put(1, _mm256_extracti128_si256(high, 1));
    put(2, _mm256_castsi256_si128(low));
    put(3, _mm256_extracti128_si256(low, 1));
    to.offsets[b] = -Codes::kBias * block.sum;
    to.scales[b] = block.scale * Codes::kUnit;
  }
}

// One step of a row of a group for each token: a vector of partial sums, kQuarters blocks of four lanes.
template <typename Codes, int kTokens>
inline void multiply_row(const std::byte* row, const std::byte* const* bytes, Int* sums) {
  const Int nibbles = load_bytes(row);
  const Int even = Codes::codes(low_nibbles(nibbles));
  const Int odd = Codes::codes(high_nibbles(nibbles));
#pragma GCC unroll 2
  for (int t = 0; t < kTokens; ++t) {
    const auto term = [&](int vector) { return load_bytes(bytes[t] + vector * kStepBytes); };
    const Int high = add_words(multiply_bytes(even, term(0)), multiply_bytes(odd, term(1)));
    const Int low = add_words(multiply_bytes(even, term(2)), multiply_bytes(odd, term(3)));
    sums[t] = add_ints(multiply_words(high, all_words(256)), multiply_words(low, all_words(1)));
  }
}

// Adds one step of a group. weight_scales: [block >> shift][kLanes].
template <typename Codes, int kTokens>
inline void few_step(const std::byte* data, std::int64_t stride, std::int64_t step, const float* weight_scales,
                     int shift, const PackedBytes* x, Vec* acc) {
  const std::byte* bytes[kTokens];
  for (int t = 0; t < kTokens; ++t) bytes[t] = x[t].bytes + step * 4 * kStepBytes;
  Int quarters[kTokens][kQuarters];
#pragma GCC unroll 4
  for (int quarter = 0; quarter < kQuarters; ++quarter) {
    const std::byte* rows = data + 4 * quarter * stride;
    Int sums[4][kTokens];
#pragma GCC unroll 4
    for (int r = 0; r < 4; ++r) multiply_row<Codes, kTokens>(rows + r * stride, bytes, sums[r]);
#pragma GCC unroll 2
    for (int t = 0; t < kTokens; ++t) {
      quarters[t][quarter] = sum_lanes_of(sums[0][t], sums[1][t], sums[2][t], sums[3][t]);
    }
  }
#pragma GCC unroll 2
  for (int t = 0; t < kTokens; ++t) {
    blocks_of_group(quarters[t]);
#pragma GCC unroll 4
    for (int i = 0; i < kQuarters; ++i) {
      const std::int64_t b = step * kStepBlocks + i;
      const Int sum = add_ints(quarters[t][i], broadcast_int(x[t].offsets + b));
      const Vec scale = times(load(weight_scales + (b >> shift) * kLanes), broadcast(x[t].scales + b));
      acc[t] = fma(to_floats(sum), scale, acc[t]);
    }
  }
}

// Asks for what the streams of a group need some steps later.
inline void fetch_ahead(const Group& group, std::int64_t step) {
  constexpr std::int64_t kAhead = 256;
  // One line a row serves 64 / kStepBytes steps.
  constexpr std::int64_t kSteps = 64 / kStepBytes;
  constexpr std::int64_t kRows = kLanes / kSteps;
  const std::byte* from = group.data + step * kStepBytes + kAhead + step % kSteps * kRows * group.stride;
#pragma GCC unroll 16
  for (std::int64_t r = 0; r < kRows; ++r) fetch(from + r * group.stride);
}

template <typename Codes, int kTokens>
void few_tokens(const Matrix& w, std::int64_t row_begin, std::int64_t row_end, const float* x, std::int64_t x_stride,
                float* y, std::int64_t y_stride, Rounding rounding) {
  const std::int64_t row_bytes = (w.cols + 1) / 2;
  const std::int64_t steps = (row_bytes + kStepBytes - 1) / kStepBytes;
  const std::int64_t whole_steps = row_bytes / kStepBytes;
  const std::int64_t blocks = steps * kStepBlocks;
  const int shift = scale_shift(w);
  const std::int64_t scale_count = ((blocks_of(w) - 1) >> shift) + 1;

  // Floats of one token: the bytes, and two numbers a block; 16 more, or the tokens would share sets of L1.
  const std::int64_t token_floats = steps * kStepBytes + 2 * blocks + 16;
  float* memory = scratch(Scratch::kActivations, kTokens * token_floats);
  PackedBytes packed[kTokens];
  for (std::int64_t t = 0; t < kTokens; ++t) {
    float* at = memory + t * token_floats;
    float* numbers = at + steps * kStepBytes;
    packed[t] = {reinterpret_cast<std::byte*>(at), reinterpret_cast<std::int32_t*>(numbers), numbers + blocks};
    pack_bytes<Codes>(x + t * x_stride, w.cols, blocks, packed[t]);
  }
  // Blocks behind the last column have a scale too: 0.
  float* scales = scratch(Scratch::kWeights, (blocks + 1) * kLanes);
  for (std::int64_t i = scale_count * kLanes; i < (blocks + 1) * kLanes; ++i) scales[i] = 0;

  const auto multiply = [&](std::int64_t row, std::int64_t apart) {
    const Group group = group_at(w, row, apart);
    expand_scales(Codes(), group, 0, scale_count, scales);
    for (std::int64_t r = 0; r < kLanes; ++r) fetch(group.scales + r * group.scale_stride + 2 * w.scale_row_bytes);
    Vec acc[kTokens];
#pragma GCC unroll 2
    for (int t = 0; t < kTokens; ++t) acc[t] = zero();
    for (std::int64_t s = 0; s < whole_steps; ++s) {
      fetch_ahead(group, s);
      few_step<Codes, kTokens>(group.data + s * kStepBytes, group.stride, s, scales, shift, packed, acc);
    }
    if (whole_steps < steps) {
      alignas(64) std::byte ends[kLanes * kStepBytes];
      copy_ends(group, kLanes, whole_steps * kStepBytes, row_bytes - whole_steps * kStepBytes, kStepBytes, ends);
      few_step<Codes, kTokens>(ends, kStepBytes, whole_steps, scales, shift, packed, acc);
    }
    for (std::int64_t t = 0; t < kTokens; ++t) {
      alignas(64) float values[kLanes];
      store(values, rounded(acc[t], rounding));
      for (std::int64_t r = 0; r < kLanes; ++r) y[t * y_stride + row + r * apart] = values[r];
    }
  };
  // Rows of a group are far apart: memory is then read in kLanes long streams and not in pieces of a row's length. What
  // is left comes one row at a time.
  const std::int64_t groups = (row_end - row_begin) / kLanes;
  for (std::int64_t row = row_begin; row < row_begin + groups; ++row) multiply(row, groups);
  for (std::int64_t row = row_begin + groups * kLanes; row < row_end; ++row) multiply(row, 0);
}

// ---- More tokens.

constexpr std::int64_t kPanelGroups = kPanelRows / kLanes;
constexpr std::int64_t kPanelBlocks = 16;
constexpr std::int64_t kPanelColumns = kPanelBlocks * kIntegerBlock;
constexpr std::int64_t kPairs = kIntegerBlock / 2;
constexpr std::int64_t kPackedParts = 256;  // packed tokens times panels of one chunk: 304 KiB of L2

// One token's columns of a panel. pairs: two words each, in the order of the panel.
struct PackedPart {
  std::int32_t pairs[kPanelBlocks * kPairs];
  std::int32_t offsets[kPanelBlocks];
  float scales[kPanelBlocks];
  std::int32_t unused[16];  // a power of two apart, tokens would share sets of L1
};
static_assert(sizeof(PackedPart) == 1216);

template <typename Codes>
void pack_pairs(const float* x, std::int64_t columns, PackedPart* to) {
  // Of 8 columns the words 0 4 2 6 1 5 3 7: what masking bytes leaves of a dword of even or of odd codes.
  const __m256i order = _mm256_setr_epi8(0, 1, 8, 9, 4, 5, 12, 13, 2, 3, 10, 11, 6, 7, 14, 15, 0, 1, 8, 9, 4, 5, 12, 13,
                                         2, 3, 10, 11, 6, 7, 14, 15);
  const std::int64_t blocks = (columns + kIntegerBlock - 1) / kIntegerBlock;
  for (std::int64_t b = 0; b < blocks; ++b) {
    const QuantizedBlock block = quantize(x + b * kIntegerBlock, columns - b * kIntegerBlock);
    for (int i = 0; i < 2; ++i) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to->pairs + b * kPairs + 8 * i),
                          _mm256_shuffle_epi8(block.words[i], order));
    }
    to->offsets[b] = -Codes::kBias * block.sum;
    to->scales[b] = block.scale * Codes::kUnit;
  }
}

struct Panel {
  std::int32_t* words;  // [block][pair][group][kLanes]
  float* scales;        // [block][group][kLanes]
};

template <typename Codes>
void expand_group(const Group& source, std::int64_t rows, std::int64_t row_bytes, std::int64_t first_block,
                  std::int64_t blocks, std::int64_t g, const Panel& panel) {
  for (std::int64_t b = 0; b < blocks; ++b) {
    const std::int64_t at = (first_block + b) * kBlockBytes;
    const std::int64_t left = row_bytes - at;
    Int dwords[4];
    if (rows < kLanes || left < kBlockBytes) {
      alignas(64) std::byte ends[kLanes * kBlockBytes];
      copy_ends(source, rows, at, left, kBlockBytes, ends);
      load_block(ends, kBlockBytes, dwords);
    } else {
      load_block(source.data + at, source.stride, dwords);
    }
    std::int32_t* to = panel.words + (b * kPairs * kPanelGroups + g) * kLanes;
    const auto put = [&to](Int words) {
      store_bytes(to, words);
      to += kPanelGroups * kLanes;
    };
    for (const Int dword : dwords) {
      for (const Int nibbles : {low_nibbles(dword), high_nibbles(dword)}) {
        const Int codes = Codes::codes(nibbles);
        put(low_bytes(codes));
        put(high_bytes(codes));
      }
    }
  }
}

// Blocks [first_block, + blocks) of the panel's rows. Rows that a panel lacks have scales of 0.
template <typename Codes>
void expand_panel(const Matrix& w, const PanelRows& rows, std::int64_t first_block, std::int64_t blocks,
                  const Panel& panel) {
  const int shift = scale_shift(w);
  const std::int64_t first_scale = first_block >> shift;
  const std::int64_t end_scale = ((first_block + blocks - 1) >> shift) + 1;
  for (std::int64_t g = 0; g < kPanelGroups; ++g) {
    const std::int64_t left = rows.count - g * kLanes;
    if (left <= 0) {
      for (std::int64_t b = 0; b < blocks; ++b) store(panel.scales + (b * kPanelGroups + g) * kLanes, zero());
      continue;
    }
    const Group source = group_at(w, rows.first + g * kLanes * rows.apart, rows.apart);
    expand_group<Codes>(source, left, (w.cols + 1) / 2, first_block, blocks, g, panel);
    float scales[kPanelBlocks * kLanes];
    if (left >= kLanes) {
      expand_scales(Codes(), source, first_scale, end_scale, scales);
    } else {
      for (float& scale : scales) scale = 0;
      for (std::int64_t r = 0; r < left; ++r) {
        float one[kPanelBlocks * kLanes];
        const Group single = group_at(w, rows.first + (g * kLanes + r) * rows.apart, 0);
        expand_scales(Codes(), single, first_scale, end_scale, one);
        for (std::int64_t i = 0; i < end_scale - first_scale; ++i) scales[i * kLanes + r] = one[i * kLanes];
      }
    }
    for (std::int64_t b = 0; b < blocks; ++b) {
      store(panel.scales + (b * kPanelGroups + g) * kLanes,
            load(scales + (((first_block + b) >> shift) - first_scale) * kLanes));
    }
  }
}

// sums: [token][kPanelRows].
template <int kTokens>
inline void integer_tile(const Panel& panel, const PackedPart* x, std::int64_t blocks, float* sums) {
  for (std::int64_t b = 0; b < blocks; ++b) {
    Int acc[kTokens][kPanelGroups];
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 2
      for (int g = 0; g < kPanelGroups; ++g) acc[t][g] = broadcast_int(x[t].offsets + b);
    }
    const std::int32_t* words = panel.words + b * kPairs * kPanelRows;
    const std::int32_t* pairs = x->pairs + b * kPairs;
    for (std::int64_t p = 0; p < kPairs; ++p) {
      Int ws[kPanelGroups];
#pragma GCC unroll 2
      for (int g = 0; g < kPanelGroups; ++g) ws[g] = load_bytes_once(words + p * kPanelRows + g * kLanes);
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t) {
        const Int pair = broadcast_int_once(pairs + p + t * static_cast<std::int64_t>(sizeof(PackedPart) / 4));
#pragma GCC unroll 2
        for (int g = 0; g < kPanelGroups; ++g) acc[t][g] = accumulate(acc[t][g], multiply_words(ws[g], pair));
      }
    }
    float* to = sums;
    asm volatile("" : "+r"(to));  // the sums stay in memory: registers are for the integers
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      const Vec scale = broadcast(x[t].scales + b);
#pragma GCC unroll 2
      for (int g = 0; g < kPanelGroups; ++g) {
        float* at = to + t * kPanelRows + g * kLanes;
        const Vec factor = times(load(panel.scales + (b * kPanelGroups + g) * kLanes), scale);
        store(at, fma(to_floats(acc[t][g]), factor, load(at)));
      }
    }
  }
}
template <int kTokens>
inline void integer_tile_of(std::int64_t count, const Panel& panel, const PackedPart* x, std::int64_t blocks,
                            float* sums) {
  if (count == kTokens) {
    integer_tile<kTokens>(panel, x, blocks, sums);
  } else if constexpr (kTokens > 1) {
    integer_tile_of<kTokens - 1>(count, panel, x, blocks, sums);
  }
}

// Activations are packed for as many panels as fit L2; the rows run through those before the next ones begin.
template <typename Codes>
void many_tokens(const Matrix& w, std::int64_t row_begin, std::int64_t row_end, const float* x, std::int64_t x_stride,
                 std::int64_t tokens, float* y, std::int64_t y_stride, Rounding rounding) {
  constexpr std::int64_t kPartFloats = sizeof(PackedPart) / sizeof(float);
  const std::int64_t chunk_size = tokens < kPackedParts ? tokens : kPackedParts;
  const std::int64_t panels_of_w = (w.cols + kPanelColumns - 1) / kPanelColumns;
  std::int64_t panels = kPackedParts / chunk_size;
  if (panels > panels_of_w) panels = panels_of_w;
  auto* packed = reinterpret_cast<PackedPart*>(scratch(Scratch::kActivations, panels * chunk_size * kPartFloats));
  float* weights = scratch(Scratch::kWeights, kPanelBlocks * (kPairs + 1) * kPanelRows);
  const Panel panel{reinterpret_cast<std::int32_t*>(weights), weights + kPanelBlocks * kPairs * kPanelRows};
  float* sums = scratch(Scratch::kScores, kPackedParts * kPanelRows);

  for (std::int64_t chunk = 0; chunk < tokens; chunk += chunk_size) {
    const std::int64_t count = tokens - chunk < chunk_size ? tokens - chunk : chunk_size;
    for (std::int64_t first = 0; first < panels_of_w; first += panels) {
      const std::int64_t end = first + panels < panels_of_w ? first + panels : panels_of_w;
      for (std::int64_t p = first; p < end; ++p) {
        const std::int64_t k = p * kPanelColumns;
        const std::int64_t columns = w.cols - k < kPanelColumns ? w.cols - k : kPanelColumns;
        for (std::int64_t t = 0; t < count; ++t) {
          pack_pairs<Codes>(x + (chunk + t) * x_stride + k, columns, packed + (p - first) * chunk_size + t);
        }
      }
      for_panels(row_begin, row_end, tokens <= kIntegerTileTokens, [&](const PanelRows& rows) {
        for (std::int64_t t = 0; t < count; ++t) {
          const float* from = y + (chunk + t) * y_stride + rows.first;
          for (std::int64_t r = 0; r < kPanelRows; ++r) {
            sums[t * kPanelRows + r] = first > 0 && r < rows.count ? from[r * rows.apart] : 0;
          }
        }
        for (std::int64_t p = first; p < end; ++p) {
          const std::int64_t left = blocks_of(w) - p * kPanelBlocks;
          const std::int64_t blocks = left < kPanelBlocks ? left : kPanelBlocks;
          expand_panel<Codes>(w, rows, p * kPanelBlocks, blocks, panel);
          constexpr std::int64_t kBytes = kPanelColumns / 2;
          const std::int64_t ahead = p + 1 < end ? kBytes : (first - p) * kBytes + rows.next * w.row_bytes;
          PanelPrefetch prefetch(w, rows, p * kBytes, ahead, kBytes,
                                 (count + kIntegerTileTokens - 1) / kIntegerTileTokens);
          const PackedPart* parts = packed + (p - first) * chunk_size;
          for (std::int64_t t = 0; t < count; t += kIntegerTileTokens) {
            prefetch.advance();
            const std::int64_t tile = count - t < kIntegerTileTokens ? count - t : kIntegerTileTokens;
            integer_tile_of<kIntegerTileTokens>(tile, panel, parts + t, blocks, sums + t * kPanelRows);
          }
        }
        const Rounding last = end == panels_of_w ? rounding : Rounding::kNone;
        for (std::int64_t t = 0; t < count; ++t) {
          float* from = sums + t * kPanelRows;
          float* to = y + (chunk + t) * y_stride + rows.first;
          const bool whole = rows.apart == 1 && rows.count == kPanelRows;
          for_lanes(kPanelRows, [=](std::int64_t r, std::int64_t n) {
            store_n((whole ? to : from) + r, n, rounded(load_n(from + r, n), last));
          });
          for (std::int64_t r = 0; !whole && r < rows.count; ++r) to[r * rows.apart] = from[r];
        }
      });
    }
  }
}

}  // namespace

void gemm_bf16(const Matrix& w, std::int64_t row_begin, std::int64_t row_end, const float* x, std::int64_t x_stride,
               std::int64_t tokens, float* y, std::int64_t y_stride, Rounding rounding) {
  if (!has_integer_product(w)) {
    gemm(w, row_begin, row_end, x, x_stride, tokens, y, y_stride, rounding);
    return;
  }
  const auto run = [&]<typename Codes>(Codes) {
    if (tokens == 1) return few_tokens<Codes, 1>(w, row_begin, row_end, x, x_stride, y, y_stride, rounding);
    if (tokens == 2) return few_tokens<Codes, 2>(w, row_begin, row_end, x, x_stride, y, y_stride, rounding);
    many_tokens<Codes>(w, row_begin, row_end, x, x_stride, tokens, y, y_stride, rounding);
  };
  if (w.format == WeightFormat::kMxfp4) {
    run(Mxfp4Codes());
  } else {
    run(Int4Codes());
  }
}

}  // namespace perigee::PERIGEE_PATH
