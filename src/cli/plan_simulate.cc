// `perigee plan simulate`: requests through a planned cluster.
#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/plan_inputs.h"
#include "planner/report.h"

namespace perigee::cli {
namespace {

struct SimulateArguments {
  PlanArguments plan;
  TrafficArguments traffic;
  double failures_per_node_hour = 0, repair_s = 600;
  bool cache_aware = false;
};

int run(const SimulateArguments& a) {
  const auto opened = open_plan_arguments(a.plan, true);
  if (!opened.ok()) return command_failed("plan simulate", opened.status());
  const auto requests = traffic_requests(a.traffic);
  if (!requests.ok()) return command_failed("plan simulate", requests.status());
  const auto deployment = planner::open_plan(opened->catalogue, opened->plan, opened->shape(), 0);
  if (!deployment.ok()) return command_failed("plan simulate", deployment.status());
  planner::ClusterSetup cluster = planner::cluster_setup(*deployment, opened->plan);
  cluster.concurrency = a.traffic.concurrency;
  cluster.cache_aware = a.cache_aware;
  cluster.failures_per_node_hour = a.failures_per_node_hour;
  cluster.repair_s = a.repair_s;
  cluster.price_per_node_hour = a.traffic.price;
  cluster.ttft_target_ms = a.traffic.ttft_target_ms;
  cluster.tpot_target_ms = a.traffic.tpot_target_ms;
  cluster.seed = a.traffic.seed;
  if (a.traffic.warm) {
    for (auto& pool : cluster.pools) pool.warm_groups = pool.model->setup().parallel.dp;
  }
  const auto result = planner::simulate(cluster, *requests);
  if (!result.ok()) return command_failed("plan simulate", result.status());
  if (a.plan.json) {
    fmt::print("{}\n", planner::to_json(*result).dump(1));
  } else {
    fmt::print("{}", planner::format_simulation(*result, *deployment->engine, a.traffic.price > 0));
  }
  return 0;
}

}  // namespace

void register_plan_simulate(const CommandGroups& groups, int& exit_code) {
  auto arguments = std::make_shared<SimulateArguments>();
  CLI::App* command =
      groups.plan->add_subcommand("simulate", "Requests through a layout: TTFT, TPOT, goodput, cost, failures");
  add_plan_options(*command, arguments->plan);
  add_traffic_options(*command, arguments->traffic);
  command->add_option("--failures-per-node-hour", arguments->failures_per_node_hour, "Rate of node failures")
      ->check(CLI::Range(0.0, 3600.0));
  command->add_option("--repair-seconds", arguments->repair_s, "Time until a failed instance serves again")
      ->check(CLI::Range(0.0, 1e7));
  command->add_flag("--cache-aware", arguments->cache_aware, "Route to groups that hold the prefix");
  command->callback([arguments, &exit_code] { exit_code = run(*arguments); });
}

}  // namespace perigee::cli
