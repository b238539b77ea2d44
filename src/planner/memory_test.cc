#include "planner/memory.h"

#include <gtest/gtest.h>

namespace perigee::planner {
namespace {

// ascend.md 4.8: no wrong verdict on the published layouts; G and H may be tight.
TEST(Memory, PublishedLayouts) {
  const auto layouts = load_layouts("");
  ASSERT_TRUE(layouts.ok()) << layouts.status().message();
  EXPECT_GE(layouts->size(), 32U);
  const auto checks = check_layouts(built_in_catalogue(), *layouts);
  ASSERT_TRUE(checks.ok()) << checks.status().message();
  int counts[3] = {};
  for (const auto& check : *checks) {
    EXPECT_TRUE(check.right) << check.layout->name << ": " << verdict_name(check.report.verdict) << ", "
                             << check.report.need_low / 1e9 << " to " << check.report.need_high / 1e9 << " of "
                             << check.report.budget / 1e9;
    ++counts[static_cast<int>(check.report.verdict)];
  }
  EXPECT_GE(counts[0], 25);
  EXPECT_LE(counts[1], 2);
  EXPECT_EQ(counts[2], 5);
}

MemorySetup k3_on_a3(std::int64_t dp, std::int64_t tp) {
  const Catalogue& catalogue = built_in_catalogue();
  MemorySetup setup;
  setup.shape = *catalogue.model("kimi-k3");
  setup.chip = *catalogue.chip("910c-752");
  setup.engine = *catalogue.engine("vllm-ascend");
  setup.format = *find_format("w4a8");
  setup.pool.parallel = {.tp = tp, .dp = dp, .pp = 1, .dcp = 1, .expert_parallel = true};
  setup.pool.max_model_len = 131072;
  setup.pool.max_batched_tokens = 8192;
  setup.pool.max_sequences = 16;
  return setup;
}

// ascend.md 4.3, weights only, GB.
TEST(Memory, WeightsPerDie) {
  const auto weights = [](const MemoryReport& report) {
    double low = 0;
    double high = 0;
    for (const auto& line : report.lines) {
      const bool is_weight = line.name == "routed experts" || line.name == "attention, shared and dense" ||
                             line.name == "embedding and head" || line.name == "copied projections and router";
      if (!is_weight) continue;
      low += line.low / 1e9;
      high += line.high / 1e9;
    }
    return std::pair(low, high);
  };
  const auto four = weights(*plan_memory(k3_on_a3(4, 16)));
  EXPECT_NEAR(four.first, 30.5, 0.6);
  EXPECT_NEAR(four.second, 36.5, 0.6);
  const auto eight = weights(*plan_memory(k3_on_a3(8, 16)));
  EXPECT_NEAR(eight.first, 19.9, 0.6);
  EXPECT_NEAR(four.first - eight.first, 10.6, 0.1);
}

TEST(Memory, Mc2BufferTable) {
  const ModelShape& k3 = **built_in_catalogue().model("kimi-k3");
  EXPECT_NEAR(mc2_buffer_mib(k3, "a3", 64, 8), 107, 0.5);
  EXPECT_NEAR(mc2_buffer_mib(k3, "a3", 128, 32), 427, 0.5);
  EXPECT_NEAR(mc2_buffer_mib(k3, "a3", 64, 128), 1708, 0.5);
  EXPECT_NEAR(mc2_buffer_mib(k3, "a3", 64, 512), 6832, 0.5);
  PoolPlan pool;
  pool.parallel.tp = 16;
  pool.max_sequences = 16;
  pool.draft.tokens = 7;
  EXPECT_EQ(mc2_tokens_per_rank(pool), 8);
  pool.prefill_mc2 = true;
  pool.max_batched_tokens = 8192;
  EXPECT_EQ(mc2_tokens_per_rank(pool), 512);
}

TEST(Memory, DcpShardsLatentsAndNothingElse) {
  auto setup = k3_on_a3(4, 16);
  const auto whole = plan_memory(setup);
  setup.pool.parallel.dcp = 16;
  const auto cut = plan_memory(setup);
  EXPECT_NEAR(whole->bytes_per_token, 27648, 1e-6);
  EXPECT_NEAR(cut->bytes_per_token, 27648.0 / 16, 1e-6);
  EXPECT_EQ(whole->bytes_per_slot, cut->bytes_per_slot);
  EXPECT_GT(cut->largest_context, 15 * whole->largest_context);
}

TEST(Memory, MissingOrImpossibleInputsAreRefused) {
  auto setup = k3_on_a3(4, 16);
  setup.pool.max_sequences = 0;
  EXPECT_NE(plan_memory(setup).status().message().find("max_sequences is needed"), std::string::npos);
  EXPECT_NE(plan_memory(k3_on_a3(3, 16)).status().message().find("cannot be spread evenly over EP 48"),
            std::string::npos);
  EXPECT_NE(plan_memory(k3_on_a3(4, 20)).status().message().find("does not divide 96"), std::string::npos);
  setup = k3_on_a3(4, 16);
  setup.format = *find_format("mxfp4-mxfp8");
  EXPECT_NE(plan_memory(setup).status().message().find("cannot run weights in mxfp4-mxfp8"), std::string::npos);
}

}  // namespace
}  // namespace perigee::planner
