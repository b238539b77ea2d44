// A warm step allocates nothing: not the model, not the operators, not the thread pool. Counted by operator new itself.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>

#include "model/model.h"
#include "model/sequence_storage.h"

namespace {

std::atomic<bool> counting{false};
std::atomic<std::int64_t> allocations{0};

void* counted(std::size_t bytes, std::size_t alignment) {
  if (counting.load(std::memory_order_relaxed)) allocations.fetch_add(1, std::memory_order_relaxed);
  void* memory = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (memory == nullptr) std::abort();
  return memory;
}

}  // namespace

void* operator new(std::size_t bytes) {
  return counted(bytes, alignof(std::max_align_t));
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<std::size_t>(alignment));
}
#if defined(__GNUC__) && !defined(__clang__)
// With sanitizers these are not inlined as a pair, and the compiler takes them for mismatched ones.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
#endif

void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace perigee {
namespace {

class NoAllocation : public testing::TestWithParam<std::string> {};

TEST_P(NoAllocation, WarmSteps) {
  auto checkpoint = synthesise_checkpoint(PERIGEE_SOURCE_DIR "/tests/data/goldens/" + GetParam());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  const auto kernels = select_kernels("");
  ASSERT_TRUE(kernels.ok()) << kernels.status().message();
  ThreadPool pool(2);
  auto model = Model::create(**checkpoint, **kernels, pool, Precision::kBf16);
  ASSERT_TRUE(model.ok()) << model.status().message();

  const std::vector<std::int32_t> prompt(130, 5);  // past every top_k of the configurations
  std::vector<std::unique_ptr<SequenceStorage>> sequences;
  for (int i = 0; i < 3; ++i) {
    SequenceStorage& sequence = *sequences.emplace_back(std::make_unique<SequenceStorage>((*model)->state_layout()));
    const Segment segment = sequence.next(prompt, WantLogits::kLast);
    counting = true;
    (*model)->forward({&segment, 1});
    counting = false;
    sequence.advance(static_cast<std::int64_t>(prompt.size()));
  }
  EXPECT_GT(allocations.exchange(0), 0) << "the first step must allocate, or nothing is counted";
  // Different tokens choose different experts in every step.
  for (const std::size_t batch : {std::size_t{1}, std::size_t{3}}) {
    for (std::int32_t step = 0; step < 24; ++step) {
      std::vector<std::int32_t> tokens;
      for (std::size_t i = 0; i < batch; ++i) tokens.push_back(7 * step + 31 * static_cast<std::int32_t>(i) + 1);
      std::vector<Segment> segments;
      for (std::size_t i = 0; i < batch; ++i) {
        segments.push_back(sequences[i]->next(std::span(tokens).subspan(i, 1), WantLogits::kLast));
      }
      // The first steps fill lists and each thread's scratch memory.
      counting = step >= 12;
      (*model)->forward(segments);
      counting = false;
      for (std::size_t i = 0; i < batch; ++i) sequences[i]->advance(1);
    }
  }
  EXPECT_EQ(allocations.load(), 0);
}

INSTANTIATE_TEST_SUITE_P(Configs, NoAllocation, testing::Values("tiny-a", "tiny-a-int4", "tiny-k3", "tiny-c"),
                         [](const auto& parameter) {
                           std::string name = parameter.param;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

}  // namespace
}  // namespace perigee
