// y = W x for integer weights and bf16 activations, in block integers: kernels/block_integers.h has the formula. All
// sums of integers are exact, so only the order of the blocks is kept; lanes are what each shape likes best.
//
// One or two tokens: lanes along K. A step is 8 kLanes columns of each row of a group. Bound by reading the weights.
// Four bits: codes are bytes, q is two signed bytes, 256 high + low. Codes are shifted by a bias to be unsigned, which
// the sum of q takes back:
//   words of a row: high <= 4 * 24 * 64, low <= 4 * 24 * 128, below 2^15.
// Eight bits: codes and q are words.
//
// More tokens: lanes are rows. 16 rows x 512 columns are expanded to words, two columns a lane, once in L1, and meet
// all tokens in tiles of 16 rows x kIntegerTileTokens. 16 multiply-adds an instruction against 8 of FMA, but each needs
// an addition of its own.
#include "kernels/wide/integer_codes.inl"
#include "kernels/wide/panel_rows.inl"

namespace perigee::PERIGEE_PATH {
namespace {

// ---- One or two tokens.

constexpr std::int64_t kStepBlocks = kQuarters;
constexpr std::int64_t kVectorBytes = 4 * kLanes;
template <typename Codes>
constexpr std::int64_t kStepBytes = kStepBlocks * Codes::kBlockBytes;

// Bytes in column order: those of even columns, then those of odd ones.
inline __m256i even_then_odd(__m256i bytes) {
  const __m256i order = _mm256_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15, 0, 2, 4, 6, 8, 10, 12,
                                         14, 1, 3, 5, 7, 9, 11, 13, 15);
  return _mm256_permute4x64_epi64(_mm256_shuffle_epi8(bytes, order), 0xD8);
}

// Words in column order: those of even columns, then those of odd ones.
inline __m256i even_then_odd_words(__m256i words) {
  const __m256i order = _mm256_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15, 0, 1, 4, 5, 8, 9, 12, 13,
                                         2, 3, 6, 7, 10, 11, 14, 15);
  return _mm256_permute4x64_epi64(_mm256_shuffle_epi8(words, order), 0xD8);
}

// Of one token. q: of each step, four vectors, in which a block fills 16 bytes. Four bits: high bytes of even and of
// odd columns, low bytes of both. Eight bits: words of even and of odd columns of the first half of a block, then of
// the second.
struct PackedTerms {
  std::byte* q;
  std::int32_t* offsets;  // of each block: - bias * sum of q
  float* scales;
};

template <typename Codes>
void pack_terms(const float* x, std::int64_t columns, std::int64_t blocks, const PackedTerms& to) {
  for (std::int64_t b = 0; b < blocks; ++b) {
    const std::int64_t left = columns - b * kIntegerBlock;
    const QuantizedBlock block = left > 0 ? quantize(x + b * kIntegerBlock, left) : QuantizedBlock{};
    __m256i even_odd[2];
    if constexpr (Codes::kBlockBytes == kIntegerBlock) {
      for (int i = 0; i < 2; ++i) even_odd[i] = even_then_odd_words(block.words[i]);
    } else {
      const auto in_order = [](__m256i v) { return _mm256_permute4x64_epi64(v, 0xD8); };
      __m256i rounded_up[2];
      for (int i = 0; i < 2; ++i) {
        rounded_up[i] = _mm256_srai_epi16(_mm256_add_epi16(block.words[i], _mm256_set1_epi16(128)), 8);
      }
      const __m256i mask = _mm256_set1_epi16(0xFF);
      even_odd[0] = even_then_odd(in_order(_mm256_packs_epi16(rounded_up[0], rounded_up[1])));
      even_odd[1] = even_then_odd(in_order(
          _mm256_packus_epi16(_mm256_and_si256(block.words[0], mask), _mm256_and_si256(block.words[1], mask))));
    }
    std::byte* step = to.q + b / kStepBlocks * 4 * kVectorBytes + b % kStepBlocks * 16;
    for (int i = 0; i < 2; ++i) {
      auto* even = reinterpret_cast<__m128i*>(step + 2 * i * kVectorBytes);
      auto* odd = reinterpret_cast<__m128i*>(step + (2 * i + 1) * kVectorBytes);
      _mm_storeu_si128(even, _mm256_castsi256_si128(even_odd[i]));
      _mm_storeu_si128(odd, _mm256_extracti128_si256(even_odd[i], 1));
    }
    to.offsets[b] = -Codes::kBias * block.sum;
    to.scales[b] = block.scale * Codes::kUnit;
  }
}

// One step of a row of a group for each token: a vector of partial sums, kQuarters blocks of four lanes.
template <typename Codes, int kTokens>
inline void multiply_row(const std::byte* row, const std::byte* const* q, Int* sums) {
  const auto term = [q](int t, int vector) { return load_bytes(q[t] + vector * kVectorBytes); };
  if constexpr (Codes::kBlockBytes == kIntegerBlock) {
    Int halves[2];
    halves_of_blocks(load_bytes(row), load_bytes(row + kVectorBytes), halves);
    const Int words[4] = {low_bytes(halves[0]), high_bytes(halves[0]), low_bytes(halves[1]), high_bytes(halves[1])};
#pragma GCC unroll 2
    for (int t = 0; t < kTokens; ++t) {
      const Int first = add_ints(multiply_words(words[0], term(t, 0)), multiply_words(words[1], term(t, 1)));
      const Int second = add_ints(multiply_words(words[2], term(t, 2)), multiply_words(words[3], term(t, 3)));
      sums[t] = add_ints(first, second);
    }
  } else {
    const Int nibbles = load_bytes_once(row);
    const Int even = Codes::codes(low_nibbles(nibbles));
    const Int odd = Codes::codes(high_nibbles(nibbles));
#pragma GCC unroll 2
    for (int t = 0; t < kTokens; ++t) {
      const Int high = add_words(multiply_bytes(even, term(t, 0)), multiply_bytes(odd, term(t, 1)));
      const Int low = add_words(multiply_bytes(even, term(t, 2)), multiply_bytes(odd, term(t, 3)));
      sums[t] = add_ints(multiply_words(high, all_words(256)), multiply_words(low, all_words(1)));
      finish(sums[t]);
    }
  }
}

// Adds one step of a group. weight_scales: [block >> shift][kLanes].
template <typename Codes, int kTokens>
inline void few_step(const std::byte* data, std::int64_t stride, std::int64_t step, const float* weight_scales,
                     int shift, const PackedTerms* x, Vec* acc) {
  const std::byte* q[kTokens];
  for (int t = 0; t < kTokens; ++t) q[t] = x[t].q + step * 4 * kVectorBytes;
  Int quarters[kTokens][kQuarters];
#pragma GCC unroll 4
  for (int quarter = 0; quarter < kQuarters; ++quarter) {
    const std::byte* rows = data + 4 * quarter * stride;
    Int sums[4][kTokens];
#pragma GCC unroll 4
    for (int r = 0; r < 4; ++r) multiply_row<Codes, kTokens>(rows + r * stride, q, sums[r]);
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

// Asks for what the streams of a group need some steps later, every line once.
template <typename Codes>
inline void fetch_ahead(const Group& group, std::int64_t step) {
  constexpr std::int64_t kAhead = 256;
  constexpr std::int64_t kLineSteps = kStepBytes<Codes> < 64 ? 64 / kStepBytes<Codes> : 1;
  constexpr std::int64_t kRows = kLanes / kLineSteps;
  const std::byte* from = group.data + step * kStepBytes<Codes> + kAhead + step % kLineSteps * kRows * group.stride;
#pragma GCC unroll 16
  for (std::int64_t r = 0; r < kRows; ++r) {
    for (std::int64_t line = 0; line < kStepBytes<Codes>; line += 64) fetch(from + r * group.stride + line);
  }
}

template <typename Codes, int kTokens>
void few_tokens(const Matrix& w, std::int64_t row_begin, std::int64_t row_end, const float* x, std::int64_t x_stride,
                float* y, std::int64_t y_stride, Rounding rounding) {
  constexpr std::int64_t kBytes = kStepBytes<Codes>;
  const std::int64_t row_bytes = code_bytes<Codes>(w);
  const std::int64_t steps = (row_bytes + kBytes - 1) / kBytes;
  const std::int64_t whole_steps = row_bytes / kBytes;
  const std::int64_t blocks = steps * kStepBlocks;
  const int shift = scale_shift(w);
  const std::int64_t scale_count = ((blocks_of(w) - 1) >> shift) + 1;

  // Floats of one token: q, and two numbers a block; 16 more, or the tokens would share sets of L1.
  const std::int64_t token_floats = steps * kVectorBytes + 2 * blocks + 16;
  float* memory = scratch(Scratch::kActivations, kTokens * token_floats);
  PackedTerms packed[kTokens];
  for (std::int64_t t = 0; t < kTokens; ++t) {
    float* at = memory + t * token_floats;
    float* numbers = at + steps * kVectorBytes;
    packed[t] = {reinterpret_cast<std::byte*>(at), reinterpret_cast<std::int32_t*>(numbers), numbers + blocks};
    pack_terms<Codes>(x + t * x_stride, w.cols, blocks, packed[t]);
  }
  // Blocks behind the last column have a scale too: 0.
  float* scales = scratch(Scratch::kWeights, (blocks + 1) * kLanes);
  for (std::int64_t i = scale_count * kLanes; i < (blocks + 1) * kLanes; ++i) scales[i] = 0;

  // Of the scales of a group, every line once.
  const std::int64_t scale_lines = (w.scale_row_bytes + 63) / 64 * kLanes;

  const auto multiply = [&](std::int64_t row, std::int64_t apart) {
    const Group group = group_at(w, row, apart);
    expand_scales<Codes>(group, 0, scale_count, scales);
    Vec acc[kTokens];
#pragma GCC unroll 2
    for (int t = 0; t < kTokens; ++t) acc[t] = zero();
    for (std::int64_t s = 0; s < whole_steps; ++s) {
      fetch_ahead<Codes>(group, s);
      for (std::int64_t line = s * scale_lines / whole_steps; line < (s + 1) * scale_lines / whole_steps; ++line) {
        fetch(group.scales + line % kLanes * group.scale_stride + w.scale_row_bytes + line / kLanes * 64);
      }
      few_step<Codes, kTokens>(group.data + s * kBytes, group.stride, s, scales, shift, packed, acc);
    }
    if (whole_steps < steps) {
      alignas(64) std::byte ends[kLanes * kBytes];
      copy_ends(group, kLanes, whole_steps * kBytes, row_bytes - whole_steps * kBytes, kBytes, ends);
      few_step<Codes, kTokens>(ends, kBytes, whole_steps, scales, shift, packed, acc);
    }
    for (std::int64_t t = 0; t < kTokens; ++t) {
      alignas(64) float values[kLanes];
      store(values, rounded(acc[t], rounding));
      for (std::int64_t r = 0; r < kLanes; ++r) y[t * y_stride + row + r * apart] = values[r];
    }
  };
  // Rows of a group are far apart: memory is then read in kLanes long streams and not in pieces of a row's length. By
  // an odd number of rows, or 16 streams would share sets of L1, which has 8 or 12 lines of each. What is left comes as
  // one group of neighbours, then one row at a time.
  const std::int64_t groups = (row_end - row_begin) / kLanes;
  const std::int64_t apart = groups > 1 && groups % 2 == 0 ? groups - 1 : groups;
  std::int64_t row = row_begin;
  for (; row < row_begin + apart; ++row) multiply(row, apart);
  row = row_begin + apart * kLanes;
  for (; row + kLanes <= row_end; row += kLanes) multiply(row, 1);
  for (; row < row_end; ++row) multiply(row, 0);
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
  alignas(16) std::int8_t bytes[16];
  for (int i = 0; i < 8; ++i) {
    bytes[2 * i] = static_cast<std::int8_t>(2 * Codes::kWords[i]);
    bytes[2 * i + 1] = static_cast<std::int8_t>(2 * Codes::kWords[i] + 1);
  }
  const __m256i order = _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(bytes)));
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
  constexpr std::int64_t kPart = 16;  // bytes of a row at a time
  std::int32_t* to = panel.words + g * kLanes;
  const auto put = [&to](Int words) {
    store_bytes(to, words);
    to += kPanelGroups * kLanes;
  };
  const std::int64_t end = (first_block + blocks) * Codes::kBlockBytes;
  for (std::int64_t at = first_block * Codes::kBlockBytes; at < end; at += kPart) {
    const std::int64_t left = row_bytes - at;
    Int dwords[4];
    if (rows < kLanes || left < kPart) {
      alignas(64) std::byte ends[kLanes * kPart];
      copy_ends(source, rows, at, left, kPart, ends);
      load_block(ends, kPart, dwords);
    } else {
      load_block(source.data + at, source.stride, dwords);
    }
    for (const Int dword : dwords) Codes::expand(dword, put);
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
    expand_group<Codes>(source, left, code_bytes<Codes>(w), first_block, blocks, g, panel);
    float scales[kPanelBlocks * kLanes];
    if (left >= kLanes) {
      expand_scales<Codes>(source, first_scale, end_scale, scales);
    } else {
      for (float& scale : scales) scale = 0;
      for (std::int64_t r = 0; r < left; ++r) {
        float one[kPanelBlocks * kLanes];
        const Group single = group_at(w, rows.first + (g * kLanes + r) * rows.apart, 0);
        expand_scales<Codes>(single, first_scale, end_scale, one);
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
inline void integer_tile(const Panel& panel, const PackedPart* x, std::int64_t blocks, PanelPrefetch& prefetch,
                         float* sums) {
  for (std::int64_t b = 0; b < blocks; ++b) {
    prefetch.advance();
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
                            PanelPrefetch& prefetch, float* sums) {
  if (count == kTokens) {
    integer_tile<kTokens>(panel, x, blocks, prefetch, sums);
  } else if constexpr (kTokens > 1) {
    integer_tile_of<kTokens - 1>(count, panel, x, blocks, prefetch, sums);
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
          constexpr std::int64_t kBytes = kPanelBlocks * Codes::kBlockBytes;
          const std::int64_t ahead = p + 1 < end ? kBytes : (first - p) * kBytes + rows.next * w.row_bytes;
          PanelPrefetch prefetch(w, rows, p * kBytes, ahead, kBytes,
                                 (count + kIntegerTileTokens - 1) / kIntegerTileTokens * blocks);
          const PackedPart* parts = packed + (p - first) * chunk_size;
          for (std::int64_t t = 0; t < count; t += kIntegerTileTokens) {
            const std::int64_t tile = count - t < kIntegerTileTokens ? count - t : kIntegerTileTokens;
            integer_tile_of<kIntegerTileTokens>(tile, panel, parts + t, blocks, prefetch, sums + t * kPanelRows);
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
  switch (w.format) {
    case WeightFormat::kMxfp4:
      return run(Mxfp4Codes());
    case WeightFormat::kInt4Group:
      return run(Int4Codes());
    default:
      return run(Int8Codes());
  }
}

}  // namespace perigee::PERIGEE_PATH
