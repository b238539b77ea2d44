// Requests to an engine over real (tiny) models, and their replies as bits. Shared by the engine's property tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "engine/open_engine.h"

namespace perigee {

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

// Sanitizers need minutes for what takes a second.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr std::chrono::seconds kWaitLimit(3600);
#else
constexpr std::chrono::seconds kWaitLimit(300);
#endif

// Collects the events of any number of requests, one slot a branch: slot + branch. Sinks own what they write to: a test
// that gives up waiting leaves requests behind.
class Collector {
 public:
  EventSink sink(std::size_t slot, std::size_t branches = 1) {
    const std::lock_guard lock(state_->mutex);
    state_->replies.resize(std::max(state_->replies.size(), slot + branches));
    state_->open += branches;
    return [state = state_, slot](TokenEvent&& event) {
      const std::lock_guard inner(state->mutex);
      Reply& reply = state->replies[slot + static_cast<std::size_t>(event.branch)];
      if (event.id >= 0) {
        reply.tokens.push_back(event.id);
        reply.logprobs.push_back(event.logprob);
      }
      if (event.finish != FinishReason::kNone) {
        reply.finish = event.finish;
        reply.error = event.error;
        --state->open;
        state->done.notify_all();
      }
      return true;
    };
  }
  std::vector<Reply> wait() {
    std::unique_lock lock(state_->mutex);
    EXPECT_TRUE(state_->done.wait_for(lock, kWaitLimit, [this] { return state_->open == 0; }));
    return state_->replies;
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable done;
    std::vector<Reply> replies;
    std::size_t open = 0;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

inline std::vector<TokenId> make_prompt(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) token = static_cast<TokenId>(random() % 250);
  return tokens;
}

inline GenerationRequest ask(std::vector<TokenId> prompt, std::int64_t max_tokens = 12) {
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

  // The least memory whose plan runs options.max_branches: pages and snapshots have hardly any room.
  std::int64_t least_memory(EngineOptions options) const {
    const StateLayout layout(checkpoint_->config(), KeyFormat::kBf16);
    std::int64_t low = 0;
    std::int64_t high = options.memory_bytes;
    while (high - low > 4096) {
      options.memory_bytes = (low + high) / 2;
      const auto plan = plan_engine_memory(*checkpoint_, layout, options);
      (plan.ok() && plan->branches >= options.max_branches ? high : low) = options.memory_bytes;
    }
    return high;
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

// Parameter: a golden configuration. One each of K3.1, K3 and Kimi-Linear.
inline auto engine_bits_configs() {
  return testing::Values("tiny-a", "tiny-k3", "tiny-c");
}
inline std::string engine_bits_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

}  // namespace perigee
