#include "planner/search.h"

#include <gtest/gtest.h>

namespace perigee::planner {
namespace {

SearchRequest eight_nodes() {
  SearchRequest request;
  request.nodes = 8;
  request.max_model_len = 133120;
  request.concurrency = 128;
  request.traffic.requests = 512;
  request.traffic.input_mean = 8192;
  request.traffic.output_mean = 1024;
  return request;
}

// ascend.md 5.2: among splits of eight A3 nodes 4+4 is the only one that fits.
TEST(Search, FindsTheEightNodeReference) {
  const auto result = search_layouts(built_in_catalogue(), eight_nodes());
  ASSERT_TRUE(result.ok()) << result.status().message();
  bool reference = false;
  for (const auto& candidate : result->ranked) {
    EXPECT_FALSE(candidate.reason.empty());
    EXPECT_TRUE(check_plan(candidate.plan).ok());
    if (!candidate.plan.disaggregated()) continue;
    EXPECT_EQ(candidate.plan.pool(Role::kPrefill)->nodes, 4) << layout_name(candidate.plan);
    EXPECT_EQ(candidate.plan.pool(Role::kDecode)->nodes, 4) << layout_name(candidate.plan);
    EXPECT_NE(candidate.reason.find("the only split of 8 nodes"), std::string::npos) << candidate.reason;
    reference |= layout_name(candidate.plan) == "4P+4D, DP4 TP16 / DP4 TP16";
  }
  EXPECT_TRUE(reference);
  int splits = 0;
  for (const auto& refused : result->refused) splits += refused.layout.find("P+") != std::string::npos ? 1 : 0;
  EXPECT_EQ(splits, 6);  // 1+7, 2+6, 3+5, 5+3, 6+2, 7+1
}

TEST(Search, TargetsComeFirstAndTheOrderIsStable) {
  auto request = eight_nodes();
  request.tpot_target_ms = 110;
  const auto a = search_layouts(built_in_catalogue(), request);
  const auto b = search_layouts(built_in_catalogue(), request);
  ASSERT_TRUE(a.ok() && b.ok());
  ASSERT_EQ(a->ranked.size(), b->ranked.size());
  bool missed = false;
  for (std::size_t i = 0; i < a->ranked.size(); ++i) {
    EXPECT_EQ(layout_name(a->ranked[i].plan), layout_name(b->ranked[i].plan));
    const bool meets = a->ranked[i].in_pace;
    EXPECT_FALSE(missed && meets) << "a layout within the target stands behind one that misses it";
    missed |= !meets;
  }
  EXPECT_NE(a->ranked[1].reason.find("of the best one's tokens a second"), std::string::npos);
}

TEST(Search, NothingIsGuessed) {
  auto request = eight_nodes();
  request.draft.method = "dspark";
  request.draft.tokens = 7;
  EXPECT_NE(search_layouts(built_in_catalogue(), request).status().message().find("never guessed"), std::string::npos);
  request = eight_nodes();
  request.concurrency = 0;
  EXPECT_FALSE(search_layouts(built_in_catalogue(), request).ok());
  request = eight_nodes();
  request.max_model_len = 0;
  EXPECT_FALSE(search_layouts(built_in_catalogue(), request).ok());
}

}  // namespace
}  // namespace perigee::planner
