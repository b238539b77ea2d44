// Carries events from the engine's thread to the thread of a connection. Pushing never blocks: a client that reads too
// slowly fills the queue and is cancelled, and a token costs a few dozen bytes here, not its JSON.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "engine/engine.h"

namespace perigee::server {

struct QueuedEvent {
  std::int32_t submission = 0;  // which of the request's engine submissions
  TokenEvent event;
  std::chrono::steady_clock::time_point at;
};

// push() by the engine, cancel() by anybody, everything else by the connection.
class TokenQueue {
 public:
  explicit TokenQueue(std::size_t limit) : limit_(limit) {}

  // False: the branch is not wanted any more, or the queue is full.
  bool push(std::int32_t submission, TokenEvent&& event) {
    std::function<void()> wake;
    {
      const std::lock_guard lock(mutex_);
      if (closed_ || stopped_.contains({submission, event.branch})) return false;
      if (incoming_.size() >= limit_) {
        overflowed_ = closed_ = true;
      } else {
        incoming_.push_back({submission, std::move(event), std::chrono::steady_clock::now()});
      }
      // One call wakes the reader for all that comes before it looks.
      if (!asleep_) return !closed_;
      asleep_ = false;
      wake = wake_;
    }
    if (wake) wake();
    return true;
  }

  void set_wake(std::function<void()> wake) {
    const std::lock_guard lock(mutex_);
    wake_ = std::move(wake);
  }

  // Replaces `events` by what has come. When that is nothing, the next push wakes.
  void take(std::vector<QueuedEvent>& events) {
    events.clear();
    const std::lock_guard lock(mutex_);
    events.swap(incoming_);
    asleep_ = events.empty();
  }

  void stop(std::int32_t submission, std::int32_t branch) {
    const std::lock_guard lock(mutex_);
    stopped_.emplace(submission, branch);
  }
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    wake_ = nullptr;
    incoming_.clear();
  }
  // By any thread: the answer is not wanted any more. Its reader is woken.
  void cancel() {
    std::function<void()> wake;
    {
      const std::lock_guard lock(mutex_);
      if (closed_) return;
      closed_ = cancelled_ = true;
      wake = wake_;
    }
    if (wake) wake();
  }

  bool cancelled() const { return cancelled_; }
  bool overflowed() const { return overflowed_; }

 private:
  const std::size_t limit_;
  mutable std::mutex mutex_;
  std::vector<QueuedEvent> incoming_;
  std::set<std::pair<std::int32_t, std::int32_t>> stopped_;
  std::function<void()> wake_;
  bool asleep_ = true;
  bool closed_ = false;
  std::atomic<bool> overflowed_{false};
  std::atomic<bool> cancelled_{false};
};

}  // namespace perigee::server
