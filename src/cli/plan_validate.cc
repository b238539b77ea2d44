// `perigee plan validate`: the time model against published results, and the memory model against published layouts.
#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/exit_code.h"
#include "planner/report.h"

namespace perigee::cli {
namespace {

struct ValidateArguments {
  std::string data;
  bool json = false;
  std::int64_t refit = 0;
  std::uint64_t seed = 1;
};

void print_fit(const planner::FitResult& fit) {
  const planner::EngineTimes& t = fit.times;
  fmt::print(
      "mean logarithmic error {:.4f} before, {:.4f} after {} evaluations\n"
      "times: {{host_ms: {:.4g}, graph_layer_ms: {:.4g}, eager_layer_ms: {:.4g}, compute: {:.4g}, attention: {:.4g}, "
      "memory: {:.4g}, expert_link: {:.4g}, tensor_link: {:.4g}}}\n",
      fit.error_before, fit.error_after, fit.evaluations, t.host_ms, t.graph_layer_ms, t.eager_layer_ms, t.compute,
      t.attention, t.memory, t.expert_link, t.tensor_link);
}

int run(const ValidateArguments& a) {
  const auto catalogue = planner::load_catalogue(a.data);
  if (!catalogue.ok()) return command_failed("plan validate", catalogue.status());
  const auto set = planner::load_measurements(a.data);
  if (!set.ok()) return command_failed("plan validate", set.status());
  if (a.refit > 0) {
    const auto engine = catalogue->engine("vllm-ascend");
    if (!engine.ok()) return command_failed("plan validate", engine.status());
    const auto fit = planner::fit_engine(*catalogue, *set, **engine, a.refit, a.seed);
    if (!fit.ok()) return command_failed("plan validate", fit.status());
    print_fit(*fit);
    return 0;
  }
  const auto rows = planner::validate(*catalogue, *set);
  if (!rows.ok()) return command_failed("plan validate", rows.status());
  const auto layouts = planner::load_layouts(a.data);
  if (!layouts.ok()) return command_failed("plan validate", layouts.status());
  const auto checks = planner::check_layouts(*catalogue, *layouts);
  if (!checks.ok()) return command_failed("plan validate", checks.status());
  if (a.json) {
    fmt::print("{}\n", Json({{"time", planner::to_json(*rows)}, {"memory", planner::to_json(*checks)}}).dump(1));
  } else {
    fmt::print("{}\n{}", planner::format_validation(*rows, *set), planner::format_layout_checks(*checks));
  }
  for (const auto& check : *checks) {
    if (!check.right) return 1;
  }
  return 0;
}

}  // namespace

void register_plan_validate(const CommandGroups& groups, int& exit_code) {
  auto a = std::make_shared<ValidateArguments>();
  CLI::App* command =
      groups.plan->add_subcommand("validate", "The models of this planner against published results and layouts");
  command->add_option("--data", a->data, "Folder that replaces the built-in catalogues");
  command->add_option("--refit", a->refit, "Fit the step times again with so many evaluations and print them")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{10'000'000}));
  command->add_option("--seed", a->seed, "Seed of the fit");
  command->add_flag("--json", a->json, "Machine-readable output");
  command->callback([a, &exit_code] { exit_code = run(*a); });
}

}  // namespace perigee::cli
