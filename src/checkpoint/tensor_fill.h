// Generated tensor bytes (spec synth.md 1-3): every element depends only on seed, stored name, its index and the
// rule, so any range can be made alone, in any order, by any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "checkpoint/tensor.h"

namespace perigee {

enum class Distribution : std::uint8_t { kNormal, kUniform, kPaddedUniform, kRandomBits, kE8m0, kShape };

struct FillRule {
  Distribution distribution = Distribution::kNormal;
  double a = 0;                 // normal: sigma; uniform: centre; E8M0: base byte
  double b = 0;                 // uniform: half width
  std::int64_t meaningful = 0;  // padded uniform: elements from here on are 0
};

// A tensor as it stands in a shard of a generated checkpoint.
struct GeneratedTensor {
  std::string name;
  Dtype dtype = Dtype::kBf16;
  Shape shape;
  FillRule rule;
  Shape described;  // kShape: the extents that are stored
  std::int64_t bytes() const { return shape.elements() * dtype_bytes(dtype); }
};

std::uint64_t synth_key(std::uint64_t seed, std::string_view name);

// Writes elements [begin, begin + out.size() / dtype_bytes) of the tensor.
void fill_elements(const GeneratedTensor& tensor, std::uint64_t seed, std::int64_t begin, std::span<std::byte> out);

}  // namespace perigee
