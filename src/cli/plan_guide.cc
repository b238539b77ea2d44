// `perigee plan guide NODE`: the deployment guide of a product line, as kept in docs/ascend/.
#include <CLI/CLI.hpp>
#include <memory>

#include "cli/commands.h"
#include "cli/exit_code.h"
#include "planner/guide.h"

namespace perigee::cli {
namespace {

int run(const std::string& node) {
  std::vector<std::string_view> known;
  for (const auto& guide : planner::guides()) {
    known.push_back(guide.node);
    if (guide.node != node) continue;
    const auto text = planner::write_guide(planner::built_in_catalogue(), guide);
    if (!text.ok()) return command_failed("plan guide", text.status());
    fmt::print("{}", *text);
    return 0;
  }
  fmt::print(stderr, "perigee plan guide: no guide for '{}'; there is one for", node);
  for (const auto name : known) fmt::print(stderr, " {}", name);
  fmt::print(stderr, "\n");
  return 2;
}

}  // namespace

void register_plan_guide(const CommandGroups& groups, int& exit_code) {
  auto node = std::make_shared<std::string>();
  CLI::App* command = groups.plan->add_subcommand("guide", "The deployment guide of a product line (Markdown)");
  command->add_option("node", *node, "Node of the catalogue")->required();
  command->callback([node, &exit_code] { exit_code = run(*node); });
}

}  // namespace perigee::cli
