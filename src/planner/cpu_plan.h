// CPU servers for Perigee itself: what fits in memory and how fast it can be (spec model.md 13, design.md 5 and 6).
// Decode reads every resident weight, the experts that the step touches and the caches once a step; prefill is bound by
// multiply-adds. Bytes as doubles, seconds. Pure functions, thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "planner/catalogue.h"
#include "planner/memory.h"
#include "planner/model_shape.h"

namespace perigee::planner {

struct CpuServer {
  std::string name, title;
  Sourced cores, ghz, flops_per_cycle;  // of one core
  Sourced memory_gb_s;                  // all channels together
  Sourced memory_gb;
  double peak_flops() const { return cores.value * ghz.value * 1e9 * flops_per_cycle.value; }
};

struct CpuCatalogue {
  Sourced compute, memory;  // shares of peak and bandwidth
  double interval_low = 1, interval_high = 1;
  std::vector<std::string> weight_formats;
  std::vector<CpuServer> servers;

  Result<const CpuServer*> server(std::string_view name) const;
};

// cpus.yaml: built in, or of a folder.
Result<CpuCatalogue> load_cpus(const std::string& directory);

struct CpuSetup {
  const ModelShape* shape = nullptr;
  const CpuServer* server = nullptr;
  WeightFormat format{};
  std::int64_t context = 0;    // longest sequence
  std::int64_t sequences = 0;  // decoding at the same time
  std::int64_t step_tokens = 2048;
};

struct CpuSpeed {
  std::string what;
  double tokens_per_second = 0, low = 0, high = 0;
  double read_ms = 0, compute_ms = 0;  // of a step
  bool read_bound = false;
};

struct CpuReport {
  std::vector<MemoryLine> lines;
  double need = 0, budget = 0, installed = 0;
  Verdict verdict = Verdict::kDoesNotFit;  // tight: within what is installed, but above Perigee's 90 %
  std::int64_t largest_context = 0;        // of one sequence beside the other states
  std::int64_t largest_batch = 0;          // sequences of `context` tokens
  double bytes_per_token = 0, bytes_per_sequence = 0;
  std::vector<CpuSpeed> speeds;  // decode of one and of all sequences, prefill
};

// Every sequence may reach `context`; speeds are at half of it.
Result<CpuReport> plan_cpu(const CpuCatalogue& cpus, const CpuSetup& setup);

std::string format_cpu(const CpuServer& server, const CpuReport& report);
Json to_json(const CpuServer& server, const CpuReport& report);

}  // namespace perigee::planner
