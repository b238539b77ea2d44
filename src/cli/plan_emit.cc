// `perigee plan emit`: launch files of a plan.
#include <CLI/CLI.hpp>

#include <cstdio>
#include <memory>

#include "cli/commands.h"
#include "cli/exit_code.h"
#include "planner/emit/emit.h"

namespace perigee::cli {

namespace {

int run(const std::string& plan_file, const std::string& directory) {
  const auto plan = planner::read_plan_file(plan_file);
  if (!plan.ok()) return command_failed("plan emit", plan.status());
  const auto files = planner::emit_plan(*plan);
  if (!files.ok()) return command_failed("plan emit", files.status());
  if (const Status status = planner::write_emitted(*files, directory); !status.ok())
    return command_failed("plan emit", status);
  for (const planner::EmittedFile& file : *files) std::printf("%s/%s\n", directory.c_str(), file.path.c_str());
  return 0;
}

}  // namespace

void register_plan_emit(const CommandGroups& groups, int& exit_code) {
  auto* command = groups.plan->add_subcommand("emit", "Write launch scripts, manifests and notes of a plan");
  struct Options {
    std::string plan, out;
  };
  auto options = std::make_shared<Options>();
  command->add_option("plan", options->plan, "Plan file (perigee plan search writes one)")->required();
  command->add_option("--out", options->out, "Folder to write into")->required();
  command->callback([options, &exit_code] { exit_code = run(options->plan, options->out); });
}

}  // namespace perigee::cli
