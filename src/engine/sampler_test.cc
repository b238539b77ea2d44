#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

namespace perigee {
namespace {

std::vector<float> logits_of(std::initializer_list<float> values) {
  return values;
}

TokenId draw(const SamplingParams& params, std::span<const float> logits, std::int32_t branch = 0) {
  Sampler sampler(params, {}, {}, branch);
  const auto sampled = sampler.sample(logits, nullptr);
  EXPECT_TRUE(sampled.ok()) << sampled.status().message();
  return sampled.ok() ? sampled->id : -1;
}

TEST(Sampler, GreedyTakesTheLowerIdOnATie) {
  EXPECT_EQ(draw({.temperature = 0}, logits_of({0, 3, 1, 3})), 1);
  EXPECT_EQ(draw({.temperature = 1, .top_k = 1}, logits_of({0, 3, 1, 3})), 1);
}

TEST(Sampler, DrawDependsOnSeedBranchAndStepOnly) {
  const std::vector<float> flat(1000, 0.0F);
  std::set<TokenId> seen;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    EXPECT_EQ(draw({.seed = seed}, flat), draw({.seed = seed}, flat));
    seen.insert(draw({.seed = seed}, flat));
    seen.insert(draw({.seed = seed}, flat, 1));
  }
  EXPECT_GT(seen.size(), 30U);
}

TEST(Sampler, FrequenciesFollowTheDistribution) {
  const auto logits = logits_of({std::log(0.5F), std::log(0.3F), std::log(0.2F)});
  std::vector<int> counts(3);
  Sampler sampler({.seed = 5}, {}, {}, 0);
  for (int i = 0; i < 20000; ++i) ++counts[static_cast<std::size_t>(sampler.sample(logits, nullptr)->id)];
  EXPECT_NEAR(counts[0], 10000, 300);
  EXPECT_NEAR(counts[1], 6000, 300);
}

TEST(Sampler, CutsKeepTheHead) {
  const auto logits = logits_of({0, 5, 4.9F, -3, 4.8F});
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    EXPECT_NE(draw({.top_k = 3, .seed = seed}, logits), 0);
    EXPECT_EQ(draw({.top_p = 0.1F, .seed = seed}, logits), 1);
    EXPECT_NE(draw({.min_p = 0.5F, .seed = seed}, logits), 3);
  }
}

TEST(Sampler, PenaltiesBiasAndMinTokens) {
  EXPECT_EQ(draw({.temperature = 0, .logit_bias = {{0, 100.0F}}}, logits_of({0, 3})), 0);
  Sampler penalised({.temperature = 0, .presence_penalty = 5}, {}, {}, 0);
  const auto logits = logits_of({1, 2});
  EXPECT_EQ(penalised.sample(logits, nullptr)->id, 1);
  EXPECT_EQ(penalised.sample(logits, nullptr)->id, 0);
  Sampler held({.temperature = 0, .min_tokens = 1}, {}, {1}, 0);
  EXPECT_EQ(held.sample(logits, nullptr)->id, 0);
  EXPECT_EQ(held.sample(logits, nullptr)->id, 1);
}

TEST(Sampler, LogprobsAreTheModelsOwn) {
  Sampler sampler({.temperature = 0, .logit_bias = {{0, 100.0F}}, .top_logprobs = 2}, {}, {}, 0);
  const auto sampled = sampler.sample(logits_of({0, 1}), nullptr);
  ASSERT_TRUE(sampled.ok());
  EXPECT_EQ(sampled->id, 0);
  EXPECT_NEAR(sampled->logprob, -1.3132617, 1e-6);
  ASSERT_EQ(sampled->top.size(), 2U);
  EXPECT_EQ(sampled->top[0].id, 1);
}

TEST(Sampler, RefusesWhatIsNotFinite) {
  Sampler sampler({}, {}, {}, 0);
  EXPECT_EQ(sampler.sample(logits_of({0, std::nanf("")}), nullptr).status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(sampler.sample(logits_of({0, INFINITY}), nullptr).status().code(), StatusCode::kDataLoss);
}

TEST(CheckSampling, NamesTheField) {
  EXPECT_NE(check_sampling({.top_p = 2}, 10).message().find("top_p"), std::string::npos);
  EXPECT_NE(check_sampling({.logit_bias = {{10, 1.0F}}}, 10).message().find("logit_bias"), std::string::npos);
  EXPECT_FALSE(check_sampling({.temperature = std::nanf("")}, 10).ok());
  EXPECT_TRUE(check_sampling({}, 10).ok());
}

}  // namespace
}  // namespace perigee
