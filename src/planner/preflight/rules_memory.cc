// Rule 8.4 (and the second half of 8.5): does a die hold what the command line asks for? The memory model is that of
// `perigee plan fit` (memory.h); here it only gets its numbers from a launch file.
#include <fmt/format.h>

#include <algorithm>

#include "planner/memory.h"
#include "planner/preflight/server.h"

namespace perigee::planner {

namespace {

std::optional<MemorySetup> setup_of(const Server& server) {
  if (server.model.shape == nullptr || server.chip == nullptr || server.model.format.empty()) return std::nullopt;
  const auto tp = server.tp.get(1);
  const auto dp = server.dp.get(1);
  const auto pp = server.pp.get(1);
  const auto dcp = server.dcp.get(1);
  const auto drafts = server.drafts.get(0);
  const auto batched = server.batched.get(8192);
  if (!tp || !dp || !pp || !dcp || !drafts || !batched || server.launch->open) return std::nullopt;
  if (server.pcp.get(1).value_or(0) != 1)
    return std::nullopt;  // rule 8.14 refuses it; the memory model has no such axis
  if (!server.context.known() || !server.sequences.known() || server.context.value < 1) return std::nullopt;
  const Catalogue& catalogue = built_in_catalogue();
  const auto chip = catalogue.chip(server.chip->hardware);
  const auto engine = catalogue.engine("vllm-ascend");
  std::string format_name = server.model.format;
  if (format_name == "mxfp4" && server.chip->name == "950") format_name = "mxfp4-mxfp8";
  const auto format = find_format(format_name);
  if (!chip.ok() || !engine.ok() || !format.ok()) return std::nullopt;
  MemorySetup setup;
  setup.shape = server.model.shape;
  setup.chip = *chip;
  setup.engine = *engine;
  setup.format = *format;
  PoolPlan& pool = setup.pool;
  pool.role = server.prefill() ? Role::kPrefill : server.decode() ? Role::kDecode : Role::kMixed;
  pool.parallel.tp = *tp;
  pool.parallel.dp = *dp;
  pool.parallel.pp = *pp;
  pool.parallel.dcp = *dcp;
  pool.parallel.expert_parallel = server.expert_parallel;
  pool.max_model_len = server.context.value;
  pool.max_batched_tokens = *batched;
  pool.max_sequences = server.sequences.value;
  if (const Argument* utilization = server.launch->argument("--gpu-memory-utilization")) {
    if (utilization->values.empty() || utilization->values[0].text.unknown()) return std::nullopt;
    Value value;
    value.kind = ValueKind::kString;
    value.text = utilization->values[0].text;
    const auto number = value.number();
    if (!number || *number <= 0 || *number > 1) return std::nullopt;
    pool.memory_utilization = *number;
  }
  pool.graphs = !server.eager;
  for (const auto& [size, line] : server.graph_sizes) pool.graph_sizes.push_back(size);
  int line = 0;
  pool.flashcomm1 = server.flashcomm(line);
  pool.prefill_mc2 = server.switched_on({"enable_prefill_mc2"});
  pool.shared_expert_dp = server.switched_on({"enable_shared_expert_dp"});
  if (*drafts > 0) {
    pool.draft.tokens = *drafts;
    const Value* method = server.speculative == nullptr ? nullptr : server.speculative->find("method");
    pool.draft.method = method == nullptr ? "mtp" : method->str();
  }
  setup.vision = !server.launch->flag("--language-model-only");
  return setup;
}

}  // namespace

void Rules::memory(const Server& server) {
  if (!server.vllm() || !server.ascend()) return;
  auto setup = setup_of(server);
  if (!setup) return;
  const Setting* buffer = server.launch->env("HCCL_BUFFSIZE");
  const auto size = buffer == nullptr ? std::optional<std::int64_t>(200) : human_integer(buffer->text.value);
  if (!size || *size < 0 || *size > 1000000) return;
  setup->pool.hccl_buffer_mib = *size;
  const auto report_full = plan_memory(*setup);
  if (!report_full.ok()) return;
  const double gb = 1e9;
  if (report_full->verdict == Verdict::kTight) {
    report(server, "8.4", Severity::kNote, server.line_of(server.context),
           fmt::format("Tight: {:.1f} to {:.1f} GB a die of {:.1f} GB.", report_full->need_low / gb,
                       report_full->need_high / gb, report_full->budget / gb),
           "measure with npu-smi before you rely on it");
  }
  // Published layouts lie within a few per cent of the model; a file is only refused beyond that.
  if (report_full->verdict != Verdict::kDoesNotFit || report_full->need_low < 1.04 * report_full->budget) return;
  const std::string need =
      fmt::format("{:.1f} to {:.1f} GB a die are needed, {:.1f} GB are there", report_full->need_low / gb,
                  report_full->need_high / gb, report_full->budget / gb);
  const auto tokens = mc2_tokens_per_rank(setup->pool);
  const double wanted =
      mc2_buffer_mib(*setup->shape, setup->chip->family, std::max<std::int64_t>(1, setup->pool.parallel.ep()), tokens);
  if (buffer != nullptr && static_cast<double>(*size) > std::max(2048.0, 2 * wanted)) {
    MemorySetup smaller = *setup;
    smaller.pool.hccl_buffer_mib = std::max<std::int64_t>(200, align_up(static_cast<std::int64_t>(wanted), 100));
    const auto without = plan_memory(smaller);
    if (without.ok() && without->verdict != Verdict::kDoesNotFit) {
      report(server, "8.5", Severity::kError, buffer->line,
             fmt::format("A communicator holds twice HCCL_BUFFSIZE, {:.1f} GB here: {}.",
                         2 * static_cast<double>(*size) * 1.048576e-3, need),
             fmt::format("export HCCL_BUFFSIZE={}", smaller.pool.hccl_buffer_mib));
      return;
    }
  }
  std::string fix = "more nodes (a larger DP spreads the experts)";
  if (report_full->largest_context > 0) {
    std::int64_t fitting = 1;
    while (fitting * 2 <= report_full->largest_context) fitting *= 2;
    fix += fmt::format(", or --max-model-len {}, or DCP", fitting);
  }
  const MemoryLine* biggest = nullptr;
  for (const MemoryLine& line : report_full->lines) {
    if (biggest == nullptr || line.low > biggest->low) biggest = &line;
  }
  report(server, "8.4", Severity::kError, server.line_of(server.context),
         fmt::format("With DP{} TP{} it does not fit: {}{}.", setup->pool.parallel.dp, setup->pool.parallel.tp, need,
                     biggest == nullptr
                         ? std::string()
                         : fmt::format("; the largest part is {} with {:.1f} GB", biggest->name, biggest->low / gb)),
         fix);
}

}  // namespace perigee::planner
