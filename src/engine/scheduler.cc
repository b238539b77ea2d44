#include "engine/scheduler.h"

#include <algorithm>
#include <tuple>

namespace perigee {
namespace {

constexpr double kSmoothing = 0.2;  // weight of the newest step

void smooth(double& average, double value) {
  average = average == 0 ? value : average + kSmoothing * (value - average);
}

std::int64_t lookup(const std::map<std::string, std::int64_t>& counts, const std::string& tenant) {
  const auto found = counts.find(tenant);
  return found == counts.end() ? 0 : found->second;
}

}  // namespace

std::int64_t StepBudget::prefill_tokens(std::int64_t decodes) const {
  const std::int64_t room = std::max(options_.max_step_tokens - decodes, options_.min_prefill_tokens);
  if (decodes == 0 || prefill_seconds_ == 0) return room;
  if (decode_seconds_ == 0) return std::min(room, options_.min_prefill_tokens);
  const double extra = (options_.gap_factor - 1) * decode_seconds_;
  const auto tokens = static_cast<std::int64_t>(std::min(extra / prefill_seconds_, static_cast<double>(room)));
  return std::clamp(tokens, std::min(options_.min_prefill_tokens, room), room);
}

void StepBudget::record(std::int64_t decodes, std::int64_t prefill_tokens, double seconds) {
  if (prefill_tokens == 0) {
    smooth(decode_seconds_, seconds);
    return;
  }
  const double base = decodes > 0 ? decode_seconds_ : 0;
  smooth(prefill_seconds_, std::max(seconds - base, 0.0) / static_cast<double>(prefill_tokens));
}

std::vector<std::int64_t> share_prefill(std::span<const PrefillClaim> claims, std::int64_t budget) {
  std::vector<std::int64_t> granted(claims.size(), 0);
  std::vector<std::size_t> order(claims.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return std::tuple(-claims[a].priority, claims[a].arrival) < std::tuple(-claims[b].priority, claims[b].arrival);
  });
  for (std::size_t begin = 0; begin < order.size() && budget > 0;) {
    std::size_t end = begin;
    while (end < order.size() && claims[order[end]].priority == claims[order[begin]].priority) ++end;
    // Rounds: every tenant with work left gets an equal part of what is left.
    while (budget > 0) {
      std::map<std::string, std::int64_t> wanted;
      for (std::size_t i = begin; i < end; ++i) {
        const std::int64_t left = claims[order[i]].pending - granted[order[i]];
        if (left > 0) wanted[claims[order[i]].tenant] += left;
      }
      if (wanted.empty()) break;
      const std::int64_t part = std::max<std::int64_t>(1, budget / static_cast<std::int64_t>(wanted.size()));
      for (auto& [tenant, left] : wanted) left = std::min(left, part);
      for (std::size_t i = begin; i < end; ++i) {
        const std::size_t at = order[i];
        const auto share = wanted.find(claims[at].tenant);
        if (share == wanted.end()) continue;
        const std::int64_t take = std::min({claims[at].pending - granted[at], share->second, budget});
        granted[at] += take;
        share->second -= take;
        budget -= take;
      }
    }
    begin = end;
  }
  return granted;
}

std::int64_t next_to_start(std::span<const WaitingClaim> waiting, const std::map<std::string, std::int64_t>& running,
                           const std::map<std::string, std::int64_t>& served) {
  const auto rank = [&](const WaitingClaim& claim) {
    return std::tuple(-claim.priority, lookup(running, claim.tenant), lookup(served, claim.tenant), claim.arrival);
  };
  std::int64_t best = -1;
  for (std::size_t i = 0; i < waiting.size(); ++i) {
    if (best < 0 || rank(waiting[i]) < rank(waiting[static_cast<std::size_t>(best)]))
      best = static_cast<std::int64_t>(i);
  }
  return best;
}

}  // namespace perigee
