// One line on stderr about long work on many bytes: done, rate, time left. add() is thread-safe.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

namespace perigee {

class Progress {
 public:
  // `what`: "reading weights". With show == false nothing is printed.
  Progress(std::string what, std::int64_t total_bytes, bool show);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void add(std::int64_t bytes);

 private:
  void print(bool last);

  std::string what_;
  std::int64_t total_;
  bool show_;
  bool terminal_;  // rewrite one line; otherwise a line every ten seconds
  bool printed_ = false;
  std::atomic<std::int64_t> done_{0};
  std::mutex mutex_;
  std::chrono::steady_clock::time_point begin_;
  std::chrono::steady_clock::time_point last_print_;
};

// "1.56 TB", "449 MB", "12 B": three digits, decimal units.
std::string format_bytes(std::int64_t bytes);

}  // namespace perigee
