// Runs a folder of cache vectors (sequences.json, keys.json, traces.json) against the real index with a toy model
// whose state shows a restore from the wrong place. Behind `perigee verify cache` and the golden test.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace perigee {

struct TraceReplay {
  std::string trace;
  std::int64_t interval = 0;
  bool branch = true;
  std::int64_t ram_bytes = 0;  // 0: no limit; else with the sizes of Kimi K3: 7.9 MB a block, 449 MB a state
  std::int64_t requests = 0;
  std::int64_t prompt_tokens = 0;
  std::int64_t input_tokens = 0;  // of all requests of the file
  std::int64_t restored_tokens = 0;
  std::int64_t full_hits = 0;
  std::int64_t states = 0;
  double hit_percent() const {
    return input_tokens == 0 ? 0 : 100.0 * static_cast<double>(restored_tokens) / static_cast<double>(input_tokens);
  }
};

struct CacheVectorReport {
  std::int64_t sequences = 0;
  std::int64_t sequences_passed = 0;
  std::int64_t requests = 0;
  std::int64_t key_prompts = 0;
  std::int64_t key_prompts_passed = 0;
  std::int64_t traces_passed = 0;
  std::vector<TraceReplay> traces;
  std::vector<std::string> failures;  // "sequence/request: what was expected and what was found"
};

// `traces` is the folder of the trace files; `scratch` an existing folder for the disk tier of the cases that need one.
Result<CacheVectorReport> run_cache_vectors(const std::string& directory, const std::string& traces,
                                            const std::string& scratch);

// Replays one trace by the rule of spec cache.md 1.3. Sets the result fields of `replay`.
Status replay_trace(const std::string& path, TraceReplay& replay);

}  // namespace perigee
