// A fixed pool of threads that runs one parallel loop at a time.
//
// Which thread takes which task is not defined, so a task must compute its whole output alone and in a fixed
// order; then results do not depend on the number of threads (design section 5).
//
// Between loops the threads spin for some tens of microseconds and then sleep. A loop ends when its tasks are done, not
// when every thread has looked at it: a thread that the system took off its CPU delays nobody unless it holds a task.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <type_traits>

namespace perigee {

class ThreadPool {
 public:
  // `threads` counts the caller too; 1 runs everything inline. 0 asks for one per physical core that the
  // process may use. On machines of eight cores or more the threads, other than the caller, are bound to one core each
  // as long as there are enough cores.
  explicit ThreadPool(int threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const;

  // Calls task(index, thread) for every index in [0, count), thread in [0, size()); returns when all are done.
  // Not reentrant: one run at a time, from one thread. Allocates nothing. count < 2^31.
  template <typename Task>
  void run(std::int64_t count, Task&& task) {
    using Callable = std::remove_reference_t<Task>;
    run_erased(
        count, [](void* context, std::int64_t index, int thread) { (*static_cast<Callable*>(context))(index, thread); },
        const_cast<void*>(static_cast<const void*>(&task)));
  }

 private:
  using Invoke = void (*)(void* context, std::int64_t index, int thread);
  void run_erased(std::int64_t count, Invoke invoke, void* context);

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Of all values given by the tasks of a loop the lowest stays, whatever their timing.
inline void keep_lowest(std::atomic<std::int64_t>& lowest, std::int64_t value) {
  std::int64_t seen = lowest.load();
  while (value < seen && !lowest.compare_exchange_weak(seen, value)) {
  }
}

}  // namespace perigee
