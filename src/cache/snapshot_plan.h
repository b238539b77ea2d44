// Where a request takes recurrent states: rules (1) to (6) of spec cache.md 1.4. Pure functions, thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/keys.h"

namespace perigee {

// A middle state lies more than this many tokens past the state before it; also the threshold of a branch point.
inline constexpr std::int64_t kMiddleGap = 512;

struct SnapshotRequest {
  std::int64_t prompt_tokens = 0;    // N
  std::int64_t common_tokens = 0;    // L
  std::int64_t restored_tokens = 0;  // p
  bool stored_goes_on = false;       // some stored block goes on past L
  bool branch_states = true;         // rule (4); off only to measure it
  std::int64_t system_end = 0;       // 0: unknown
  std::int64_t interval = 0;         // 0: off
  std::span<const ImageSpan> images;
};

// Positions at which the prefill stops for a state, ascending; the last one is N. Empty when p = N.
std::vector<std::int64_t> plan_snapshots(const SnapshotRequest& request);

// Rule (6): does a request that is cancelled at `position` leave its live state there?
bool snapshot_on_cancel(std::int64_t position, std::int64_t last_state, std::span<const ImageSpan> images);

}  // namespace perigee
