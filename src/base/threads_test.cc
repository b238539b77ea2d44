#include "base/threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace perigee {
namespace {

TEST(ThreadPool, RunsEveryTaskOnceOverManyLoops) {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    ASSERT_EQ(pool.size(), threads);
    for (std::int64_t loop = 0; loop < 3000; ++loop) {
      const std::int64_t count = loop % 17;
      std::vector<std::atomic<int>> calls(17);
      pool.run(count, [&](std::int64_t index, int thread) {
        ASSERT_GE(thread, 0);
        ASSERT_LT(thread, threads);
        calls[static_cast<std::size_t>(index)].fetch_add(1);
      });
      for (std::int64_t i = 0; i < 17; ++i) ASSERT_EQ(calls[static_cast<std::size_t>(i)].load(), i < count ? 1 : 0);
    }
  }
}

TEST(ThreadPool, WakesSleepersAndSeesTheirWrites) {
  ThreadPool pool(3);
  std::vector<int> values(64);
  for (int loop = 0; loop < 20; ++loop) {
    std::this_thread::sleep_for(std::chrono::microseconds(300));
    pool.run(64, [&](std::int64_t index, int) { values[static_cast<std::size_t>(index)] += 1; });
  }
  for (const int value : values) EXPECT_EQ(value, 20);
}

TEST(ThreadPool, DefaultSizeIsAtLeastOne) {
  ThreadPool pool;
  EXPECT_GE(pool.size(), 1);
}

}  // namespace
}  // namespace perigee
