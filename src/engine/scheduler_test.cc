#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <numeric>

namespace perigee {
namespace {

TEST(SharePrefill, TenantsGetEqualPartsAndLeftoversMove) {
  const std::vector<PrefillClaim> claims = {{"a", 0, 1, 10000}, {"a", 0, 2, 10000}, {"b", 0, 3, 100}};
  const auto granted = share_prefill(claims, 1000);
  EXPECT_EQ(granted[2], 100);  // all that b wants, though a came first
  EXPECT_EQ(granted[0], 900);  // the older of a's two
  EXPECT_EQ(granted[1], 0);
}

TEST(SharePrefill, PriorityComesFirst) {
  const std::vector<PrefillClaim> claims = {{"a", 0, 1, 500}, {"b", 5, 2, 800}};
  EXPECT_EQ(share_prefill(claims, 1000), (std::vector<std::int64_t>{200, 800}));
}

TEST(SharePrefill, NeverPassesTheBudget) {
  std::vector<PrefillClaim> claims;
  for (int i = 0; i < 13; ++i) claims.push_back({std::string(1, static_cast<char>('a' + i % 5)), i % 2, i, 7 + i});
  for (std::int64_t budget = 0; budget < 200; ++budget) {
    const auto granted = share_prefill(claims, budget);
    std::int64_t wanted = 0;
    for (std::size_t i = 0; i < claims.size(); ++i) {
      EXPECT_LE(granted[i], claims[i].pending);
      wanted += claims[i].pending;
    }
    EXPECT_EQ(std::accumulate(granted.begin(), granted.end(), std::int64_t{0}), std::min(budget, wanted));
  }
}

TEST(NextToStart, FewestRunningThenLeastServedThenOldest) {
  const std::vector<WaitingClaim> waiting = {{"a", 0, 1}, {"b", 0, 2}, {"c", 0, 3}};
  EXPECT_EQ(next_to_start(waiting, {{"a", 1}}, {}), 1);
  EXPECT_EQ(next_to_start(waiting, {{"a", 1}}, {{"b", 50}}), 2);
  EXPECT_EQ(next_to_start(waiting, {}, {}), 0);
  EXPECT_EQ(next_to_start({}, {}, {}), -1);
}

TEST(StepBudget, KeepsMixedStepsNearTheGapTarget) {
  StepBudget budget({.max_step_tokens = 2048, .min_prefill_tokens = 16, .gap_factor = 2.5});
  EXPECT_EQ(budget.prefill_tokens(0), 2048);
  budget.record(8, 0, 0.100);               // a step of decodes: 100 ms
  budget.record(0, 1000, 10.0);             // a prompt token: 10 ms
  EXPECT_EQ(budget.prefill_tokens(8), 16);  // 150 ms are 15 tokens; the least is 16
  for (int i = 0; i < 100; ++i) budget.record(0, 1000, 1.0);
  EXPECT_NEAR(static_cast<double>(budget.prefill_tokens(8)), 150, 5);  // 150 ms of 1 ms tokens
  EXPECT_EQ(budget.prefill_tokens(0), 2048);
}

}  // namespace
}  // namespace perigee
