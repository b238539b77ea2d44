#include <time.h>

#include <algorithm>
#include <atomic>

#include "base/huge_buffer.h"
#include "cli/bench.h"
#include "kernels/probe.h"

namespace perigee::cli {
namespace {

double now(int threads) {
  timespec t{};
  ::clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

}  // namespace

Measured measure(int threads, double budget, const std::function<void()>& body) {
  body();  // first touch, page faults, cold tables
  std::vector<double> seconds;
  double total = 0;
  while (seconds.size() < 3 || (total < budget && seconds.size() < 10000)) {
    const double begin = now(threads);
    body();
    seconds.push_back(now(threads) - begin);
    total += seconds.back();
  }
  std::sort(seconds.begin(), seconds.end());
  return {.seconds = seconds.front(), .median = seconds[seconds.size() / 2], .runs = static_cast<int>(seconds.size())};
}

Measured measure_once(int threads, const std::function<void()>& body) {
  const double begin = now(threads);
  body();
  const double seconds = now(threads) - begin;
  return {.seconds = seconds, .median = seconds, .runs = 1};
}

double Roofline::flops_of(std::string_view isa) const {
  double best = 0;
  for (const auto& [name, value] : flops) {
    if (name.substr(0, name.find(' ')) == isa) best = std::max(best, value);
  }
  return best;
}

Roofline measure_roofline(int threads, double budget, std::int64_t bytes) {
  Roofline roof;
  roof.threads = threads;
  ThreadPool pool(threads);
  constexpr std::int64_t kPiece = std::int64_t{1} << 20;
  const std::int64_t pieces = bytes / kPiece;
  const HugeBuffer buffer(pieces * kPiece);
  std::fill_n(reinterpret_cast<std::uint64_t*>(buffer.data()), buffer.size() / 8, 0x0123456789ABCDEFULL);
  std::atomic<std::uint64_t> sink{0};
  const Measured read = measure(threads, budget, [&] {
    pool.run(pieces, [&](std::int64_t piece, int) {
      sink.fetch_xor(read_probe(buffer.data() + piece * kPiece, kPiece), std::memory_order_relaxed);
    });
  });
  roof.read = static_cast<double>(buffer.size()) / read.seconds;
  for (const FlopProbe& probe : runnable_probes()) {
    constexpr std::int64_t kRounds = 1 << 20;
    const Measured burn =
        measure(threads, budget, [&] { pool.run(4 * threads, [&](std::int64_t, int) { probe.burn(kRounds); }); });
    roof.flops.emplace_back(probe.name, probe.flops_per_round * kRounds * 4 * threads / burn.seconds);
  }
  return roof;
}

void set_share(Figure& figure, const Roofline& roofline, std::string_view isa) {
  const double read = figure.bytes / figure.time.seconds / roofline.read;
  const double flops = figure.flops / figure.time.seconds / std::max(1.0, roofline.flops_of(isa));
  figure.bound = flops > read ? "fma" : "read";
  figure.share = std::max(read, flops);
}

}  // namespace perigee::cli
