#include "checkpoint/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace perigee {

Progress::Progress(std::string what, std::int64_t total_bytes, bool show)
    : what_(std::move(what)),
      total_(total_bytes),
      show_(show),
      terminal_(::isatty(STDERR_FILENO) == 1),
      begin_(std::chrono::steady_clock::now()),
      last_print_(begin_) {}

Progress::~Progress() {
  if (show_ && (printed_ || !terminal_)) print(true);
}

void Progress::add(std::int64_t bytes) {
  done_.fetch_add(bytes, std::memory_order_relaxed);
  if (!show_) return;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  const auto now = std::chrono::steady_clock::now();
  const auto interval = terminal_ ? std::chrono::milliseconds(200) : std::chrono::milliseconds(10'000);
  if (now - last_print_ < interval) return;
  last_print_ = now;
  print(false);
}

void Progress::print(bool last) {
  printed_ = true;
  const std::int64_t done = done_.load(std::memory_order_relaxed);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  const double rate = static_cast<double>(done) / std::max(seconds, 1e-3);
  std::string line = fmt::format("{}: {} of {}, {}/s", what_, format_bytes(done), format_bytes(total_),
                                 format_bytes(static_cast<std::int64_t>(rate)));
  if (last) {
    line += fmt::format(", {:.1f} s", seconds);
  } else if (rate > 0) {
    line += fmt::format(", {:.0f} s left", static_cast<double>(total_ - done) / rate);
  }
  if (terminal_) {
    fmt::print(stderr, "\r{}\x1b[K{}", line, last ? "\n" : "");
    std::fflush(stderr);
  } else {
    fmt::print(stderr, "{}\n", line);
  }
}

std::string format_bytes(std::int64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (std::abs(value) >= 999.5 && unit + 1 < std::size(kUnits)) {
    value /= 1000;
    ++unit;
  }
  if (unit == 0) return fmt::format("{} B", bytes);
  return fmt::format("{:.{}f} {}", value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0, kUnits[unit]);
}

}  // namespace perigee
