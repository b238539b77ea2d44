// Parts of `perigee bench`: what a measurement is, and the three groups of measurements.
//
// One thread is measured by its own CPU time, so that other programs' turns do not count (what they do to caches and
// memory still does); more threads by the clock. Of several repeats the best counts, and the report says how many.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/threads.h"
#include "kernels/kernels.h"

namespace CLI {
class App;
}

namespace perigee::cli {

struct Measured {
  double seconds = 0;  // best
  double median = 0;
  int runs = 0;
};

// Repeats `body` for about `budget` seconds, at least three times.
Measured measure(int threads, double budget, const std::function<void()>& body);
Measured measure_once(int threads, const std::function<void()>& body);

struct Roofline {
  int threads = 0;
  double read = 0;                                    // bytes/s, sequential over 512 MiB
  std::vector<std::pair<std::string, double>> flops;  // by probe
  double flops_of(std::string_view isa) const;        // of the kernel path
};

struct Figure {
  std::string group;
  std::string name;
  int threads = 1;
  Measured time;
  double bytes = 0;  // that the maths must read or write once, 0 when it does not bound
  double flops = 0;
  std::string bound = {};  // "read" or "fma"
  double share = 0;        // of the roofline that bounds
  double per_second = 0;
  std::string unit = {};  // of per_second: "tok/s"
};

struct BenchOptions {
  std::vector<int> threads;
  double budget = 0.4;             // seconds an operator's figure
  double model_budget = 3.0;       // seconds a decode figure
  std::int64_t chunk = 2048;       // tokens of a prefill step
  std::string weights = "stored";  // or "int8"
  std::vector<std::int64_t> prompts = {512, 2048};
  std::vector<std::int64_t> depths = {0, 2048, 8192, 32768};
  std::vector<std::int64_t> batches = {1, 2, 4, 8, 16, 32};
  std::function<void(const Figure&)> on_figure;  // as soon as it is measured
};

// `bytes`: what the read bandwidth is measured over; it should be several times the last-level cache.
Roofline measure_roofline(int threads, double budget, std::int64_t bytes = std::int64_t{512} << 20);
// `directory`: a checkpoint folder. bf16 activations, weights mapped.
Result<std::vector<Figure>> bench_model(const std::string& directory, const Kernels& kernels, const Roofline& roofline,
                                        const BenchOptions& options);
std::vector<Figure> bench_operators(const Kernels& kernels, const Roofline& roofline, const BenchOptions& options);

// `perigee bench users`.
void register_bench_users(CLI::App& bench, int& exit_code);

// Fills bound and share from bytes, flops and time: the larger of the two shares is the bound.
void set_share(Figure& figure, const Roofline& roofline, std::string_view isa);

}  // namespace perigee::cli
