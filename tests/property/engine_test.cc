// The engine over real (tiny) models: a reply is the same tokens and log-probabilities whatever the cache, the batch,
// the preemptions and the tiers did on the way.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <random>
#include <thread>

#include "engine/open_engine.h"

namespace perigee {
namespace {

namespace fs = std::filesystem;

struct Reply {
  std::vector<TokenId> tokens;
  std::vector<float> logprobs;
  FinishReason finish = FinishReason::kNone;
  Status error;
  friend bool operator==(const Reply& a, const Reply& b) {
    return a.tokens == b.tokens && a.finish == b.finish && a.logprobs.size() == b.logprobs.size() &&
           std::memcmp(a.logprobs.data(), b.logprobs.data(), a.logprobs.size() * sizeof(float)) == 0;
  }
};

// Collects the events of any number of requests, one slot a branch: slot + branch.
class Collector {
 public:
  EventSink sink(std::size_t slot, std::size_t branches = 1) {
    const std::lock_guard lock(mutex_);
    replies_.resize(std::max(replies_.size(), slot + branches));
    open_ += branches;
    return [this, slot](TokenEvent&& event) {
      const std::lock_guard inner(mutex_);
      Reply& reply = replies_[slot + static_cast<std::size_t>(event.branch)];
      if (event.id >= 0) {
        reply.tokens.push_back(event.id);
        reply.logprobs.push_back(event.logprob);
      }
      if (event.finish != FinishReason::kNone) {
        reply.finish = event.finish;
        reply.error = event.error;
        --open_;
        done_.notify_all();
      }
      return true;
    };
  }
  std::vector<Reply> wait() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(done_.wait_for(lock, std::chrono::seconds(300), [this] { return open_ == 0; }));
    return replies_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable done_;
  std::vector<Reply> replies_;
  std::size_t open_ = 0;
};

std::vector<TokenId> make_prompt(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) token = static_cast<TokenId>(random() % 250);
  return tokens;
}

GenerationRequest ask(std::vector<TokenId> prompt, std::int64_t max_tokens = 12) {
  GenerationRequest request;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.sampling.seed = 7;
  request.sampling.top_logprobs = 0;
  return request;
}

class EngineBits : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto checkpoint = synthesise_checkpoint(PERIGEE_SOURCE_DIR "/tests/data/goldens/" + GetParam());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    checkpoint_ = std::move(*checkpoint);
    options_.threads = 2;
    options_.memory_bytes = std::int64_t{512} << 20;
  }

  std::unique_ptr<Engine> open(const EngineOptions& options) {
    auto engine = open_engine(*checkpoint_, options);
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    return std::move(*engine);
  }

  static Reply one(Engine& engine, GenerationRequest request, CacheReport* report = nullptr) {
    Collector collector;
    auto handle = engine.submit(std::move(request), collector.sink(0));
    EXPECT_TRUE(handle.ok()) << handle.status().message();
    Reply reply = collector.wait().front();
    if (report != nullptr) *report = engine.cache_report(*handle);
    return reply;
  }

  // Alone, without any cache: what every other way must equal.
  Reply solo(GenerationRequest request) {
    EngineOptions options = options_;
    options.prefix_cache = false;
    options.threads = 1;
    return one(*open(options), std::move(request));
  }

  std::unique_ptr<Checkpoint> checkpoint_;
  EngineOptions options_;
};

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
  const fs::path directory = fs::temp_directory_path() / ("perigee-engine-test-" + std::to_string(::getpid()));
  fs::remove_all(directory);
  EngineOptions options = options_;
  options.cache.disk.directory = directory.string();
  options.cache.disk.budget_bytes = std::int64_t{1} << 30;
  options.cache.disk.write_bytes_per_day = 0;
  const std::vector<TokenId> prompt = make_prompt(600, 3);
  const Reply want = solo(ask(prompt));
  EXPECT_EQ(one(*open(options), ask(prompt)), want);
  CacheReport report;
  EXPECT_EQ(one(*open(options), ask(prompt), &report), want);
  EXPECT_EQ(report.restored_tokens, 600) << report.reason;
  fs::remove_all(directory);
}

TEST_P(EngineBits, PreemptedAndEvicted) {
  if (GetParam() == "tiny-k3") GTEST_SKIP() << "its pages without index keys hold six such requests";
  // The smallest memory whose plan runs six branches: its pages cannot hold six of these requests at their ends, so
  // they push each other (and the cache) out while they run.
  EngineOptions options = options_;
  const StateLayout layout(checkpoint_->config(), KeyFormat::kBf16);
  options.max_branches = 6;
  options.context_tokens = 2200;
  std::int64_t low = 0;
  std::int64_t high = options.memory_bytes;
  while (high - low > 4096) {
    options.memory_bytes = (low + high) / 2;
    const auto plan = plan_engine_memory(*checkpoint_, layout, options);
    (plan.ok() && plan->branches >= 6 ? high : low) = options.memory_bytes;
  }
  options.memory_bytes = high;
  const auto engine = open(options);
  const auto request_of = [](std::size_t i) {
    return ask(make_prompt(180 + 20 * i, 20 + static_cast<unsigned>(i)), 1800);
  };
  Collector collector;
  for (std::size_t i = 0; i < 6; ++i) {
    auto handle = engine->submit(request_of(i), collector.sink(i));
    ASSERT_TRUE(handle.ok()) << handle.status().message();
  }
  const std::vector<Reply> replies = collector.wait();
  EXPECT_GT(engine->stats().preemptions, 0);
  EXPECT_EQ(replies[5], solo(request_of(5)));
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

INSTANTIATE_TEST_SUITE_P(Configs, EngineBits, testing::Values("tiny-a", "tiny-k3", "tiny-c"),
                         [](const auto& parameters) {
                           std::string name = parameters.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace perigee
