// The traps of spec cache.md 1.2 that need a model: each is an engine seen in the wild that served other bits on a hit.
// The traps of states sharded over ranks, context parallelism and speculative drafts have no counterpart here yet: one
// process holds whole states, and nothing drafts.
#include "checkpoint/test_support.h"
#include "engine_bits.h"

namespace perigee {
namespace {

class CacheTraps : public EngineBits {};

std::vector<TokenId> joined(std::vector<TokenId> front, const std::vector<TokenId>& back) {
  front.insert(front.end(), back.begin(), back.end());
  return front;
}

// "Outputs change on a warm hit (different kernel path, M = 1 tail)": what is left to compute after a hit has every
// number of rows around the tile sizes.
TEST_P(CacheTraps, AWarmHitOfAnyTailLengthEqualsTheColdRun) {
  const auto engine = open(options_);
  const std::vector<TokenId> prompt = make_prompt(300, 31);
  one(*engine, ask(prompt, 1));
  for (const std::size_t tail : {1, 2, 3, 4, 5, 15, 16, 17, 63, 64, 65}) {
    const std::vector<TokenId> turn = joined(prompt, make_prompt(tail, 32));
    CacheReport report;
    EXPECT_EQ(one(*engine, ask(turn, 4), &report), solo(ask(turn, 4))) << tail;
    EXPECT_GE(report.restored_tokens, 300) << tail;
  }
}

// "State filed one token / one chunk off (N against N - 1)": lengths at the edges of pages and blocks.
TEST_P(CacheTraps, AStateStandsExactlyBehindItsTokens) {
  const auto engine = open(options_);
  for (const std::size_t length : {64, 65, 255, 256, 257, 513}) {
    const std::vector<TokenId> prompt = make_prompt(length, 40 + static_cast<unsigned>(length));
    const Reply first = one(*engine, ask(prompt, 5));
    EXPECT_EQ(first, solo(ask(prompt, 5))) << length;
    // The end of the prompt, the end of the answer, and one token behind each.
    for (const auto& next : {prompt, joined(prompt, make_prompt(1, 50)), joined(prompt, first.tokens),
                             joined(joined(prompt, first.tokens), make_prompt(1, 51))}) {
      EXPECT_EQ(one(*engine, ask(next, 3)), solo(ask(next, 3))) << length << " + " << next.size() - length;
    }
  }
}

// "A mixed prefill and decode batch overwrites the slot being snapshotted": states are taken every 256 tokens of a
// prompt while others decode in the same steps; later requests resume from those states.
TEST_P(CacheTraps, AStateTakenInAMixedStepIsThePromptsOwn) {
  EngineOptions options = options_;
  options.cache.snapshot_interval = 256;
  options.scheduler.max_step_tokens = 48;
  const auto engine = open(options);
  Collector collector;
  for (std::size_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(engine->submit(ask(make_prompt(20 + i, 60 + static_cast<unsigned>(i)), 120), collector.sink(i)).ok());
  }
  const std::vector<TokenId> prompt = make_prompt(1100, 63);
  ASSERT_TRUE(engine->submit(ask(prompt, 4), collector.sink(3)).ok());
  const std::vector<Reply> replies = collector.wait();
  EXPECT_EQ(replies[0], solo(ask(make_prompt(20, 60), 120)));
  EXPECT_EQ(replies[3], solo(ask(prompt, 4)));
  std::int64_t restored = 0;
  for (const std::size_t cut : {300, 600, 1050}) {
    const std::vector<TokenId> branch = joined(
        std::vector<TokenId>(prompt.begin(), prompt.begin() + static_cast<std::ptrdiff_t>(cut)), make_prompt(30, 64));
    CacheReport report;
    EXPECT_EQ(one(*engine, ask(branch, 4), &report), solo(ask(branch, 4))) << cut;
    restored += report.restored_tokens;
  }
  EXPECT_GT(restored, 0) << "no branch resumed from a state in the middle";
}

// "Connector races: a state is stored that was never valid, decode-phase states are dropped": with hardly any RAM every
// object goes to disk and back while requests that share it run.
TEST_P(CacheTraps, ObjectsOnTheirWayToDiskAreWholeWhenTheyAreRead) {
  const testing_support::TemporaryFolder folder;  // outlives the engine, which writes until its end
  EngineOptions options = options_;
  options.max_branches = 4;
  options.context_tokens = 1024;
  options.cache.disk.directory = folder.path();
  options.cache.disk.budget_bytes = std::int64_t{1} << 30;
  options.cache.disk.write_bytes_per_day = 0;
  options.memory_bytes = least_memory(options);
  const auto engine = open(options);
  const std::vector<TokenId> common = make_prompt(500, 70);
  const auto prompt_of = [&](std::size_t i) {
    return joined(
        std::vector<TokenId>(common.begin(), common.begin() + static_cast<std::ptrdiff_t>(100 + 80 * (i % 6))),
        make_prompt(10 + i % 3, 71 + static_cast<unsigned>(i % 6)));
  };
  std::vector<Reply> want;
  for (std::size_t i = 0; i < 6; ++i) want.push_back(solo(ask(prompt_of(i), 6)));
  for (int round = 0; round < 3; ++round) {
    Collector collector;
    for (std::size_t i = 0; i < 12; ++i) {
      ASSERT_TRUE(engine->submit(ask(prompt_of(i % 6), 6), collector.sink(i)).ok());
    }
    const std::vector<Reply> replies = collector.wait();
    for (std::size_t i = 0; i < 12; ++i) EXPECT_EQ(replies[i], want[i % 6]) << round << ' ' << i;
  }
  engine->drain(10);
}

INSTANTIATE_TEST_SUITE_P(Configs, CacheTraps, engine_bits_configs(), engine_bits_name);

}  // namespace
}  // namespace perigee
