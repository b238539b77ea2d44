#include "planner/plan.h"

#include <gtest/gtest.h>

#include <string>

namespace perigee::planner {
namespace {

Plan eight_nodes() {
  Plan plan;
  plan.name = "k3-pd";
  plan.model = "kimi-k3";
  plan.checkpoint = "Eco-Tech/Kimi-K3-w4a8";
  plan.format = "w4a8";
  plan.engine_version = "0.30";
  plan.hardware = "atlas-800-a3";
  plan.devices_per_node = 16;
  plan.chip = "a3";
  PoolPlan pool;
  pool.role = Role::kPrefill;
  pool.nodes = 4;
  pool.parallel = {.tp = 16, .dp = 4, .pp = 1, .dcp = 1, .expert_parallel = true};
  pool.max_model_len = 133120;
  pool.graph_sizes = {1, 2, 4};
  pool.draft = {
      .method = "dspark", .checkpoint = "Inferact/Kimi-K3-DSpark", .tokens = 7, .eager = true, .accepted = 5.2};
  plan.pools.push_back(pool);
  pool.role = Role::kDecode;
  pool.draft = {};
  plan.pools.push_back(pool);
  plan.forecast.tpot_ms = {104.125, 67, 156};
  plan.notes = {"yes", "line \"two\""};
  return plan;
}

TEST(Plan, ComesBackFromItsText) {
  const Plan plan = eight_nodes();
  const std::string text = format_plan(plan);
  const auto back = parse_plan(text, "plan.yaml");
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(format_plan(*back), text);
  EXPECT_EQ(back->engine_version, "0.30");
  EXPECT_EQ(back->pool(Role::kPrefill)->draft.accepted, 5.2);
  EXPECT_EQ(back->notes, plan.notes);
  EXPECT_TRUE(back->disaggregated());
}

TEST(Plan, MistakesNameLineAndKey) {
  const std::string text = format_plan(eight_nodes());
  const auto broken = [&](const std::string& from, const std::string& to) {
    std::string copy = text;
    copy.replace(copy.find(from), from.size(), to);
    const auto result = parse_plan(copy, "p.yaml");
    EXPECT_FALSE(result.ok());
    return result.status().message();
  };
  EXPECT_EQ(broken("chip:", "chhip:"), "p.yaml:11: unknown key 'chhip'");
  EXPECT_EQ(broken("tp: 16", "tp: -3"), "p.yaml:18: 'tp': expected an integer from 1 to 1048576, found '-3'");
  EXPECT_NE(broken("tp: 16", "tp: 8").find("32 devices, but 4 nodes of 16"), std::string::npos);
  EXPECT_NE(broken("role: \"prefill\"", "role: \"mixed\"").find("expected one mixed pool"), std::string::npos);
  EXPECT_NE(broken("engine: \"vllm-ascend\"", "engine: \"vlm\"").find("not one of vllm-ascend, sglang"),
            std::string::npos);
}

TEST(Plan, HostileTextIsRefused) {
  EXPECT_FALSE(parse_plan(std::string(100000, '['), "p").ok());
  EXPECT_FALSE(parse_plan(std::string((1 << 20) + 1, ' '), "p").ok());
  EXPECT_FALSE(parse_plan("- 1\n- 2\n", "p").ok());
  EXPECT_FALSE(parse_plan("", "p").ok());
  EXPECT_FALSE(parse_plan("a: &x [*x, *x]\n", "p").ok());
  EXPECT_FALSE(parse_plan("perigee_plan: 1\npools: {a: b}\n", "p").ok());
}

}  // namespace
}  // namespace perigee::planner
