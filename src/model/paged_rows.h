// Storing one row of a paged cache (latent rows, index keys).
#pragma once

#include <cstring>

#include "base/numeric.h"
#include "model/step.h"

namespace perigee {

inline void store_row(const SequenceView& sequence, std::int64_t position, std::int64_t offset, KeyFormat format,
                      const float* values, std::int64_t count) {
  std::byte* page = sequence.pages[static_cast<std::size_t>(position / kPageTokens)] + offset;
  const std::int64_t slot = position % kPageTokens;
  if (format == KeyFormat::kF32) {
    std::memcpy(page + slot * count * 4, values, static_cast<std::size_t>(count) * 4);
    return;
  }
  auto* row = reinterpret_cast<bf16*>(page) + slot * count;
  for (std::int64_t i = 0; i < count; ++i) row[i] = to_bf16(values[i]);
}

}  // namespace perigee
