// `perigee plan fit --hardware cpu`: what fits on a CPU server for Perigee itself, and how fast it can be.
#pragma once

#include <cstdint>
#include <string>

#include "cli/plan_inputs.h"

namespace perigee::cli {

struct CpuArguments {
  std::string hardware = "ascend";
  std::string server;  // of cpus.yaml, or "this": measured here; empty: by the numbers below
  double cores = 0, ghz = 0, flops_per_cycle = 0, memory_gb_s = 0, memory_gb = 0;  // 0: the server's own
};
void add_cpu_options(CLI::App& command, CpuArguments& arguments);

// The exit code: 0 fits, 1 tight or not, 2 wrong or missing inputs.
int fit_cpu(const PlanArguments& plan, const CpuArguments& cpu);

}  // namespace perigee::cli
