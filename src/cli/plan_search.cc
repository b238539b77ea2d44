// `perigee plan search`: the best layouts for nodes, traffic and targets; --write keeps one as a plan file.
#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/plan_inputs.h"
#include "planner/report.h"

namespace perigee::cli {
namespace {

struct SearchArguments {
  planner::SearchRequest request;
  TrafficArguments traffic;
  std::string data, engine = "vllm-ascend", write;
  std::size_t shown = 8, rank = 1;
  bool json = false;
};

int run(SearchArguments& a) {
  if (!a.traffic.trace.empty()) {
    return command_failed(
        "plan search", invalid_argument("--trace: a search draws its own traffic; give --input, --output and a rate"));
  }
  if (auto status = check_traffic(a.traffic); !status.ok()) return command_failed("plan search", status);
  if (a.engine != "vllm-ascend" && a.engine != "sglang") {
    return command_failed("plan search", invalid_argument("--engine: '{}' is not vllm-ascend or sglang", a.engine));
  }
  planner::SearchRequest& r = a.request;
  r.engine = a.engine == "sglang" ? planner::Engine::kSglang : planner::Engine::kVllmAscend;
  r.traffic.requests = a.traffic.prompts;
  r.traffic.per_second = a.traffic.per_second;
  r.traffic.input_mean = a.traffic.input;
  r.traffic.input_spread = a.traffic.input_spread;
  r.traffic.output_mean = a.traffic.output;
  r.traffic.output_spread = a.traffic.output_spread;
  r.traffic.shared_prefix = a.traffic.shared_prefix;
  r.traffic.prefixes = a.traffic.prefixes;
  r.traffic.seed = a.traffic.seed;
  r.concurrency = a.traffic.concurrency;
  r.warm_prefix = a.traffic.warm;
  r.ttft_target_ms = a.traffic.ttft_target_ms;
  r.tpot_target_ms = a.traffic.tpot_target_ms;
  r.price_per_node_hour = a.traffic.price;
  const auto catalogue = planner::load_catalogue(a.data);
  if (!catalogue.ok()) return command_failed("plan search", catalogue.status());
  const auto result = planner::search_layouts(*catalogue, r);
  if (!result.ok()) return command_failed("plan search", result.status());
  fmt::print("{}", a.json ? planner::to_json(*result).dump(1) + "\n" : planner::format_search(*result, a.shown));
  if (result->ranked.empty()) return 1;
  if (!a.write.empty()) {
    if (a.rank < 1 || a.rank > result->ranked.size()) {
      return command_failed("plan search", invalid_argument("--rank: {} layouts were found", result->ranked.size()));
    }
    const auto status = planner::write_plan_file(result->ranked[a.rank - 1].plan, a.write);
    if (!status.ok()) return command_failed("plan search", status);
  }
  return 0;
}

}  // namespace

void register_plan_search(const CommandGroups& groups, int& exit_code) {
  auto a = std::make_shared<SearchArguments>();
  CLI::App* command = groups.plan->add_subcommand("search", "The best layouts for given nodes, traffic and targets");
  command->add_option("--model", a->request.model, "Model of the catalogue")->capture_default_str();
  command->add_option("--checkpoint", a->request.checkpoint, "Path or repository that the plan names");
  command->add_option("--format", a->request.format, "Weights on this hardware")->capture_default_str();
  command->add_option("--node", a->request.hardware, "Node of the catalogue")->capture_default_str();
  command->add_option("--nodes", a->request.nodes, "Nodes to divide")->required();
  command->add_option("--engine", a->engine, "vllm-ascend or sglang")->capture_default_str();
  command->add_option("--engine-version", a->request.engine_version, "Version that the launch files are for");
  command->add_option("--max-model-len", a->request.max_model_len, "Longest request")->required();
  command->add_option("--max-num-seqs", a->request.max_sequences, "Sequences of a group")->capture_default_str();
  command->add_option("--max-num-batched-tokens", a->request.max_batched_tokens, "Tokens of a step in a group")
      ->capture_default_str();
  command->add_option("--gpu-memory-utilization", a->request.memory_utilization, "Share of the device")
      ->capture_default_str();
  command->add_option("--draft-method", a->request.draft.method, "dspark, dflash, eagle3 or mtp");
  command->add_option("--draft-checkpoint", a->request.draft.checkpoint, "Path or repository of the draft");
  command->add_option("--drafts", a->request.draft.tokens, "Drafted tokens a step");
  command->add_option("--accepted", a->request.draft.accepted, "Measured tokens that leave a step");
  command->add_flag("--allow-tight", a->request.allow_tight, "Keep layouts that fit only in the kind reading");
  command->add_flag("--pd-only", a->request.disaggregated_only, "Only prefill and decode pools");
  command->add_option("--data", a->data, "Folder that replaces the built-in catalogues");
  command->add_option("--show", a->shown, "Layouts to print")->capture_default_str();
  command->add_option("--write", a->write, "Write a plan file");
  command->add_option("--rank", a->rank, "Which one --write keeps")->capture_default_str();
  command->add_flag("--json", a->json, "Machine-readable output");
  add_traffic_options(*command, a->traffic);
  command->callback([a, &exit_code] { exit_code = run(*a); });
}

}  // namespace perigee::cli
