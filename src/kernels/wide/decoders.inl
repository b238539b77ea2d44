// Weights that are decoded where they lie. Included by expand.h of a path, which knows Element, Words and kStep.

namespace perigee::PERIGEE_PATH {

// Four consecutive rows of one matrix.
struct RowBases {
  const std::byte* low;
  const std::byte* high;  // row 3, so that addresses need two registers and a stride
  std::int64_t stride;
  RowBases(const std::byte* first, std::int64_t row_stride)
      : low(first), high(first + 3 * row_stride), stride(row_stride) {}
  const std::byte* row(int r) const { return r < 3 ? low + r * stride : high; }
};

// Decoders read consecutive rows: step(r, s) is step s of row `first + r`, r < 4. Pairs: a format whose vectors come in
// pairs, two of them a step; first() and second() read the pair at its place.
template <typename Pairs>
struct PairDecoder {
  static constexpr std::int64_t kStepBytes = 2 * Pairs::kBytes;
  RowBases data;
  PairDecoder(const Matrix& w, std::int64_t first) : data(w.data + first * w.row_bytes, w.row_bytes) {}
  inline void step(int r, std::int64_t s, Words* out) const {
    const std::byte* from = data.row(r) + s * 2 * Pairs::kBytes;
    for (int v = 0; v < 4; v += 2, from += Pairs::kBytes) {
      out[v] = Pairs::first(from);
      out[v + 1] = Pairs::second(from);
    }
  }
};

// The whole steps among columns [begin, begin + n) of one row; returns their columns.
template <typename Decoder>
static inline std::int64_t expand_steps(const Matrix& w, std::int64_t row, std::int64_t begin, std::int64_t n,
                                        Element* out) {
  const Decoder decoder(w, row);
  const std::int64_t steps = n / kStep;
  for (std::int64_t s = 0; s < steps; ++s) {
    Words ws[4];
    decoder.step(0, begin / kStep + s, ws);
    for (int v = 0; v < 4; ++v) store_words(out + s * kStep + v * (kStep / 4), ws[v]);
  }
  return steps * kStep;
}

}  // namespace perigee::PERIGEE_PATH
