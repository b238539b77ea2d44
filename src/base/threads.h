// A fixed pool of threads that runs one parallel loop at a time.
//
// Which thread takes which task is not defined, so a task must compute its whole output alone and in a fixed
// order; then results do not depend on the number of threads (design section 5).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace perigee {

class ThreadPool {
 public:
  // `threads` counts the caller too; 1 runs everything inline. 0 asks for one per physical core that the
  // process may use.
  explicit ThreadPool(int threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const;

  // Calls task(index, thread) for every index in [0, count), thread in [0, size()); returns when all are done.
  // Not reentrant: one run at a time, from one thread.
  void run(std::int64_t count, const std::function<void(std::int64_t index, int thread)>& task);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace perigee
