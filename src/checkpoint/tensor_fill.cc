#include "checkpoint/tensor_fill.h"

#include <cstring>

#include "base/numeric.h"

namespace perigee {
namespace {

constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15;

constexpr std::uint64_t mix(std::uint64_t x) {
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9;
  x ^= x >> 27;
  x *= 0x94D049BB133111EB;
  x ^= x >> 31;
  return x;
}
static_assert(mix(1) == 0x5692161d100b05e5);

std::uint64_t fnv1a(std::string_view name) {
  std::uint64_t hash = 0xCBF29CE484222325;
  for (const char c : name) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001B3;
  }
  return hash;
}

// One loop an element type and rule: `value` maps 64 random bits and the index to the stored element.
template <typename T, typename Value>
void fill(std::uint64_t key, std::int64_t begin, std::span<std::byte> out, Value value) {
  T* to = reinterpret_cast<T*>(out.data());
  const std::size_t count = out.size() / sizeof(T);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t index = static_cast<std::uint64_t>(begin) + i;
    to[i] = value(mix(key + (index + 1) * kGolden), index);
  }
}

template <typename Value>
void fill_real(Dtype dtype, std::uint64_t key, std::int64_t begin, std::span<std::byte> out, Value value) {
  if (dtype == Dtype::kF32) {
    fill<float>(key, begin, out, value);
  } else {
    fill<bf16>(key, begin, out, [value](std::uint64_t r, std::uint64_t i) { return to_bf16(value(r, i)); });
  }
}

}  // namespace

std::uint64_t synth_key(std::uint64_t seed, std::string_view name) {
  return mix(fnv1a(name) ^ mix(seed + kGolden));
}

void fill_elements(const GeneratedTensor& tensor, std::uint64_t seed, std::int64_t begin, std::span<std::byte> out) {
  const std::uint64_t key = synth_key(seed, tensor.name);
  const FillRule& rule = tensor.rule;
  switch (rule.distribution) {
    case Distribution::kNormal: {
      const double step = rule.a / 37837.0;
      fill_real(tensor.dtype, key, begin, out, [step](std::uint64_t r, std::uint64_t /*index*/) {
        const auto sum = static_cast<std::int32_t>((r & 0xFFFF) + (r >> 16 & 0xFFFF) + (r >> 32 & 0xFFFF) + (r >> 48));
        return static_cast<float>(static_cast<double>(sum - 131070) * step);
      });
      break;
    }
    case Distribution::kUniform:
    case Distribution::kPaddedUniform: {
      const double centre = static_cast<float>(rule.a);
      const double width = static_cast<float>(rule.b);
      const std::uint64_t meaningful = rule.distribution == Distribution::kPaddedUniform
                                           ? static_cast<std::uint64_t>(rule.meaningful)
                                           : ~std::uint64_t{0};
      fill_real(tensor.dtype, key, begin, out, [=](std::uint64_t r, std::uint64_t index) {
        if (index >= meaningful) return 0.0F;
        const double t = static_cast<double>(static_cast<std::int64_t>(r >> 40) - (1 << 23)) * 0x1p-23;
        return static_cast<float>(centre + width * t);
      });
      break;
    }
    case Distribution::kRandomBits:
      if (tensor.dtype == Dtype::kI32) {
        fill<std::uint32_t>(key, begin, out,
                            [](std::uint64_t r, std::uint64_t /*index*/) { return static_cast<std::uint32_t>(r); });
      } else {
        fill<std::uint8_t>(key, begin, out,
                           [](std::uint64_t r, std::uint64_t /*index*/) { return static_cast<std::uint8_t>(r); });
      }
      break;
    case Distribution::kE8m0: {
      const auto base = static_cast<std::uint64_t>(rule.a);
      fill<std::uint8_t>(key, begin, out, [base](std::uint64_t r, std::uint64_t /*index*/) {
        return static_cast<std::uint8_t>(base + r % 3);
      });
      break;
    }
    case Distribution::kShape:
      fill<std::int32_t>(key, begin, out, [&](std::uint64_t /*r*/, std::uint64_t index) {
        return static_cast<std::int32_t>(tensor.described[index]);
      });
      break;
  }
}

}  // namespace perigee
