// The traffic between a request and the prefix cache: restoring a prefix into a branch, handing over blocks and states.
#pragma once

#include "cache/pages.h"
#include "cache/prefix_cache.h"
#include "engine/request.h"
#include "model/state_layout.h"

namespace perigee {

class CacheLink {
 public:
  // `hidden`: width of the final row that a state carries. `cache` may be null: then nothing is kept.
  CacheLink(PrefixCache* cache, PagePool& pool, const StateLayout& layout, std::int64_t hidden)
      : cache_(cache), pool_(pool), layout_(layout), hidden_(hidden) {}

  static std::int64_t state_bytes(const StateLayout& layout, std::int64_t hidden) {
    return (layout.recurrent_floats + hidden) * 4;
  }

  // Matches branch 0's tokens and fills its state up to the restored position (or from zero). Reads the disk.
  void restore(Request& request, const CacheRoot& root, bool audit) const;
  // After a step: tells the session of new tokens and hands over the blocks that became whole.
  void store_progress(Request& request, Branch& branch) const;
  // A state at the branch's position, and the block before it.
  void store_state(Request& request, Branch& branch) const;
  // The end of a branch: its partial block and, when it generated more than one token, its state.
  void store_end(Request& request, Branch& branch) const;
  // Does the recomputed state of branch 0 equal the stored one, bit by bit? (the position is the lookup's)
  bool audit_matches(const Request& request) const;

 private:
  PayloadRef make_block(const Branch& branch, std::int64_t end) const;

  PrefixCache* cache_;
  PagePool& pool_;
  const StateLayout& layout_;
  std::int64_t hidden_;
};

}  // namespace perigee
