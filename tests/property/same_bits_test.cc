// The numerics contract (design section 5): the bits of logits, caches and states do not depend on how a sequence is
// cut into steps, on what else is in the batch, or on the number of threads. Compared with memcmp against one
// whole-prompt step on one thread, for every golden configuration, both activation paths and every instruction-set path
// of this machine.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>

#include "checkpoint/memory_plan.h"
#include "model/model.h"
#include "model/sequence_storage.h"

namespace perigee {
namespace {

// More than one page and past every top_k of the configurations; the scalar truth is plain loops and slow.
constexpr std::int64_t kTokens = 100;
constexpr std::int64_t kScalarTokens = 66;

struct Outcome {
  std::vector<float> logits;  // of all positions
  std::vector<float> recurrent;
  std::vector<std::byte> pages;
};

std::vector<std::int32_t> make_tokens(std::int64_t count, std::int64_t vocab, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
  for (auto& token : tokens) token = static_cast<std::int32_t>(random() % static_cast<unsigned>(vocab));
  return tokens;
}

// A sequence that shares the batch and advances by odd pieces of its own.
struct Neighbour {
  SequenceStorage sequence;
  std::vector<std::int32_t> tokens;
};

// Runs `tokens` in pieces of the given sizes (the last one repeats) in the middle of a batch of `others` neighbours.
Outcome run(Model& model, std::span<const std::int32_t> tokens, const std::vector<std::int64_t>& pieces,
            std::size_t others) {
  const StateLayout& layout = model.state_layout();
  SequenceStorage sequence(layout);
  std::vector<std::unique_ptr<Neighbour>> neighbours;
  for (std::size_t i = 0; i < others; ++i) {
    neighbours.push_back(std::make_unique<Neighbour>(
        Neighbour{SequenceStorage(layout), make_tokens(2000, model.config().vocab, 100 + static_cast<unsigned>(i))}));
  }
  Outcome outcome;
  for (std::size_t step = 0; sequence.position() < static_cast<std::int64_t>(tokens.size()); ++step) {
    const std::int64_t size = std::min(pieces[std::min(step, pieces.size() - 1)],
                                       static_cast<std::int64_t>(tokens.size()) - sequence.position());
    const auto piece_of = [&](std::size_t i) { return 1 + (step * 7 + i * 3) % 9; };
    std::vector<Segment> segments;
    for (std::size_t i = 0; i < others; ++i) {
      Neighbour& next = *neighbours[i];
      segments.push_back(next.sequence.next(
          std::span(next.tokens).subspan(static_cast<std::size_t>(next.sequence.position()), piece_of(i)),
          WantLogits::kNone));
    }
    segments.insert(
        segments.begin() + static_cast<std::ptrdiff_t>(others / 2),
        sequence.next(tokens.subspan(static_cast<std::size_t>(sequence.position()), static_cast<std::size_t>(size)),
                      WantLogits::kAll));
    const StepOutput output = model.forward(segments);
    outcome.logits.insert(outcome.logits.end(), output.logits.begin(), output.logits.end());
    sequence.advance(size);
    for (std::size_t i = 0; i < others; ++i) {
      neighbours[i]->sequence.advance(static_cast<std::int64_t>(piece_of(i)));
    }
  }
  outcome.recurrent.assign(sequence.recurrent().begin(), sequence.recurrent().end());
  for (const std::byte* page : sequence.pages()) {
    outcome.pages.insert(outcome.pages.end(), page, page + layout.page_bytes);
  }
  return outcome;
}

template <typename T>
bool equal_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

void expect_same(const Outcome& got, const Outcome& want, const std::string& how) {
  EXPECT_TRUE(equal_bits(got.logits, want.logits)) << "logits differ: " << how;
  EXPECT_TRUE(equal_bits(got.recurrent, want.recurrent)) << "recurrent states differ: " << how;
  EXPECT_TRUE(equal_bits(got.pages, want.pages)) << "key pages differ: " << how;
}

class SameBits : public testing::TestWithParam<std::tuple<std::string, std::string>> {};

TEST_P(SameBits, AnyChunkingBatchAndThreads) {
  const auto& [config, isa] = GetParam();
  const auto kernels = select_kernels(isa);
  if (!kernels.ok()) {
    std::printf("path %s did not run: %s\n", isa.c_str(), kernels.status().message().c_str());
    GTEST_SKIP();
  }
  constexpr std::string_view kInt8 = "-int8";  // the same folder with int8 weights
  const bool int8 = config.ends_with(kInt8);
  auto checkpoint = synthesise_checkpoint(
      PERIGEE_SOURCE_DIR "/tests/data/goldens/" + config.substr(0, config.size() - (int8 ? kInt8.size() : 0)),
      {.weights = int8 ? WeightsAs::kInt8 : WeightsAs::kStored});
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  const bool scalar = isa == "scalar";
  const std::int64_t count = scalar ? kScalarTokens : kTokens;
  const auto tokens = make_tokens(count, (*checkpoint)->config().vocab, 1);
  const std::vector<std::int64_t> pieces =
      scalar ? std::vector<std::int64_t>{1, 64} : std::vector<std::int64_t>{1, 3, 4, 15, 16, 17, 63, 64, 65};
  for (const Precision precision : {Precision::kF32, Precision::kBf16}) {
    ThreadPool one(1);
    auto model = Model::create(**checkpoint, **kernels, one, precision);
    ASSERT_TRUE(model.ok()) << model.status().message();
    const Outcome whole = run(**model, tokens, {count}, 0);
    const std::string path = config + "/" + isa + (precision == Precision::kF32 ? "/f32" : "/bf16");
    for (const std::int64_t piece : pieces) {
      expect_same(run(**model, tokens, {piece}, 0), whole, path + " in pieces of " + std::to_string(piece));
    }
    if (!scalar) expect_same(run(**model, tokens, {7, 1, 30, 2, 23, 1}, 4), whole, path + " inside a mixed batch");
    for (const int threads : scalar ? std::vector<int>{2} : std::vector<int>{2, 5}) {
      ThreadPool pool(threads);
      auto threaded = Model::create(**checkpoint, **kernels, pool, precision);
      ASSERT_TRUE(threaded.ok());
      expect_same(run(**threaded, tokens, {count}, 0), whole, path + " with threads");
      expect_same(run(**threaded, tokens, {20, 1}, 3), whole, path + " decode in a batch with threads");
    }
  }
}

TEST(StateLayout, IsWhatInspectPrints) {
  for (const char* name : {"tiny-a", "tiny-k3", "tiny-b", "tiny-c"}) {
    auto checkpoint = synthesise_checkpoint(std::string(PERIGEE_SOURCE_DIR "/tests/data/goldens/") + name);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    const ModelConfig& config = (*checkpoint)->config();
    const StateLayout layout(config, KeyFormat::kBf16);
    const SequenceBytes bytes = sequence_bytes(config, kEngineCacheElements);
    EXPECT_EQ(layout.recurrent_floats * 4, bytes.state()) << name;
    EXPECT_EQ(layout.page_bytes, kPageTokens * bytes.per_token()) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Configs, SameBits,
                         testing::Combine(testing::Values("tiny-a", "tiny-a-bf16", "tiny-a-int4", "tiny-k3", "tiny-b",
                                                          "tiny-c", "tiny-eps", "tiny-a-int8"),
                                          testing::Values("scalar", "avx2", "avx512", "avx512bf16", "amx")),
                         [](const auto& parameters) {
                           std::string name = std::get<0>(parameters.param) + "_" + std::get<1>(parameters.param);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// A DSA layer below its top_k is the dense layer, bit for bit: tiny-k3 is tiny-a without the indexer.
TEST(SparseAttention, BelowTopKEqualsDense) {
  const auto kernels = default_kernels();
  ASSERT_TRUE(kernels.ok());
  ThreadPool pool(2);
  std::vector<Outcome> outcomes;
  for (const char* config : {"tiny-a", "tiny-k3"}) {
    auto checkpoint = synthesise_checkpoint(std::string(PERIGEE_SOURCE_DIR "/tests/data/goldens/") + config);
    ASSERT_TRUE(checkpoint.ok());
    auto model = Model::create(**checkpoint, **kernels, pool, Precision::kBf16);
    ASSERT_TRUE(model.ok());
    outcomes.push_back(run(**model, make_tokens(8, 512, 5), {8}, 0));
  }
  EXPECT_TRUE(equal_bits(outcomes[0].logits, outcomes[1].logits));
  EXPECT_TRUE(equal_bits(outcomes[0].recurrent, outcomes[1].recurrent));
}

// More tokens in a step than one piece of a product takes.
TEST(SameBitsOfLongPrompts, AnyThreads) {
  for (const char* config : {"tiny-a", "tiny-a-int4", "tiny-a-bf16"}) {
    auto checkpoint = synthesise_checkpoint(std::string(PERIGEE_SOURCE_DIR "/tests/data/goldens/") + config);
    ASSERT_TRUE(checkpoint.ok());
    const auto tokens = make_tokens(450, (*checkpoint)->config().vocab, 9);
    for (const char* isa : {"avx2", "avx512", "avx512bf16", "amx"}) {
      const auto kernels = select_kernels(isa);
      if (!kernels.ok()) continue;
      const auto run_with = [&](int threads, std::int64_t chunk) {
        ThreadPool pool(threads);
        auto model = Model::create(**checkpoint, **kernels, pool, Precision::kBf16);
        EXPECT_TRUE(model.ok());
        return run(**model, tokens, {chunk}, 0);
      };
      const Outcome in_chunks = run_with(1, 60);
      for (const int threads : {1, 3, 16}) {
        expect_same(run_with(threads, 450), in_chunks, fmt::format("{}, {}, {} threads", config, isa, threads));
      }
    }
  }
}

// Logits of one decode step of three sequences whose caches hold generated rows: lists of several attention segments,
// which go on from one wave to the next, and more scores than one piece.
std::vector<float> decode_at_depths(const Checkpoint& checkpoint, const Kernels& kernels, int threads) {
  ThreadPool pool(threads);
  auto model = Model::create(checkpoint, kernels, pool, Precision::kBf16);
  EXPECT_TRUE(model.ok());
  std::vector<std::unique_ptr<SequenceStorage>> sequences;
  std::vector<Segment> segments;
  const std::vector<std::int32_t> tokens = {5, 6, 7};
  for (const std::int64_t depth : {13'000, 300, 30'000}) {
    SequenceStorage& sequence = *sequences.emplace_back(std::make_unique<SequenceStorage>((*model)->state_layout()));
    sequence.generate(depth);
    segments.push_back(sequence.next(std::span(tokens).subspan(segments.size(), 1), WantLogits::kLast));
  }
  const std::span<const float> logits = (*model)->forward(segments).logits;
  return {logits.begin(), logits.end()};
}

TEST(SameBitsAtDepth, AnyThreads) {
  for (const char* config : {"tiny-a", "tiny-k3"}) {  // sparse and dense
    auto checkpoint = synthesise_checkpoint(std::string(PERIGEE_SOURCE_DIR "/tests/data/goldens/") + config);
    ASSERT_TRUE(checkpoint.ok());
    for (const char* isa : {"avx2", "avx512", "avx512bf16", "amx"}) {
      const auto kernels = select_kernels(isa);
      if (!kernels.ok()) continue;
      const std::vector<float> alone = decode_at_depths(**checkpoint, **kernels, 1);  // a sequence a task
      for (const int threads : {2, 5, 16}) {
        EXPECT_TRUE(equal_bits(decode_at_depths(**checkpoint, **kernels, threads), alone))
            << config << ", " << isa << ", " << threads << " threads";
      }
    }
  }
}

}  // namespace
}  // namespace perigee
