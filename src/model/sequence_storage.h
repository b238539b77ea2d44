// A sequence that owns its state outright: for tests, checks and benchmarks. The server's sequences live in src/engine
// and share pages with the prefix cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "model/model.h"

namespace perigee {

class SequenceStorage {
 public:
  explicit SequenceStorage(const StateLayout& layout);

  // A segment of the next tokens; pages are added as needed. `tokens` must outlive the step.
  Segment next(std::span<const std::int32_t> tokens, WantLogits logits);
  // As if `depth` tokens had gone before a sequence that is empty: its pages hold generated rows, small bf16 numbers of
  // either sign, the same ones every time.
  void generate(std::int64_t depth);
  // After Model::forward.
  void advance(std::int64_t tokens) { position_ += tokens; }

  std::int64_t position() const { return position_; }
  std::span<const float> recurrent() const { return recurrent_; }
  std::span<float> recurrent() { return recurrent_; }
  std::span<std::byte* const> pages() const { return page_pointers_; }
  // One cached row as floats: `offset` from StateLayout::MlaPlace, `width` elements.
  std::vector<float> row(std::int64_t position, std::int64_t offset, std::int64_t width) const;

 private:
  void add_pages(std::int64_t end);

  const StateLayout& layout_;
  std::int64_t position_ = 0;
  std::vector<float> recurrent_;
  std::vector<std::unique_ptr<std::byte[]>> pages_;
  std::vector<std::byte*> page_pointers_;
};

}  // namespace perigee
