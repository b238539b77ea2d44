#include "base/threads.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace perigee {
namespace {

int usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

}  // namespace

struct ThreadPool::Impl {
  std::vector<std::thread> workers;
  std::mutex mutex;
  std::condition_variable wake;
  std::condition_variable done;
  const std::function<void(std::int64_t, int)>* task = nullptr;
  std::int64_t count = 0;
  std::atomic<std::int64_t> next{0};
  std::uint64_t generation = 0;
  int busy = 0;
  bool stop = false;

  void take_tasks(int thread) {
    while (true) {
      const std::int64_t index = next.fetch_add(1, std::memory_order_relaxed);
      if (index >= count) return;
      (*task)(index, thread);
    }
  }

  void work(int thread) {
    std::uint64_t seen = 0;
    std::unique_lock lock(mutex);
    while (true) {
      wake.wait(lock, [&] { return stop || generation != seen; });
      if (stop) return;
      seen = generation;
      lock.unlock();
      take_tasks(thread);
      lock.lock();
      if (--busy == 0) done.notify_one();
    }
  }
};

ThreadPool::ThreadPool(int threads) : impl_(std::make_unique<Impl>()) {
  if (threads <= 0) threads = usable_cpus();
  for (int i = 1; i < threads; ++i) impl_->workers.emplace_back([this, i] { impl_->work(i); });
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->stop = true;
  }
  impl_->wake.notify_all();
  for (std::thread& worker : impl_->workers) worker.join();
}

int ThreadPool::size() const {
  return static_cast<int>(impl_->workers.size()) + 1;
}

void ThreadPool::run(std::int64_t count, const std::function<void(std::int64_t, int)>& task) {
  if (count <= 0) return;
  if (impl_->workers.empty() || count == 1) {
    for (std::int64_t i = 0; i < count; ++i) task(i, 0);
    return;
  }
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->task = &task;
    impl_->count = count;
    impl_->next.store(0, std::memory_order_relaxed);
    impl_->busy = static_cast<int>(impl_->workers.size());
    ++impl_->generation;
  }
  impl_->wake.notify_all();
  impl_->take_tasks(0);
  std::unique_lock lock(impl_->mutex);
  impl_->done.wait(lock, [&] { return impl_->busy == 0; });
}

}  // namespace perigee
