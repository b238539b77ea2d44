// The engine over real (tiny) models: a reply is the same tokens and log-probabilities whatever the cache, the batch,
// the preemptions and the tiers did on the way.
#include <thread>

#include "checkpoint/test_support.h"
#include "engine_bits.h"

namespace perigee {
namespace {

TEST_P(EngineBits, RamHitBranchAndRepeat) {
  const std::vector<TokenId> prompt = make_prompt(700, 1);
  const Reply want = solo(ask(prompt));
  const auto engine = open(options_);
  EXPECT_EQ(one(*engine, ask(prompt)), want);
  CacheReport report;
  EXPECT_EQ(one(*engine, ask(prompt), &report), want);
  EXPECT_EQ(report.restored_tokens, 700);
  EXPECT_EQ(report.reason, "full");

  // The next turn: the reply comes back with more text behind it.
  std::vector<TokenId> turn = prompt;
  turn.insert(turn.end(), want.tokens.begin(), want.tokens.end());
  const std::vector<TokenId> more = make_prompt(90, 2);
  turn.insert(turn.end(), more.begin(), more.end());
  EXPECT_EQ(one(*engine, ask(turn), &report), solo(ask(turn)));
  EXPECT_EQ(report.restored_tokens, 700 + static_cast<std::int64_t>(want.tokens.size()) - 1);

  // A branch that leaves the path in the middle.
  std::vector<TokenId> branch(prompt.begin(), prompt.begin() + 650);
  branch.insert(branch.end(), more.begin(), more.end());
  EXPECT_EQ(one(*engine, ask(branch), &report), solo(ask(branch)));
  EXPECT_EQ(report.common_tokens, 650);
}

TEST_P(EngineBits, BatchOfOthersAndSmallSteps) {
  EngineOptions options = options_;
  options.scheduler.max_step_tokens = 37;
  const auto engine = open(options);
  const auto prompt_of = [](std::size_t i) { return make_prompt(50 + 61 * i, 10 + static_cast<unsigned>(i)); };
  Collector collector;
  for (std::size_t i = 0; i < 8; ++i) ASSERT_TRUE(engine->submit(ask(prompt_of(i)), collector.sink(i)).ok());
  const std::vector<Reply> replies = collector.wait();
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(replies[i], solo(ask(prompt_of(i)))) << i;
}

TEST_P(EngineBits, DiskAndRestart) {
  const testing_support::TemporaryFolder folder;
  EngineOptions options = options_;
  options.cache.disk.directory = folder.path();
  options.cache.disk.budget_bytes = std::int64_t{1} << 30;
  options.cache.disk.write_bytes_per_day = 0;
  const std::vector<TokenId> prompt = make_prompt(600, 3);
  const Reply want = solo(ask(prompt));
  EXPECT_EQ(one(*open(options), ask(prompt)), want);
  CacheReport report;
  EXPECT_EQ(one(*open(options), ask(prompt), &report), want);
  EXPECT_EQ(report.restored_tokens, 600) << report.reason;
}

TEST_P(EngineBits, PreemptedAndEvicted) {
  // Requests that together need a quarter more than the pages of six branches push each other (and the cache) out while
  // they run.
  constexpr std::size_t kCount = 6;
  EngineOptions options = options_;
  const StateLayout layout(checkpoint_->config(), KeyFormat::kBf16);
  options.max_branches = kCount;
  options.memory_bytes = least_memory(options);
  const auto plan = plan_engine_memory(*checkpoint_, layout, options);
  ASSERT_TRUE(plan.ok());
  const auto share = static_cast<std::size_t>(plan->pages / layout.page_bytes * kPageTokens) / kCount;
  const auto request_of = [share](std::size_t i) {
    return ask(make_prompt(share * 3 / 4 + 20 * i, 20 + static_cast<unsigned>(i)),
               static_cast<std::int64_t>(share / 2));
  };
  const auto engine = open(options);
  Collector collector;
  for (std::size_t i = 0; i < kCount; ++i) {
    auto handle = engine->submit(request_of(i), collector.sink(i));
    ASSERT_TRUE(handle.ok()) << handle.status().message();
  }
  const std::vector<Reply> replies = collector.wait();
  EXPECT_GT(engine->stats().preemptions, 0) << share;
  EXPECT_EQ(replies[kCount - 1], solo(request_of(kCount - 1))) << share;
}

TEST_P(EngineBits, CancelledPrefillResumes) {
  EngineOptions options = options_;
  options.scheduler.max_step_tokens = 64;
  const auto engine = open(options);
  const std::vector<TokenId> prompt = make_prompt(3000, 4);
  Collector collector;
  auto handle = engine->submit(ask(prompt, 4), collector.sink(0));
  ASSERT_TRUE(handle.ok());
  while (engine->stats().prompt_tokens < 900) std::this_thread::yield();
  engine->cancel(*handle);
  EXPECT_EQ(collector.wait().front().finish, FinishReason::kCancelled);
  CacheReport report;
  EXPECT_EQ(one(*engine, ask(prompt, 4), &report), solo(ask(prompt, 4)));
  EXPECT_GE(report.restored_tokens, 900);
}

TEST_P(EngineBits, SeveralBranchesShareTheirPrompt) {
  const auto engine = open(options_);
  Collector collector;
  GenerationRequest request = ask(make_prompt(300, 5), 20);
  request.n = 3;
  ASSERT_TRUE(engine->submit(std::move(request), collector.sink(0, 3)).ok());
  const std::vector<Reply> replies = collector.wait();
  EXPECT_EQ(replies[0], solo(ask(make_prompt(300, 5), 20)));
  EXPECT_NE(replies[0].tokens, replies[1].tokens);
  EXPECT_NE(replies[1].tokens, replies[2].tokens);
}

TEST_P(EngineBits, AuditFindsNothing) {
  EngineOptions options = options_;
  options.cache_audit = 1;
  const auto engine = open(options);
  const std::vector<TokenId> prompt = make_prompt(520, 6);
  const Reply want = solo(ask(prompt));
  EXPECT_EQ(one(*engine, ask(prompt)), want);
  EXPECT_EQ(one(*engine, ask(prompt)), want);
  engine->drain(10);
  const EngineStats stats = engine->stats();
  EXPECT_EQ(stats.extra.count("cache_audit_failures"), 0U);
}

TEST_P(EngineBits, RefusesWhatCanNeverFit) {
  const auto engine = open(options_);
  const auto ignore = [](TokenEvent&&) { return true; };
  const auto refused = engine->submit(ask(make_prompt(10, 1), 1 << 30), ignore);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("context"), std::string::npos);
  EXPECT_FALSE(engine->submit(ask({}), ignore).ok());
  EXPECT_FALSE(engine->submit(ask({-1}), ignore).ok());
}

INSTANTIATE_TEST_SUITE_P(Configs, EngineBits, engine_bits_configs(), engine_bits_name);

}  // namespace
}  // namespace perigee
