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

namespace perigee::cli {

struct Measured {
  double seconds = 0;  // best
  double median = 0;
  int runs = 0;
};

// Repeats `body` for about `budget` seconds, at least three times.
Measured measure(int threads, double budget, const std::function<void()>& body);

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
  double budget = 0.4;  // seconds a figure
  std::string isa;
};

Roofline measure_roofline(int threads, double budget);
std::vector<Figure> bench_operators(const Kernels& kernels, const Roofline& roofline, const BenchOptions& options);

// Fills bound and share from bytes, flops and time: the larger of the two shares is the bound.
void set_share(Figure& figure, const Roofline& roofline, std::string_view isa);

}  // namespace perigee::cli
