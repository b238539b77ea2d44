// `perigee plan check`: preflight of existing launch files.
#include <CLI/CLI.hpp>

#include <cstdio>
#include <memory>

#include "cli/commands.h"
#include "cli/exit_code.h"
#include "planner/preflight/check.h"

namespace perigee::cli {

namespace {

struct PlanCheckOptions {
  std::vector<std::string> files;
  std::string cases;
  planner::CheckContext context;
  bool json = false;
  bool sarif = false;
};

// 1 means findings, so whatever kept the files from being read is 2.
int unreadable(const Status& status) {
  command_failed("plan check", status);
  return 2;
}

int run(const PlanCheckOptions& options) {
  if (!options.cases.empty()) {
    const auto report = planner::run_cases(options.cases);
    if (!report.ok()) return unreadable(report.status());
    std::fputs(planner::format_cases(*report).c_str(), stdout);
    return report->good() ? 0 : 1;
  }
  const auto files = planner::read_inputs(options.files);
  if (!files.ok()) return unreadable(files.status());
  const auto report = planner::check_files(*files, options.context);
  if (!report.ok()) return unreadable(report.status());
  const std::string text = options.sarif  ? planner::format_sarif(*report)
                           : options.json ? planner::format_json(*report)
                                          : planner::format_text(*report);
  std::fputs(text.c_str(), stdout);
  return report->errors() > 0 ? 1 : 0;
}

}  // namespace

void register_plan_check(const CommandGroups& groups, int& exit_code) {
  auto* command = groups.plan->add_subcommand("check", "Preflight: what is wrong with these launch files");
  auto options = std::make_shared<PlanCheckOptions>();
  command->add_option("files", options->files, "Shell scripts, YAML and JSON files that belong to one deployment");
  command->add_option("--cases", options->cases, "Run a folder with a cases.json and count found, missed and false");
  command->add_option("--engine", options->context.engine, "vllm-ascend, vllm or sglang (default: from the files)");
  command->add_option("--engine-version", options->context.engine_version,
                      "For example 0.30.0rc2 (default: the image, else the newest)");
  command->add_option("--model", options->context.model, "Name of the served checkpoint (default: from the files)");
  command->add_option("--chip", options->context.chip, "a2, a3 or 950 (default: the image)");
  command->add_option("--nodes", options->context.nodes, "Nodes of the deployment");
  command->add_option("--devices-per-node", options->context.devices_per_node, "Devices (dies) of a node");
  command->add_flag("--json", options->json, "Machine-readable report");
  command->add_flag("--sarif", options->sarif, "SARIF 2.1.0 report");
  command->footer(
      "Exit code: 0 no errors, 1 errors found, 2 a file cannot be read. Nothing in a checked file is executed.");
  command->callback([options, &exit_code] {
    if (options->files.empty() && options->cases.empty()) throw CLI::RequiredError("files or --cases");
    exit_code = run(*options);
  });
}

}  // namespace perigee::cli
