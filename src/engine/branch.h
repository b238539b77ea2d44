// One sequence that the engine advances: its tokens, its live state, its sampler. A request has n of them; they share
// the pages of their prompt until one writes (copy on write).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/buffer.h"
#include "cache/pages.h"
#include "engine/engine.h"
#include "engine/sampler.h"
#include "model/model.h"

namespace perigee {

struct Branch {
  std::int32_t index = 0;
  std::vector<TokenId> tokens;  // prompt and sampled ids
  std::int64_t computed = 0;    // tokens in the state
  std::int64_t sampled = 0;
  bool finished = false;
  std::int64_t known = 0;   // tokens that the cache session has been told of
  std::int64_t stored = 0;  // tokens of the blocks that were handed to the cache

  std::vector<PageRef> pages;
  std::vector<std::byte*> page_pointers;
  Buffer<float> recurrent;       // StateLayout::recurrent_floats; allocated while live
  std::vector<float> final_row;  // of the last computed token; empty before the first step

  std::chrono::steady_clock::time_point last_token;
  std::unique_ptr<Sampler> sampler;
  std::unique_ptr<TokenConstraint> constraint;

  std::int64_t pending() const { return static_cast<std::int64_t>(tokens.size()) - computed; }

  // Makes positions [computed, computed + count) writable: new pages, and private copies of shared ones. False when
  // the pool is exhausted; what was made stays and is used by the next try.
  bool prepare_pages(PagePool& pool, std::int64_t count);
  // A zeroed recurrent state.
  void start_state(const StateLayout& layout);
  // Gives pages and state back; the tokens stay, so that the branch can be computed again.
  void drop_state();
  // Continues from another branch at the same position: shared pages, copied recurrent state.
  void fork_from(const Branch& other, const StateLayout& layout);
};

}  // namespace perigee
