// Paths that multiply floats: packed activations, and expanded rows of weights, are floats in vectors. Included by
// expand.h of a path, which knows Vec.

namespace perigee::PERIGEE_PATH {

using Element = float;
using Words = Vec;

static inline Words load_words(const Element* from) {
  return load(from);
}
static inline void store_words(Element* to, Words value) {
  store(to, value);
}
static inline Vec multiply_add(Words a, Words b, Vec sum) {
  return fma(a, b, sum);
}

struct F32Pairs {
  static constexpr std::int64_t kBytes = 8 * kLanes;
  static inline Vec first(const std::byte* pair) { return load(reinterpret_cast<const float*>(pair)); }
  static inline Vec second(const std::byte* pair) { return load(reinterpret_cast<const float*>(pair) + kLanes); }
};
using PackedPairs = F32Pairs;

}  // namespace perigee::PERIGEE_PATH
