// The engine as its clients (server, terminal, tests) see it: token ids go in, token ids come out.
// It knows nothing of HTTP or prompts. The scripted engine of the tests implements the same interface.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "base/tokens.h"
#include "text/token_constraint.h"

namespace perigee {

struct SamplingParams {
  float temperature = 1.0F;  // 0: greedy, lower id on a tie
  float top_p = 1.0F;
  float min_p = 0.0F;
  std::int32_t top_k = 0;  // 0: all
  float repetition_penalty = 1.0F;
  float presence_penalty = 0.0F;
  float frequency_penalty = 0.0F;
  std::uint64_t seed = 0;  // counter-based: the draw of step i depends on (seed, branch, i) only
  std::map<TokenId, float> logit_bias = {};
  std::int32_t min_tokens = 0;     // stop ids are masked before this many tokens
  std::int32_t top_logprobs = -1;  // -1: no logprobs; else 0..20 alternatives beside the sampled one
};

enum class FinishReason : std::uint8_t { kNone, kStop, kLength, kCancelled, kError };

struct TokenLogprob {
  TokenId id = 0;
  float logprob = 0;
};

// One event of one branch. `finish` other than kNone is the branch's last event; it may carry a token (the stop id,
// or the last one of the budget) or none (id -1).
struct TokenEvent {
  std::int32_t branch = 0;  // 0..n-1
  TokenId id = -1;
  float logprob = 0;
  std::vector<TokenLogprob> top = {};
  FinishReason finish = FinishReason::kNone;
  Status error;  // kError only
};

struct CacheReport {               // spec cache.md 1.4, "What a reply says"
  std::int64_t prompt_tokens = 0;  // N
  std::int64_t common_tokens = 0;  // L
  std::int64_t whole_blocks = 0;
  std::int64_t restored_tokens = 0;  // p
  std::string reason;
  double queue_seconds = 0;  // from submission to the look-up
};

struct GenerationRequest {
  std::vector<TokenId> prompt;
  std::int64_t system_tokens = 0;  // end of the system + tools block, 0: unknown (a place for a snapshot)
  SamplingParams sampling;
  std::vector<TokenId> stop_ids;  // end the branch; the id is delivered with its last event
  std::int64_t max_tokens = 0;    // 0: up to the context length
  std::int32_t n = 1;
  std::unique_ptr<TokenConstraint> constraint;
  std::string tenant;  // part of cache keys; also the unit of fairness
  std::string cache_salt;
  std::int32_t priority = 0;  // higher first
  std::string request_id;
};

// Receives events on the engine's thread; must not block and must not call back into the engine, except cancel().
// Returning false says that the client is gone or too slow: the branch is cancelled.
using EventSink = std::function<bool(TokenEvent&&)>;

struct EngineLimits {
  std::int64_t context_tokens = 0;
  std::int64_t vocab = 0;
};

// How many tokens each step computed, in the buckets that vLLM has.
struct StepSizes {
  static constexpr std::array<std::int64_t, 13> kBounds = {1,   8,    16,   32,   64,   128,  256,
                                                           512, 1024, 2048, 4096, 8192, 16384};
  std::array<std::int64_t, kBounds.size() + 1> counts{};  // steps; the last: more than any bound
  std::int64_t tokens = 0;

  void record(std::int64_t size) {
    const auto bucket = std::lower_bound(kBounds.begin(), kBounds.end(), size) - kBounds.begin();
    ++counts[static_cast<std::size_t>(bucket)];
    tokens += size;
  }
  std::int64_t steps() const { return std::accumulate(counts.begin(), counts.end(), std::int64_t{0}); }
};

struct EngineStats {
  std::int64_t waiting = 0;
  std::int64_t running = 0;
  std::int64_t prompt_tokens = 0;  // computed, since start
  std::int64_t cached_tokens = 0;  // restored instead of computed
  std::int64_t generated_tokens = 0;
  std::int64_t preemptions = 0;
  StepSizes step_sizes;
  double kv_usage = 0;  // share of the page budget in use
  double prefill_seconds = 0;
  double decode_seconds = 0;
  std::map<std::string, double> extra;  // further gauges by metric name
};

using RequestHandle = std::uint64_t;

// All methods are thread-safe.
class Engine {
 public:
  virtual ~Engine() = default;

  // Refuses at once what can never run (too long, no memory for it, bad parameters); queues everything else.
  virtual Result<RequestHandle> submit(GenerationRequest request, EventSink sink) = 0;
  // Takes effect within one step. Unknown handles are ignored.
  virtual void cancel(RequestHandle handle) = 0;
  // What the cache did for this request; available once its first token is out.
  virtual CacheReport cache_report(RequestHandle handle) const = 0;
  virtual EngineLimits limits() const = 0;
  virtual EngineStats stats() const = 0;
  // The prefix tree for /debug/cache, at most `limit` objects.
  virtual Json debug_cache(std::size_t limit) const = 0;
  // Lets running requests end, refuses new ones, returns when idle or after `seconds`.
  virtual void drain(double seconds) = 0;
};

}  // namespace perigee
