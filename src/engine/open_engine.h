// The engine over a real model.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "cache/prefix_cache.h"
#include "checkpoint/weights.h"
#include "engine/engine.h"
#include "engine/scheduler.h"
#include "model/model.h"

namespace perigee {

struct EngineOptions {
  std::string isa;  // empty: PERIGEE_ISA or the best path
  int threads = 0;  // 0: one a core
  Precision precision = Precision::kBf16;
  std::int64_t memory_bytes = 0;    // everything: weights, caches, snapshots, activations; 0: 90 % of the machine
  std::int64_t context_tokens = 0;  // 0: the model's, or what memory allows
  std::int64_t max_branches = 0;    // running at once; 0: 64, or what memory allows
  std::int64_t max_waiting = 1024;  // requests; more are refused
  SchedulerOptions scheduler;
  bool prefix_cache = true;
  bool share_tenants = false;  // one cache tree for all tenants
  PrefixCacheOptions cache;    // ram_bytes is set from the memory plan
  double cache_audit = 0;      // share of cache hits that are recomputed and compared bit by bit
};

// What the memory is spent on, computed before anything is allocated (bytes).
struct EngineMemory {
  std::int64_t total = 0;
  std::int64_t weights = 0;
  std::int64_t activations = 0;
  std::int64_t live_states = 0;  // recurrent states of running branches
  std::int64_t pages = 0;        // the page pool
  std::int64_t snapshots = 0;    // cached states in RAM
  std::int64_t branches = 0;
  std::int64_t context_tokens = 0;
  std::string to_string() const;
};
Result<EngineMemory> plan_engine_memory(const Checkpoint& checkpoint, const StateLayout& layout,
                                        const EngineOptions& options);

// `checkpoint` outlives the engine. Fails when the memory plan does not fit, with the numbers.
Result<std::unique_ptr<Engine>> open_engine(const Checkpoint& checkpoint, const EngineOptions& options);

}  // namespace perigee
