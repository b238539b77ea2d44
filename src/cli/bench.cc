#include "cli/bench.h"

#include <sys/utsname.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "cli/commands.h"
#include "cli/model_source.h"
#include "kernels/paths.h"

namespace perigee::cli {
namespace {

std::string first_match(const std::string& path, std::string_view key) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(key)) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

std::string load_average() {
  std::ifstream in("/proc/loadavg");
  std::string one;
  std::string five;
  in >> one >> five;
  return one + " " + five;
}

void print(const Figure& f) {
  std::string rates;
  if (f.per_second > 0) rates += fmt::format("  {:9.2f} {}", f.per_second, f.unit);
  if (f.bytes > 0) rates += fmt::format("  {:7.2f} GB/s", 1e-9 * f.bytes / f.time.seconds);
  if (f.flops > 0) rates += fmt::format("  {:7.1f} GFLOP/s", 1e-9 * f.flops / f.time.seconds);
  fmt::print("{:<10} {:<44} {} thr {:10.3f} ms (median {:.3f}, {} runs){}  {:3.0f} % {}\n", f.group, f.name, f.threads,
             1e3 * f.time.seconds, 1e3 * f.time.median, f.time.runs, rates, 100 * f.share, f.bound);
  std::fflush(stdout);  // a long run that is stopped keeps what it has measured
}

Json to_json(const Figure& f) {
  return {{"group", f.group},        {"name", f.name},      {"threads", f.threads},       {"seconds", f.time.seconds},
          {"median", f.time.median}, {"runs", f.time.runs}, {"bytes", f.bytes},           {"flops", f.flops},
          {"bound", f.bound},        {"share", f.share},    {"per_second", f.per_second}, {"unit", f.unit}};
}

struct Arguments {
  std::string what = "all";
  std::string model;
  std::vector<int> threads;
  bool json = false;
  BenchOptions options;
};

int run(const Arguments& arguments) {
  const Result<const Kernels*> kernels = default_kernels();
  if (!kernels.ok()) {
    fmt::print(stderr, "{}\n", kernels.status().message());
    return 2;
  }
  std::vector<int> thread_counts = arguments.threads;
  if (thread_counts.empty()) {
    thread_counts.push_back(1);
    if (const int all = ThreadPool().size(); all > 1) thread_counts.push_back(all);
  }
  Json report = {{"cpu", first_match("/proc/cpuinfo", "model name")},
                 {"path", std::string((*kernels)->isa)},
                 {"load", load_average()},
                 {"roofline", Json::array()},
                 {"figures", Json::array()}};
  BenchOptions options = arguments.options;
  options.on_figure = [&](const Figure& figure) {
    report["figures"].push_back(to_json(figure));
    if (!arguments.json) print(figure);
  };
  if (!arguments.json) {
    fmt::print("cpu {}, path {}, load {}\n", report["cpu"].get<std::string>(), (*kernels)->isa, load_average());
    for (const std::string& missing : missing_kernels()) fmt::print("path not on this machine: {}\n", missing);
    fmt::print("one thread: CPU time; more: the clock; best of the runs; shares are of the roofline below\n");
  }
  int exit_code = 0;
  for (const int threads : thread_counts) {
    const Roofline roofline = measure_roofline(threads, options.budget);
    Json roof = {{"threads", threads}, {"read", roofline.read}};
    for (const auto& [name, value] : roofline.flops) roof[name] = value;
    report["roofline"].push_back(roof);
    if (!arguments.json) {
      fmt::print("roofline, {} thr: read {:.2f} GB/s", threads, 1e-9 * roofline.read);
      for (const auto& [name, value] : roofline.flops) fmt::print(", {} {:.1f} GFLOP/s", name, 1e-9 * value);
      fmt::print("\n");
      std::fflush(stdout);
    }
    if (arguments.what == "operators" || arguments.what == "all") bench_operators(**kernels, roofline, options);
    if (arguments.model.empty() || arguments.what == "roofline" || arguments.what == "operators") continue;
    if (const auto figures = bench_model(arguments.model, **kernels, roofline, options); !figures.ok()) {
      fmt::print(stderr, "{}\n", figures.status().message());
      exit_code = 2;
    }
  }
  report["load_after"] = load_average();
  if (arguments.json) {
    fmt::print("{}\n", report.dump(1));
  } else {
    fmt::print("load after {}\n", load_average());
  }
  return exit_code;
}

}  // namespace

void register_bench(const CommandGroups& groups, int& exit_code) {
  CLI::App* command = groups.root->add_subcommand("bench", "Measure this machine, the operators and a model");
  auto arguments = std::make_shared<Arguments>();
  BenchOptions& options = arguments->options;
  command->add_option("what", arguments->what, "roofline, operators, model or all")
      ->check(CLI::IsMember({"roofline", "operators", "model", "all"}))
      ->capture_default_str();
  command->add_option("--model", arguments->model, "Checkpoint folder for the whole-model figures");
  add_weights_flag(*command, options.weights);
  command->add_option("--threads", arguments->threads, "Thread counts (default: 1 and all cores)")->delimiter(',');
  command->add_option("--prompts", options.prompts, "Prompt lengths of prefill")->delimiter(',')->capture_default_str();
  command->add_option("--depths", options.depths, "Depths of decode")->delimiter(',')->capture_default_str();
  command->add_option("--batches", options.batches, "Batch sizes of decode at depth 0")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--chunk", options.chunk, "Tokens of one prefill step")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--budget", options.budget, "Seconds an operator's figure")->capture_default_str();
  command->add_option("--model-budget", options.model_budget, "Seconds a decode figure")->capture_default_str();
  command->add_flag("--json", arguments->json, "Machine-readable report");
  register_bench_users(*command, exit_code);
  command->callback([command, arguments, &exit_code] {
    if (command->get_subcommands().empty()) exit_code = run(*arguments);
  });
}

}  // namespace perigee::cli
