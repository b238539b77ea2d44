#include "model/sequence_storage.h"

#include <cstring>

#include "base/numeric.h"

namespace perigee {

SequenceStorage::SequenceStorage(const StateLayout& layout)
    : layout_(layout), recurrent_(static_cast<std::size_t>(layout.recurrent_floats)) {}

void SequenceStorage::add_pages(std::int64_t end) {
  while (static_cast<std::int64_t>(pages_.size()) * kPageTokens < end) {
    // Zeroed, so that whole pages can be compared with memcmp.
    pages_.push_back(std::make_unique<std::byte[]>(static_cast<std::size_t>(layout_.page_bytes)));
    page_pointers_.push_back(pages_.back().get());
  }
}

void SequenceStorage::generate(std::int64_t depth) {
  add_pages(depth);
  std::uint64_t seed = 1;
  for (std::byte* page : page_pointers_) {
    auto* words = reinterpret_cast<std::uint16_t*>(page);
    for (std::int64_t i = 0; i < layout_.page_bytes / 2; ++i) {
      seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
      words[i] = static_cast<std::uint16_t>((seed >> 63 << 15) | (0x3D00U + ((seed >> 40) & 0x1FFU)));
    }
  }
  position_ = depth;
}

Segment SequenceStorage::next(std::span<const std::int32_t> tokens, WantLogits logits) {
  add_pages(position_ + static_cast<std::int64_t>(tokens.size()));
  return {.sequence = {.position = position_, .recurrent = recurrent_.data(), .pages = page_pointers_},
          .tokens = tokens,
          .logits = logits};
}

std::vector<float> SequenceStorage::row(std::int64_t position, std::int64_t offset, std::int64_t width) const {
  const std::byte* page = page_pointers_[static_cast<std::size_t>(position / kPageTokens)] + offset;
  const std::int64_t first = position % kPageTokens * width;
  std::vector<float> values(static_cast<std::size_t>(width));
  if (layout_.key_format == KeyFormat::kF32) {
    std::memcpy(values.data(), page + first * 4, values.size() * 4);
    return values;
  }
  const auto* stored = reinterpret_cast<const bf16*>(page) + first;
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = to_float(stored[i]);
  return values;
}

}  // namespace perigee
