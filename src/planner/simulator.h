// A discrete-event simulator of a serving cluster: prefill, decode and mixed pools of lock-step groups, prefix caches,
// queues, transfers and failures. A run of decode steps between two events is one event, so a million requests take
// seconds. The same inputs and seed give the same bits. Single-threaded; objects are not shared.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "base/status.h"
#include "planner/step_time.h"

namespace perigee::planner {

struct Request {
  double arrival_ms = 0;
  std::int32_t input = 0;
  std::int32_t output = 1;
  std::uint32_t first_block = 0;  // into RequestSet::blocks
  std::uint32_t blocks = 0;
};

// Requests in arrival order. Equal block ids at equal places mean an equal prefix up to there.
struct RequestSet {
  std::vector<Request> requests;
  std::vector<std::uint32_t> blocks;
  std::int64_t block_tokens = 512;
};

// JSON lines with timestamp, input_length, output_length and optional hash_ids. Errors name the line.
Result<RequestSet> read_trace(const std::string& path, std::size_t limit_requests);

struct SyntheticTraffic {
  std::int64_t requests = 1000;
  double per_second = 0;                       // 0: all at once
  bool poisson = true;                         // else evenly spaced
  double input_mean = 4096, input_spread = 0;  // spread: sigma of the log-normal's logarithm; 0: constant
  double output_mean = 512, output_spread = 0;
  double shared_prefix = 0;   // share of the input that many requests have in common
  std::int64_t prefixes = 1;  // distinct prefixes, drawn evenly
  std::uint64_t seed = 1;
};
RequestSet make_traffic(const SyntheticTraffic& traffic);

struct PoolSetup {
  Role role = Role::kMixed;
  const StepModel* model = nullptr;
  std::int64_t instances = 1;
  std::int64_t nodes = 1;           // of an instance, for cost and failures
  std::int64_t max_sequences = 16;  // of a group
  std::int64_t max_batched_tokens = 8192;
  double cache_tokens = std::numeric_limits<double>::infinity();   // of a group: running sequences
  double prefix_tokens = std::numeric_limits<double>::infinity();  // of a group: kept prefixes
  bool prefix_cache = true;
  std::int64_t prefix_quantum = 1;  // hits are cut to multiples of this
  std::int64_t warm_groups = 0;     // groups that have seen every prefix before the first request
};

struct ClusterSetup {
  std::vector<PoolSetup> pools;  // one mixed, or prefill and decode
  std::int64_t concurrency = 0;  // requests that clients keep in flight; 0: open arrivals
  double transfer_ms = 0;        // handshake of a transfer
  double transfer_bytes_per_token = 0, transfer_bytes_fixed = 0;
  double transfer_gb_s = 0;  // of one decode group; 0: only the handshake
  bool cache_aware = false;  // route to the group with the longest cached prefix
  double failures_per_node_hour = 0;
  double repair_s = 600;
  double price_per_node_hour = 0;
  double ttft_target_ms = 0, tpot_target_ms = 0;  // goodput; 0: no target
  std::uint64_t seed = 1;
};

struct Percentiles {
  double mean = 0, p50 = 0, p90 = 0, p99 = 0;
};

struct TimelinePoint {
  double seconds = 0;
  double queued = 0, prefilling = 0, decoding = 0;
};

struct SimulationResult {
  std::int64_t completed = 0, restarted = 0, failures = 0, events = 0, steps = 0;
  double seconds = 0;  // first arrival to last token
  double output_tokens_per_second = 0, input_tokens_per_second = 0;
  Percentiles ttft_ms, tpot_ms;   // TPOT of a request: first to last token over its tokens less one
  double goodput_per_second = 0;  // requests that met both targets
  double goodput_share = 0;
  double prefix_hit = 0;  // share of input tokens
  double cost_per_million_output = 0;
  double prefill_busy = 0, decode_busy = 0;  // share of time in steps
  std::vector<TimelinePoint> timeline;       // at most 128 points
};

Result<SimulationResult> simulate(const ClusterSetup& cluster, const RequestSet& traffic);

}  // namespace perigee::planner
