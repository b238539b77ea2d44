// `perigee plan fit` (does it fit a device) and `perigee plan speed` (how long its steps take).
#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/plan_cpu.h"
#include "cli/plan_inputs.h"
#include "planner/report.h"

namespace perigee::cli {
namespace {

// 0: every pool fits; 1: one is tight or does not.
int fit(const PlanArguments& arguments) {
  const auto opened = open_plan_arguments(arguments, false);
  if (!opened.ok()) return command_failed("plan fit", opened.status());
  const auto deployment = planner::open_plan(opened->catalogue, opened->plan, opened->shape(), 0);
  if (!deployment.ok()) return command_failed("plan fit", deployment.status());
  bool fits = true;
  for (const auto& pool : deployment->pools) fits &= pool.memory.verdict == planner::Verdict::kFits;
  if (arguments.json) {
    Json json = {{"model", planner::to_json(*deployment->shape, deployment->format)}};
    for (const auto& pool : deployment->pools) {
      Json one = planner::to_json(pool.memory);
      one["role"] = planner::role_name(pool.pool->role);
      json["pools"].push_back(std::move(one));
    }
    fmt::print("{}\n", json.dump(1));
  } else {
    fmt::print("{}", planner::format_model(*deployment->shape, deployment->format));
    for (const auto& pool : deployment->pools) fmt::print("{}", planner::format_memory(pool));
  }
  return fits ? 0 : 1;
}

int speed(const PlanArguments& arguments, double context) {
  const auto opened = open_plan_arguments(arguments, true);
  if (!opened.ok()) return command_failed("plan speed", opened.status());
  for (const auto& pool : opened->plan.pools) {
    if (pool.parallel.pp > 1) {
      return command_failed("plan speed", make_error(StatusCode::kUnimplemented,
                                                     "{} pool: pp {}: pipeline stages have no time model; only `plan "
                                                     "fit` knows them",
                                                     planner::role_name(pool.role), pool.parallel.pp));
    }
  }
  const auto deployment = planner::open_plan(opened->catalogue, opened->plan, opened->shape(), 0);
  if (!deployment.ok()) return command_failed("plan speed", deployment.status());
  if (!arguments.json) {
    fmt::print("{}", planner::format_steps(*deployment, opened->plan, context));
    fmt::print("interval: x {} to x {}; step times: {} ({})\n", deployment->engine->interval_low,
               deployment->engine->interval_high, deployment->engine->source, deployment->engine->confidence);
    return 0;
  }
  Json json = {{"engine", deployment->engine->name},
               {"source", deployment->engine->source},
               {"interval", {deployment->engine->interval_low, deployment->engine->interval_high}}};
  for (const auto& pool : deployment->pools) {
    Json one = {{"role", planner::role_name(pool.pool->role)}};
    const auto full = static_cast<double>(pool.pool->max_sequences);
    one["decode_one"] = planner::to_json(planner::decode_step(pool, 1, context));
    one["decode_full"] = planner::to_json(planner::decode_step(pool, full, context));
    one["prefill_full"] =
        planner::to_json(planner::prefill_step(pool, static_cast<double>(pool.pool->max_batched_tokens), 0));
    json["pools"].push_back(std::move(one));
  }
  fmt::print("{}\n", json.dump(1));
  return 0;
}

}  // namespace

void register_plan_fit(const CommandGroups& groups, int& exit_code) {
  auto arguments = std::make_shared<PlanArguments>();
  auto cpu = std::make_shared<CpuArguments>();
  CLI::App* command = groups.plan->add_subcommand("fit", "Whether a layout fits, line by line, on one device");
  add_plan_options(*command, *arguments);
  add_cpu_options(*command, *cpu);
  command->footer("Exit code: 0 every pool fits, 1 one is tight or does not, 2 an input is wrong or missing.");
  command->callback([arguments, cpu, &exit_code] {
    exit_code = cpu->hardware == "cpu" ? fit_cpu(*arguments, *cpu) : fit(*arguments);
  });
}

void register_plan_speed(const CommandGroups& groups, int& exit_code) {
  auto arguments = std::make_shared<PlanArguments>();
  auto context = std::make_shared<double>(8192);
  CLI::App* command = groups.plan->add_subcommand("speed", "How long prefill and decode steps take, and why");
  add_plan_options(*command, *arguments);
  command->add_option("--context", *context, "Tokens of context in decode steps")->check(CLI::Range(1.0, 1e8));
  command->callback([arguments, context, &exit_code] { exit_code = speed(*arguments, *context); });
}

}  // namespace perigee::cli
