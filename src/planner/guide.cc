#include "planner/guide.h"

#include <algorithm>

#include "planner/deployment.h"
#include "planner/search.h"

namespace perigee::planner {
namespace {

constexpr std::int64_t kContext = 133120;
constexpr std::int64_t kPrompt = 8192;
constexpr std::int64_t kAnswer = 1024;
constexpr std::int64_t kRequests = 256;

std::string hardware_table(const Node& node, const Chip& chip) {
  std::string out = "| what | value | source | confidence |\n| --- | --- | --- | --- |\n";
  const auto row = [&out](std::string_view what, const Sourced& number, std::string_view unit) {
    if (number.value > 0) {
      out += fmt::format("| {} | {}{} | {} | {} |\n", what, number.value, unit, number.source, number.confidence);
    }
  };
  row("devices of a node", node.devices, "");
  row("nodes of one scale-up group", node.max_group_nodes, "");
  row("memory of a device", chip.memory_gb, " GB");
  row("of it, seen by the allocator", chip.usable_gib, " GiB");
  row("memory bandwidth", chip.memory_tb_s, " TB/s");
  row("BF16, dense", chip.bf16_tflops, " TFLOPS");
  row("INT8 or FP8", chip.int8_tops, " TOPS");
  row("FP4", chip.fp4_tflops, " TFLOPS");
  row("link inside a node, a device", chip.node_link_gb_s, " GB/s");
  row("link between nodes, a device", chip.pod_link_gb_s, " GB/s");
  return out;
}

PoolPlan example_pool(std::int64_t nodes, std::int64_t per_node) {
  PoolPlan pool;
  pool.nodes = nodes;
  pool.parallel = {.tp = per_node, .dp = nodes, .pp = 1, .dcp = 1, .expert_parallel = true};
  pool.max_model_len = kContext;
  pool.max_batched_tokens = 8192;
  pool.max_sequences = 16;
  pool.hccl_buffer_mib = 1024;
  pool.graph_sizes = {1, 2, 4, 8, 16};
  return pool;
}

Result<std::string> memory_table(const Catalogue& catalogue, const Guide& guide, const Node& node, const Chip& chip,
                                 std::string_view model) {
  std::string out = fmt::format(
      "| nodes | layout | GB needed of budget | verdict | context beside 16 slots | 128K sequences a group |\n"
      "| --- | --- | --- | --- | --- | --- |\n");
  const auto per_node = static_cast<std::int64_t>(node.devices.value);
  for (const std::int64_t nodes : {2, 4, 8, 16}) {
    MemorySetup setup;
    PERIGEE_ASSIGN_OR_RETURN(setup.shape, catalogue.model(model));
    setup.chip = &chip;
    PERIGEE_ASSIGN_OR_RETURN(setup.engine, catalogue.engine("vllm-ascend"));
    PERIGEE_ASSIGN_OR_RETURN(setup.format, find_format(guide.format));
    setup.pool = example_pool(nodes, per_node);
    if (setup.shape->moe.experts % setup.pool.parallel.ep() != 0) continue;
    PERIGEE_ASSIGN_OR_RETURN(const MemoryReport report, plan_memory(setup));
    out += fmt::format("| {} | DP{} TP{} EP{} | {:.1f} to {:.1f} of {:.1f} | {} | {} | {} |\n", nodes,
                       setup.pool.parallel.dp, setup.pool.parallel.tp, setup.pool.parallel.ep(), report.need_low / 1e9,
                       report.need_high / 1e9, report.budget / 1e9, verdict_name(report.verdict),
                       report.largest_context, report.largest_batch);
  }
  return out;
}

Result<std::string> published_table(const Catalogue& catalogue, const Node& node) {
  PERIGEE_ASSIGN_OR_RETURN(const auto all, load_layouts(""));
  std::vector<PublishedLayout> here;
  for (const auto& layout : all) {
    const auto other = catalogue.node(layout.node);
    if (other.ok() && (*other)->chip == node.chip && layout.model.starts_with("kimi")) here.push_back(layout);
  }
  PERIGEE_ASSIGN_OR_RETURN(const auto checks, check_layouts(catalogue, here));
  std::string out =
      "| layout | GB needed of budget | this planner | published | source |\n| --- | --- | --- | --- | --- |\n";
  for (const auto& check : checks) {
    out += fmt::format("| {} | {:.1f} to {:.1f} of {:.1f} | {} | {} | {} |\n", check.layout->name,
                       check.report.need_low / 1e9, check.report.need_high / 1e9, check.report.budget / 1e9,
                       verdict_name(check.report.verdict), verdict_name(check.layout->published), check.layout->source);
  }
  return out;
}

Result<std::string> step_table(const Catalogue& catalogue, const Guide& guide, const Node& node, const Chip& chip) {
  Plan plan;
  plan.model = "kimi-k3";
  plan.format = guide.format;
  plan.hardware = node.name;
  plan.devices_per_node = static_cast<std::int64_t>(node.devices.value);
  plan.chip = chip.family;
  plan.pools.push_back(example_pool(4, plan.devices_per_node));
  PERIGEE_ASSIGN_OR_RETURN(const Deployment deployment, open_plan(catalogue, plan, nullptr, 0));
  const EngineProfile& engine = *deployment.engine;
  std::string out = "| step of a group | ms | interval | largest term |\n| --- | --- | --- | --- |\n";
  const auto row = [&](const std::string& name, const StepTime& time) {
    out += fmt::format("| {} | {:.0f} | {:.0f} to {:.0f} | {} |\n", name, time.total(),
                       time.total() * engine.interval_low, time.total() * engine.interval_high, time.dominating());
  };
  for (const double sequences : {1.0, 4.0, 16.0}) {
    row(fmt::format("decode, {:.0f} sequence{} at {} tokens", sequences, sequences > 1 ? "s" : "", kPrompt),
        decode_step(deployment.pools[0], sequences, static_cast<double>(kPrompt)));
  }
  for (const double tokens : {1024.0, 8192.0}) {
    row(fmt::format("prefill, {:.0f} tokens", tokens), prefill_step(deployment.pools[0], tokens, 0));
  }
  return out;
}

Result<std::string> search_table(const Catalogue& catalogue, const Guide& guide) {
  SearchRequest request;
  request.format = guide.format;
  request.hardware = guide.node;
  request.nodes = guide.nodes;
  request.max_model_len = kContext;
  request.concurrency = guide.nodes * 16;
  request.traffic.requests = kRequests;
  request.traffic.input_mean = static_cast<double>(kPrompt);
  request.traffic.output_mean = static_cast<double>(kAnswer);
  PERIGEE_ASSIGN_OR_RETURN(const SearchResult result, search_layouts(catalogue, request));
  std::string out =
      "| layout | tokens/s | TTFT p90 s | TPOT p90 ms | node-hours a million tokens | why |\n"
      "| --- | --- | --- | --- | --- | --- |\n";
  std::size_t shown = 0;
  bool split_shown = false;
  for (const Candidate& c : result.ranked) {
    // The leaders, the best split, and the split that the engines' guides publish (TP over a whole node).
    const bool first_split = c.plan.disaggregated() && !split_shown;
    const bool guide_split = c.plan.disaggregated() && c.plan.pools[0].parallel.tp == c.plan.devices_per_node &&
                             c.plan.pools[1].parallel.tp == c.plan.devices_per_node &&
                             c.plan.pools[0].nodes == c.plan.pools[1].nodes;
    if (++shown > 4 && !first_split && !guide_split) continue;
    split_shown |= c.plan.disaggregated();
    out +=
        fmt::format("| {} | {:.0f} | {:.1f} | {:.0f} | {:.2f} | {} |\n",
                    fmt::format("{}{}", layout_name(c.plan), c.pareto ? " *" : ""), c.result.output_tokens_per_second,
                    c.result.ttft_ms.p90 / 1000, c.result.tpot_ms.p90, c.node_hours_per_million, c.reason);
  }
  out += "\n`*`: no other layout is better in cost, TTFT and TPOT together. Refused:\n\n";
  for (const RefusedLayout& refused : result.refused) out += fmt::format("* {}: {}\n", refused.layout, refused.reason);
  return out;
}

}  // namespace

const std::vector<Guide>& guides() {
  static const std::vector<Guide> all = {
      {"atlas-800-a3.md", "atlas-800-a3", "w4a8", 8},
      {"atlas-900-a3-superpod.md", "atlas-900-a3-superpod", "w4a8", 16},
      {"ascend-950-superpod.md", "ascend-950dt-node", "mxfp4-mxfp8", 8},
  };
  return all;
}

Result<std::string> write_guide(const Catalogue& catalogue, const Guide& guide) {
  PERIGEE_ASSIGN_OR_RETURN(const Node* node, catalogue.node(guide.node));
  PERIGEE_ASSIGN_OR_RETURN(const Chip* chip, catalogue.chip(node->chip));
  PERIGEE_ASSIGN_OR_RETURN(const std::string k3, memory_table(catalogue, guide, *node, *chip, "kimi-k3"));
  PERIGEE_ASSIGN_OR_RETURN(const std::string pro, memory_table(catalogue, guide, *node, *chip, "kimi-k3.1-pro"));
  PERIGEE_ASSIGN_OR_RETURN(const std::string published, published_table(catalogue, *node));
  PERIGEE_ASSIGN_OR_RETURN(const std::string steps, step_table(catalogue, guide, *node, *chip));
  PERIGEE_ASSIGN_OR_RETURN(const std::string search, search_table(catalogue, guide));
  const auto per_node = static_cast<std::int64_t>(node->devices.value);
  const auto first_port = static_cast<std::int64_t>(node->direct_transport_base_port.value) + 1000 * per_node;
  const ModelShape& shape = **catalogue.model("kimi-k3");
  std::string out = fmt::format(
      "# Kimi K3 on {}\n\n"
      "Written by `perigee plan guide {}` from the planner's catalogues; do not edit. Times are predictions of the "
      "model\n"
      "that `perigee plan validate` compares with published results; none of this was measured on {} by us.\n\n"
      "## Hardware\n\n{}\n"
      "Weights run here in: {}. Kimi K3 takes `{}` ({:.0f} GB as planned).\n\n",
      node->title, guide.node, node->title, hardware_table(*node, *chip), fmt::join(chip->weight_formats, ", "),
      guide.format, static_cast<double>(checkpoint_bytes(shape, *find_format(guide.format))) / 1e9);
  out += fmt::format(
      "## What fits\n\nOne instance, {} tokens a request, 16 sequences a group, memory utilisation 0.9. The range is "
      "that\n"
      "of the checkpoint (latent projections INT8 or BF16, router BF16 or F32) and of the sequence split.\n\n"
      "Kimi K3:\n\n{}\nKimi K3.1 Pro (K3 and an indexer; unvalidated, no engine release names it):\n\n{}\n",
      kContext, k3, pro);
  out += "## Published layouts\n\n" + published + "\n";
  out += fmt::format("## Step times\n\nDP4 TP{}, four nodes, no drafts, captured sizes up to 16.\n\n{}\n", per_node,
                     steps);
  out += fmt::format("## {} nodes\n\n{} requests of {} and {} tokens, {} in flight, caches cold, no drafts.\n\n{}\n",
                     guide.nodes, kRequests, kPrompt, kAnswer, guide.nodes * 16, search);
  out += fmt::format(
      "## Steps\n\n"
      "1. `perigee plan search --node {} --format {} --nodes {} --max-model-len {} --prompts 1000 --input {} --output "
      "{}\n"
      "   --concurrency {} --write plan.yaml`: choose a layout; add your targets with `--slo-ttft` and `--slo-tpot`.\n"
      "2. `perigee plan fit plan.yaml` and `perigee plan speed plan.yaml`: memory line by line, step times.\n"
      "3. `perigee plan simulate plan.yaml --trace FILE`: your own traffic.\n"
      "4. `perigee plan emit plan.yaml --out launch`: scripts, compose files, manifests, proxy, health checks and "
      "notes "
      "for\n"
      "   rollout, after the addresses of your nodes are in the plan (`hosts`). They have passed `perigee plan "
      "check`;\n"
      "   run it again on whatever you change: `perigee plan check launch/nodes/* launch/proxy/*`.\n"
      "5. `perigee verify endpoint http://FRONT:PORT` once it serves: acceptance through the API.\n\n"
      "Remember: `kv_port` at or above {} (direct transport takes {} to {}); equal drafts on prefill and decode "
      "servers;\n"
      "{} tokens are the shortest prefix that is cached at TP{}; a full batch must stay within the captured sizes.\n",
      guide.node, guide.format, guide.nodes, kContext, kPrompt, kAnswer, guide.nodes * 16, first_port,
      static_cast<std::int64_t>(node->direct_transport_base_port.value), first_port,
      hybrid_pages(shape, per_node, 0, 0).block_tokens, per_node);
  return out;
}

}  // namespace perigee::planner
