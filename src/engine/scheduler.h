// What runs in the next step, and who may start. Pure policy over plain numbers, so that it is tested without a model.
//
// One step takes every decoding branch and fills the rest of a token budget with pieces of prompts. The budget follows
// the measured cost of a token so that decoding users never wait longer than a few ordinary steps.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace perigee {

struct SchedulerOptions {
  std::int64_t max_step_tokens = 2048;
  std::int64_t min_prefill_tokens = 16;  // progress that a prompt makes in each step, whatever the gap target
  double gap_factor = 2.5;               // a mixed step may take this many times a step of decodes alone
};

// Learns how long steps take and turns a gap target into a number of prompt tokens.
class StepBudget {
 public:
  explicit StepBudget(const SchedulerOptions& options) : options_(options) {}

  // Prompt tokens that the next step may take beside `decodes` decoding branches.
  std::int64_t prefill_tokens(std::int64_t decodes) const;
  void record(std::int64_t decodes, std::int64_t prefill_tokens, double seconds);

 private:
  SchedulerOptions options_;
  double decode_seconds_ = 0;   // smoothed time of a step without prompts
  double prefill_seconds_ = 0;  // smoothed extra time of one prompt token
};

struct PrefillClaim {
  std::string tenant;
  std::int32_t priority = 0;
  std::int64_t arrival = 0;
  std::int64_t pending = 0;  // prompt tokens still to compute, up to the next stop
};

// Shares `budget` prompt tokens: higher priority first; within one priority every tenant gets an equal part, what a
// tenant cannot use goes to the others; within a tenant the oldest request first. Returns tokens by claim.
std::vector<std::int64_t> share_prefill(std::span<const PrefillClaim> claims, std::int64_t budget);

struct WaitingClaim {
  std::string tenant;
  std::int32_t priority = 0;
  std::int64_t arrival = 0;
};

// Index of the waiting request that starts next: highest priority, then the tenant with the fewest running branches,
// then the one that was served least, then the oldest. -1 when there is none.
std::int64_t next_to_start(std::span<const WaitingClaim> waiting, const std::map<std::string, std::int64_t>& running,
                           const std::map<std::string, std::int64_t>& served);

}  // namespace perigee
