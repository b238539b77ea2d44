#include "base/threads.h"

#include <hwloc.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace perigee {
namespace {

// Long enough to bridge the serial parts between two loops of a step, short enough to leave the CPU to others.
constexpr auto kSpin = std::chrono::microseconds(50);

// Small machines are shared with other programs, and the scheduler knows better than we do which core is free.
constexpr std::size_t kCoresWorthBinding = 8;

void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

// The first processing unit of each physical core that this process may use, in hwloc's order (cores that share caches
// are neighbours). Empty when the topology cannot be read.
std::vector<int> usable_cores() {
  std::vector<int> cores;
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) return cores;
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (hwloc_topology_load(topology) == 0 && ::sched_getaffinity(0, sizeof(allowed), &allowed) == 0) {
    hwloc_obj_t core = nullptr;
    while ((core = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_CORE, core)) != nullptr) {
      int cpu = hwloc_bitmap_first(core->cpuset);
      while (cpu >= 0 && (cpu >= CPU_SETSIZE || !CPU_ISSET(cpu, &allowed))) cpu = hwloc_bitmap_next(core->cpuset, cpu);
      if (cpu >= 0) cores.push_back(cpu);
    }
  }
  hwloc_topology_destroy(topology);
  return cores;
}

void bind_to(std::thread& thread, int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  ::pthread_setaffinity_np(thread.native_handle(), sizeof(set), &set);
}

// Spins for a while, then sleeps until `word` differs from `seen`. Returns the new value.
template <typename T>
T wait_for_change(const std::atomic<T>& word, T seen) {
  const auto deadline = std::chrono::steady_clock::now() + kSpin;
  while (true) {
    for (int i = 0; i < 64; ++i) {
      const T value = word.load(std::memory_order_acquire);
      if (value != seen) return value;
      pause_cpu();
    }
    if (std::chrono::steady_clock::now() >= deadline) break;
  }
  word.wait(seen, std::memory_order_acquire);
  return word.load(std::memory_order_acquire);
}

}  // namespace

struct ThreadPool::Impl {
  // The open loop: its number in the upper half, its tasks not yet taken in the lower. One word, so that a late thread
  // can never take a task of one loop with the pointers of another: while a task is taken and not done, run() stays.
  alignas(64) std::atomic<std::uint64_t> ticket{0};
  alignas(64) std::atomic<std::uint64_t> done{0};  // loop number, then tasks finished
  Invoke invoke = nullptr;
  void* context = nullptr;
  std::uint32_t count = 0;
  std::atomic<bool> stop{false};
  std::vector<std::thread> workers;

  // Takes tasks of whatever loop is open until none is left; returns the last ticket seen.
  std::uint64_t take_tasks(int thread) {
    std::uint64_t seen = ticket.load(std::memory_order_acquire);
    while ((seen & 0xFFFFFFFFU) != 0) {
      if (!ticket.compare_exchange_weak(seen, seen - 1, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
      const std::uint32_t all = count;
      invoke(context, all - static_cast<std::int64_t>(seen & 0xFFFFFFFFU), thread);
      // From here on the loop may be over and its fields those of the next one.
      const std::uint64_t finished = done.fetch_add(1, std::memory_order_acq_rel) + 1;
      if ((finished & 0xFFFFFFFFU) == all) done.notify_one();
      seen = ticket.load(std::memory_order_acquire);
    }
    return seen;
  }

  void work(int thread) {
    std::uint64_t seen = 0;
    while (!stop.load(std::memory_order_acquire)) {
      seen = wait_for_change(ticket, seen);
      seen = take_tasks(thread);
    }
  }
};

ThreadPool::ThreadPool(int threads) : impl_(std::make_unique<Impl>()) {
  const std::vector<int> cores = usable_cores();
  if (threads <= 0) threads = std::max<int>(1, static_cast<int>(cores.size()));
  const bool bind = cores.size() >= kCoresWorthBinding && threads <= static_cast<int>(cores.size());
  for (int i = 1; i < threads; ++i) {
    impl_->workers.emplace_back([this, i] { impl_->work(i); });
    if (bind) bind_to(impl_->workers.back(), cores[static_cast<std::size_t>(i)]);
  }
}

ThreadPool::~ThreadPool() {
  impl_->stop.store(true, std::memory_order_release);
  // A new loop without tasks wakes the sleepers.
  impl_->ticket.fetch_add(std::uint64_t{1} << 32, std::memory_order_acq_rel);
  impl_->ticket.notify_all();
  for (std::thread& worker : impl_->workers) worker.join();
}

int ThreadPool::size() const {
  return static_cast<int>(impl_->workers.size()) + 1;
}

void ThreadPool::run_erased(std::int64_t count, Invoke invoke, void* context) {
  if (count <= 0) return;
  if (impl_->workers.empty() || count == 1) {
    for (std::int64_t i = 0; i < count; ++i) invoke(context, i, 0);
    return;
  }
  const std::uint64_t loop = (impl_->ticket.load(std::memory_order_relaxed) >> 32) + 1;
  impl_->invoke = invoke;
  impl_->context = context;
  impl_->count = static_cast<std::uint32_t>(count);
  impl_->done.store(loop << 32, std::memory_order_relaxed);
  impl_->ticket.store(loop << 32 | static_cast<std::uint64_t>(count), std::memory_order_release);
  impl_->ticket.notify_all();
  impl_->take_tasks(0);
  const std::uint64_t all = loop << 32 | static_cast<std::uint64_t>(count);
  std::uint64_t finished = impl_->done.load(std::memory_order_acquire);
  while (finished != all) finished = wait_for_change(impl_->done, finished);
}

}  // namespace perigee
