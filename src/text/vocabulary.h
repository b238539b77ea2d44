// The ranked byte strings of a tiktoken file and the merge loop over them. Immutable after loading; thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace perigee {

class Vocabulary {
 public:
  static constexpr std::int32_t kNone = -1;

  // Lines of base64(bytes), space, rank; ranks are 0, 1, 2, ... and all 256 single bytes must be there.
  static Result<std::shared_ptr<const Vocabulary>> parse(std::string_view model);
  static std::shared_ptr<const Vocabulary> plain_bytes();

  std::int32_t size() const { return static_cast<std::int32_t>(offsets_.size()) - 1; }
  std::string_view bytes(std::int32_t rank) const {
    return std::string_view(blob_).substr(offsets_[rank], offsets_[rank + 1] - offsets_[rank]);
  }
  std::int32_t find(std::string_view bytes) const;

  // Appends the ranks of one piece: the adjacent pair of lowest rank merges first, the leftmost on a tie.
  void encode_piece(std::string_view piece, std::vector<std::int32_t>& out) const;

 private:
  Vocabulary() = default;
  Status index();
  void merge_short(std::string_view piece, std::vector<std::int32_t>& out) const;
  void merge_long(std::string_view piece, std::vector<std::int32_t>& out) const;

  std::string blob_;
  std::vector<std::uint32_t> offsets_{0};
  std::vector<std::int32_t> slots_;  // open addressing, power of two, kNone: free
  std::size_t longest_ = 0;
};

// The content of the released tiktoken.model.
std::string_view embedded_vocabulary();

}  // namespace perigee
