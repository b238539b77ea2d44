#include "cli/plan_cpu.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/threads.h"
#include "cli/bench.h"
#include "cli/exit_code.h"
#include "planner/cpu_plan.h"
#include "planner/report.h"

namespace perigee::cli {
namespace {

constexpr double kCpuMeasureSeconds = 0.3;
constexpr std::int64_t kServeStepTokens = 2048;  // `perigee serve` without --step-tokens

planner::Sourced given_number(double value) {
  return {value, "command line", "H"};
}

// Peak and bandwidth of all cores here, by the probes of `perigee bench`.
planner::CpuServer measure_this_machine() {
  const int threads = ThreadPool().size();
  const Roofline roof = measure_roofline(threads, kCpuMeasureSeconds);
  double peak = 0;
  for (const auto& [name, flops] : roof.flops) peak = std::max(peak, flops);
  const char* source = "measured on this machine";
  planner::CpuServer out;
  out.name = "this";
  out.title = "this machine";
  out.cores = {static_cast<double>(threads), "physical cores that this process may use", "H"};
  out.ghz = {1, "contained in the measured peak", "H"};
  out.flops_per_cycle = {peak / threads / 1e9, source, "H"};
  out.memory_gb_s = {roof.read / 1e9, source, "H"};
  const double bytes = static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  out.memory_gb = {bytes / 1e9, "of the system", "H"};
  return out;
}

Result<planner::CpuServer> cpu_server_of(const planner::CpuCatalogue& cpus, const CpuArguments& a) {
  planner::CpuServer out;
  if (a.server == "this") {
    out = measure_this_machine();
  } else if (!a.server.empty()) {
    PERIGEE_ASSIGN_OR_RETURN(const planner::CpuServer* found, cpus.server(a.server));
    out = *found;
  } else {
    std::vector<std::string> absent;
    if (a.cores <= 0) absent.emplace_back("--cores");
    if (a.ghz <= 0) absent.emplace_back("--ghz");
    if (a.flops_per_cycle <= 0) absent.emplace_back("--flops-per-cycle");
    if (a.memory_gb_s <= 0) absent.emplace_back("--bandwidth-gb-s");
    if (a.memory_gb <= 0) absent.emplace_back("--memory-gb");
    if (!absent.empty()) {
      std::vector<std::string_view> names;
      for (const planner::CpuServer& server : cpus.servers) names.emplace_back(server.name);
      return invalid_argument("give --cpu (this, {}) or {}", fmt::join(names, ", "), fmt::join(absent, ", "));
    }
    out.name = "given";
  }
  if (a.cores > 0) out.cores = given_number(a.cores);
  if (a.ghz > 0) out.ghz = given_number(a.ghz);
  if (a.flops_per_cycle > 0) out.flops_per_cycle = given_number(a.flops_per_cycle);
  if (a.memory_gb_s > 0) out.memory_gb_s = given_number(a.memory_gb_s);
  if (a.memory_gb > 0) out.memory_gb = given_number(a.memory_gb);
  return out;
}

Result<int> plan_cpu_server(const PlanArguments& plan, const CpuArguments& a) {
  std::vector<std::string> absent;
  if (plan.model.empty() && plan.checkpoint.empty()) absent.emplace_back("--model or --checkpoint");
  if (plan.format.empty()) absent.emplace_back("--format");
  if (plan.max_model_len < 1) absent.emplace_back("--max-model-len");
  if (plan.max_sequences < 1) absent.emplace_back("--max-num-seqs");
  if (!absent.empty()) {
    return invalid_argument("these inputs decide the answer and are never guessed: {}", fmt::join(absent, "; "));
  }
  PERIGEE_ASSIGN_OR_RETURN(const planner::CpuCatalogue cpus, planner::load_cpus(plan.data));
  PERIGEE_ASSIGN_OR_RETURN(const planner::CpuServer server, cpu_server_of(cpus, a));
  PERIGEE_ASSIGN_OR_RETURN(const planner::Catalogue catalogue, planner::load_catalogue(plan.data));
  planner::ModelShape shape;
  if (!plan.checkpoint.empty()) {
    PERIGEE_ASSIGN_OR_RETURN(shape, planner::read_model_shape(plan.checkpoint));
  } else {
    PERIGEE_ASSIGN_OR_RETURN(const planner::ModelShape* found, catalogue.model(plan.model));
    shape = *found;
  }
  planner::CpuSetup setup;
  setup.shape = &shape;
  setup.server = &server;
  PERIGEE_ASSIGN_OR_RETURN(setup.format, planner::find_format(plan.format));
  setup.context = plan.max_model_len;
  setup.sequences = plan.max_sequences;
  setup.step_tokens = plan.max_batched_tokens > 0 ? plan.max_batched_tokens : kServeStepTokens;
  PERIGEE_ASSIGN_OR_RETURN(const planner::CpuReport report, planner::plan_cpu(cpus, setup));
  if (plan.json) {
    Json json = planner::to_json(server, report);
    json["model"] = planner::to_json(shape, setup.format);
    fmt::print("{}\n", json.dump(1));
  } else {
    fmt::print("{}{}", planner::format_model(shape, setup.format), planner::format_cpu(server, report));
    fmt::print("shares of peak and bandwidth: {} and {} ({})\n", cpus.compute.value, cpus.memory.value,
               cpus.compute.source);
  }
  return report.verdict == planner::Verdict::kFits ? 0 : 1;
}

}  // namespace

void add_cpu_options(CLI::App& command, CpuArguments& a) {
  command.add_option("--hardware", a.hardware, "ascend, or cpu: a server for Perigee itself")
      ->check(CLI::IsMember({"ascend", "cpu"}))
      ->capture_default_str();
  const char* group = "With --hardware cpu";
  command.add_option("--cpu", a.server, "Server of the catalogue, or `this`: measured here")->group(group);
  command.add_option("--cores", a.cores, "Physical cores")->check(CLI::PositiveNumber)->group(group);
  command.add_option("--ghz", a.ghz, "Frequency that all cores hold")->check(CLI::PositiveNumber)->group(group);
  command.add_option("--flops-per-cycle", a.flops_per_cycle, "Of one core: 32 AVX2, 64 AVX-512, 2048 AMX")
      ->check(CLI::PositiveNumber)
      ->group(group);
  command.add_option("--bandwidth-gb-s", a.memory_gb_s, "Memory bandwidth, all sockets")
      ->check(CLI::PositiveNumber)
      ->group(group);
  command.add_option("--memory-gb", a.memory_gb, "Installed memory")->check(CLI::PositiveNumber)->group(group);
}

int fit_cpu(const PlanArguments& plan, const CpuArguments& cpu) {
  const auto code = plan_cpu_server(plan, cpu);
  return code.ok() ? *code : command_failed("plan fit", code.status());
}

}  // namespace perigee::cli
