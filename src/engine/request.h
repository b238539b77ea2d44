// One request inside the engine: what the client asked, its branches, and its session with the prefix cache.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "cache/prefix_cache.h"
#include "engine/branch.h"
#include "engine/engine.h"

namespace perigee {

enum class RequestPhase : std::uint8_t {
  kWaiting,    // no memory is held
  kRestoring,  // the restorer thread matches and reads the cache
  kRunning,
};

struct Request {
  RequestHandle handle = 0;
  GenerationRequest ask;
  EventSink sink;
  std::int64_t arrival = 0;  // order of submission
  std::chrono::steady_clock::time_point submitted;
  RequestPhase phase = RequestPhase::kWaiting;
  std::atomic<bool> cancelled{false};
  std::atomic<bool> restored{false};  // set by the restorer when the request may run

  std::vector<std::unique_ptr<Branch>> branches;  // branch 0 computes the prompt for all
  bool forked = false;                            // branches 1.. are live
  std::unique_ptr<CacheSession> session;          // null: the cache is off, or a preempted request with n > 1
  std::size_t next_snapshot = 0;                  // into session->snapshot_positions()
  std::int64_t audit_position = 0;                // > 0: recompute up to here and compare with the stored state
  CacheReport report;
  double queue_seconds = 0;  // from submission to the first start
  bool reported = false;
  std::int64_t preemptions = 0;

  bool finished() const {
    for (const auto& branch : branches) {
      if (!branch->finished) return false;
    }
    return true;
  }
};

}  // namespace perigee
