#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>

#include "cli/commands.h"

namespace perigee::cli {

// One line a command, in the order of --help.
void register_run(const CommandGroups& groups, int& exit_code);
void register_serve(const CommandGroups& groups, int& exit_code);
void register_inspect(const CommandGroups& groups, int& exit_code);
void register_synth(const CommandGroups& groups, int& exit_code);
void register_eval(const CommandGroups& groups, int& exit_code);
void register_bench(const CommandGroups& groups, int& exit_code);
void register_doctor(const CommandGroups& groups, int& exit_code);
void register_verify_goldens(const CommandGroups& groups, int& exit_code);
void register_verify_text(const CommandGroups& groups, int& exit_code);
void register_verify_cache(const CommandGroups& groups, int& exit_code);
void register_verify_endpoint(const CommandGroups& groups, int& exit_code);
void register_plan_fit(const CommandGroups& groups, int& exit_code);
void register_plan_speed(const CommandGroups& groups, int& exit_code);
void register_plan_simulate(const CommandGroups& groups, int& exit_code);
void register_plan_search(const CommandGroups& groups, int& exit_code);
void register_plan_validate(const CommandGroups& groups, int& exit_code);
void register_plan_guide(const CommandGroups& groups, int& exit_code);
void register_plan_check(const CommandGroups& groups, int& exit_code);
void register_plan_emit(const CommandGroups& groups, int& exit_code);

constexpr RegisterCommand kCommands[] = {
    register_run,         register_serve,         register_inspect,         register_synth,
    register_eval,        register_bench,         register_doctor,          register_verify_goldens,
    register_verify_text, register_verify_cache,  register_verify_endpoint, register_plan_fit,
    register_plan_speed,  register_plan_simulate, register_plan_search,     register_plan_validate,
    register_plan_guide,  register_plan_check,    register_plan_emit,
};

}  // namespace perigee::cli

int main(int argc, char** argv) {
  // Standard output belongs to what a command prints.
  spdlog::set_default_logger(spdlog::stderr_color_mt("perigee"));
  CLI::App app("Perigee: Kimi K3 models on your own machines");
  app.require_subcommand(1);
  perigee::cli::CommandGroups groups{.root = &app, .verify = nullptr, .plan = nullptr};
  groups.verify = app.add_subcommand("verify", "Check this build, or a server, against reference vectors");
  groups.plan = app.add_subcommand("plan", "Plan, check and launch these models on Ascend clusters");
  groups.plan->require_subcommand(1);
  int exit_code = 0;
  for (const auto register_command : perigee::cli::kCommands) register_command(groups, exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // CLI11 has a code for each kind of mistake; ours is one: wrong usage.
    return app.exit(error) == 0 ? 0 : 2;
  }
  return exit_code;
}
