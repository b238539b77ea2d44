#include "planner/memory.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/checked.h"

namespace perigee::planner {
namespace {

constexpr double kGib = 1073741824.0;
constexpr double kMib = 1048576.0;
constexpr double kBlockDraftLayers = 5;  // DSpark, DFlash
constexpr double kRuntimeWide = 4;       // bytes of a router weight held in F32

double number(std::int64_t value) {
  return static_cast<double>(value);
}
double align(double value, double to) {
  return std::ceil(value / to) * to;
}

struct Builder {
  MemoryReport report;
  void add(std::string name, double low, double high, std::string why) {
    if (high <= 0) return;
    report.lines.push_back({std::move(name), low, high, std::move(why)});
    report.need_low += low;
    report.need_high += high;
  }
};

void add_weights(const MemorySetup& s, Builder& out) {
  const ParameterCount p = count_parameters(*s.shape);
  const Parallel& cut = s.pool.parallel;
  const double tp = number(cut.tp);
  const double pp = number(cut.pp);
  const double trunk = s.format.trunk_bytes;
  if (p.routed > 0) {
    const double ways = cut.expert_parallel ? number(cut.ep()) : tp * number(cut.dp);
    const double experts =
        number(s.shape->moe.experts) * number(s.shape->moe_layers()) * expert_bytes(*s.shape, s.format) / ways / pp;
    out.add("routed experts", experts, experts,
            cut.expert_parallel ? fmt::format("1/{} by EP", cut.ep()) : fmt::format("1/{} by TP", cut.tp * cut.dp));
  }
  const double shared = s.pool.shared_expert_dp ? number(p.shared) : number(p.shared) / tp;
  const double split = number(p.attention_heads + p.kda + p.dense) / tp + shared;
  out.add("attention, shared and dense", split * trunk / pp, split * trunk / pp,
          s.pool.shared_expert_dp ? "1/TP, shared experts copied" : "1/TP");
  const double embedding = number(p.embedding) * 2 / tp / pp;
  out.add("embedding and head", embedding, embedding, "1/TP, BF16");
  const double copied = number(p.attention_shared + p.indexer) * trunk + number(p.norms) * 2;
  const double latent_low = number(p.latent) * trunk;
  const double latent_high = number(p.latent) * 2;
  out.add("copied projections and router", (copied + latent_low + number(p.router) * 2) / pp,
          (copied + latent_high + number(p.router) * kRuntimeWide) / pp,
          p.latent > 0 ? "latent projections INT8 or BF16, router BF16 or F32" : "router BF16 or F32");
  if (s.vision) out.add("vision tower", number(p.vision) * 2, number(p.vision) * 2, "copied, BF16");
}

double draft_layers(const DraftPlan& draft) {
  if (!draft.enabled()) return 0;
  return draft.method == "dspark" || draft.method == "dflash" ? kBlockDraftLayers : 1;
}

void add_draft(const MemorySetup& s, Builder& out) {
  if (!s.pool.draft.enabled()) return;
  const ParameterCount p = count_parameters(*s.shape);
  const double tp = number(s.pool.parallel.tp);
  if (s.pool.draft.method == "mtp") {
    const double mtp_experts = number(p.expert * s.shape->moe.experts * s.shape->mtp_layers);
    const double ep = number(std::max<std::int64_t>(s.pool.parallel.ep(), 1));
    const double rest = std::max(0.0, number(p.mtp) - mtp_experts);
    const double bytes = mtp_experts * s.format.expert_bits / 8 / ep + rest * s.format.trunk_bytes / tp;
    out.add("draft weights", bytes, bytes, "MTP layer, cut as the model");
    return;
  }
  // A block drafter: five attention layers and dense MLPs of about four times the width, BF16 (a reading, not a count).
  const double attention = number(p.attention_heads + p.attention_shared) / number(s.shape->attention.layers);
  const double mlp = 3.0 * number(s.shape->hidden) * 2.5 * number(s.shape->hidden);
  const double bytes = draft_layers(s.pool.draft) * (attention + mlp) * 2 / tp;
  out.add("draft weights", bytes, bytes, "estimate: no public tensor list");
}

void add_cache(const MemorySetup& s, Builder& out) {
  const PoolPlan& pool = s.pool;
  const ModelShape& shape = *s.shape;
  const double pp = number(pool.parallel.pp);
  double per_token = cache_bytes_per_token(shape, s.cache_element_bytes) / pp;
  if (shape.attention.kind == AttentionKind::kGqa) {
    per_token /= static_cast<double>(std::min(pool.parallel.tp, std::max<std::int64_t>(shape.attention.kv_heads, 1)));
  }
  const double row = shape.attention.layers > 0 ? per_token * pp / number(shape.attention.layers) : 0;
  if (pool.draft.enabled()) per_token += draft_layers(pool.draft) * row;
  per_token /= number(pool.parallel.dcp);
  per_token += index_bytes_per_token(shape, s.index_element_bytes) / pp;
  const auto layers = static_cast<std::int64_t>(pool.draft.method == "dspark" ? kBlockDraftLayers : 0);
  const HybridPages pages = hybrid_pages(shape, pool.parallel.tp, layers, pool.draft.tokens);
  out.report.bytes_per_token = per_token;
  out.report.bytes_per_slot = number(pages.slot_bytes) / pp;
  if (pages.block_tokens > 0) out.report.block_tokens = pages.block_tokens;
  const double context = per_token * number(pool.max_model_len);
  out.add("cache of one longest request", context, context,
          fmt::format("{} tokens x {:.0f} B{}", pool.max_model_len, per_token,
                      pool.parallel.dcp > 1 ? fmt::format(", latents 1/{} by DCP", pool.parallel.dcp) : ""));
  const double slots = number(pool.max_sequences) * out.report.bytes_per_slot;
  out.add("recurrent states", slots, slots,
          fmt::format("{} sequences x {:.1f} MB", pool.max_sequences, out.report.bytes_per_slot / 1e6));
}

void add_runtime(const MemorySetup& s, Builder& out) {
  const PoolPlan& pool = s.pool;
  const EngineProfile& e = *s.engine;
  const double mc2 = 2 * number(pool.hccl_buffer_mib) * kMib;
  out.add("MC2 buffers", mc2, mc2, fmt::format("2 x HCCL_BUFFSIZE {} MiB", pool.hccl_buffer_mib));
  const double others = e.communicators * 2 * e.group_buffer_mib * kMib;
  out.add("other HCCL groups", others, others,
          fmt::format("{:.0f} groups x 2 x {:.0f} MiB", e.communicators, e.group_buffer_mib));
  out.add("runtime", e.runtime_gib * kGib, e.runtime_gib * kGib, "CANN and torch_npu");
  if (pool.graphs) {
    const double graphs = e.graph_gb_per_five * 1e9 * number(std::ssize(pool.graph_sizes)) / 5;
    out.add("captured graphs", graphs, graphs, fmt::format("{} sizes", pool.graph_sizes.size()));
  }
  const double tokens = number(pool.max_batched_tokens);
  const double hidden = number(s.shape->hidden);
  const double stream = s.shape->attn_res_block > 0
                            ? std::ceil(number(s.shape->layers) / number(s.shape->attn_res_block)) * hidden * 2 * tokens
                            : 0;
  const double base = 2 * 2 * tokens * hidden;
  double moe = 0;
  if (s.shape->moe.experts > 0) {
    const double width = number(s.shape->moe.latent > 0 ? s.shape->moe.latent : s.shape->hidden);
    const double ways = pool.parallel.expert_parallel ? number(pool.parallel.ep()) : number(pool.parallel.devices());
    moe = 4 * 2 * number(pool.parallel.dp) * tokens * number(s.shape->moe.top_k) / ways * width;
  }
  const double tp = number(pool.parallel.tp);
  out.add("activations", (base + stream) / tp + moe, base + stream + moe,
          fmt::format("{} batched tokens; low: split over TP (FlashComm1)", pool.max_batched_tokens));
}

Status check(const MemorySetup& s) {
  if (s.shape == nullptr || s.chip == nullptr || s.engine == nullptr) {
    return invalid_argument("memory: model, chip and engine are needed");
  }
  const auto& formats = s.chip->weight_formats;
  if (std::find(formats.begin(), formats.end(), s.format.name) == formats.end()) {
    return invalid_argument("memory: {} cannot run weights in {}; it runs {}", s.chip->name, s.format.name,
                            fmt::join(formats, ", "));
  }
  const struct {
    const char* name;
    std::int64_t value;
  } needed[] = {{"max_model_len", s.pool.max_model_len},
                {"max_batched_tokens", s.pool.max_batched_tokens},
                {"max_sequences", s.pool.max_sequences}};
  for (const auto& input : needed) {
    if (input.value < 1) {
      return invalid_argument("memory: {} is needed and is never guessed: give the value of the launch command",
                              input.name);
    }
  }
  const Parallel& cut = s.pool.parallel;
  if (s.shape->attention.heads % cut.tp != 0 && s.shape->attention.heads > 0) {
    return invalid_argument("memory: tp {} does not divide {} attention heads", cut.tp, s.shape->attention.heads);
  }
  if (cut.expert_parallel && s.shape->moe.experts % std::max<std::int64_t>(cut.ep(), 1) != 0) {
    return invalid_argument("memory: {} experts cannot be spread evenly over EP {} (= DP {} x TP {})",
                            s.shape->moe.experts, cut.ep(), cut.dp, cut.tp);
  }
  return {};
}

}  // namespace

std::string_view verdict_name(Verdict verdict) {
  constexpr std::array<std::string_view, 3> names = {"fits", "tight", "does not fit"};
  return names[static_cast<std::size_t>(verdict)];
}

Result<MemoryReport> plan_memory(const MemorySetup& setup) {
  PERIGEE_RETURN_IF_ERROR(check(setup));
  Builder builder;
  add_weights(setup, builder);
  add_draft(setup, builder);
  add_runtime(setup, builder);
  const double low_rest = builder.report.need_low;
  const double high_rest = builder.report.need_high;
  add_cache(setup, builder);
  MemoryReport report = std::move(builder.report);
  report.budget = setup.pool.memory_utilization * setup.chip->usable_bytes();
  if (report.need_high <= report.budget) {
    report.verdict = Verdict::kFits;
  } else if (report.need_low <= report.budget) {
    report.verdict = Verdict::kTight;
  }
  const double room = report.budget - (report.verdict == Verdict::kFits ? high_rest : low_rest);
  if (room > 0 && report.bytes_per_token > 0) {
    const double beside_slots = room - number(setup.pool.max_sequences) * report.bytes_per_slot;
    report.cache_tokens = std::max(0.0, beside_slots / report.bytes_per_token);
    report.largest_context = static_cast<std::int64_t>(report.cache_tokens);
    const std::int64_t length = setup.mean_length > 0 ? setup.mean_length : setup.pool.max_model_len;
    report.largest_batch =
        static_cast<std::int64_t>(room / (report.bytes_per_slot + report.bytes_per_token * number(length)));
  }
  return report;
}

double mc2_buffer_mib(const ModelShape& shape, std::string_view chip_family, std::int64_t ep,
                      std::int64_t tokens_per_rank) {
  const double hidden = number(shape.moe.latent > 0 ? shape.moe.latent : shape.hidden);
  const double tokens = number(tokens_per_rank);
  const double top_k = number(shape.moe.top_k);
  const double local = std::ceil(number(shape.moe.experts) / number(std::max<std::int64_t>(ep, 1)));
  if (chip_family == "a2") {
    return 2 * (tokens * number(ep) * std::min(local, top_k) * hidden * 2 + 2 * kMib) / kMib;
  }
  const double row = align(align(2 * hidden, 32) + 64, 512);
  const double dispatch = local * tokens * number(ep) * row;
  const double combine = top_k * tokens * align(2 * hidden, 512);
  return 2 * (dispatch + combine) / kMib;
}

std::int64_t mc2_tokens_per_rank(const PoolPlan& pool) {
  std::int64_t tokens = pool.max_sequences * (1 + pool.draft.tokens);
  if (!pool.graph_sizes.empty()) tokens = *std::max_element(pool.graph_sizes.begin(), pool.graph_sizes.end());
  if (pool.prefill_mc2) tokens = pool.max_batched_tokens;
  const std::int64_t limit = pool.fused_mc2 > 0 && pool.prefill_mc2 ? 4096 : 512;
  return std::min(limit, ceil_div(tokens, pool.parallel.tp));
}

Result<std::vector<LayoutCheck>> check_layouts(const Catalogue& catalogue,
                                               const std::vector<PublishedLayout>& layouts) {
  std::vector<LayoutCheck> out;
  for (const PublishedLayout& layout : layouts) {
    MemorySetup setup;
    PERIGEE_ASSIGN_OR_RETURN(setup.shape, catalogue.model(layout.model));
    PERIGEE_ASSIGN_OR_RETURN(const Node* node, catalogue.node(layout.node));
    PERIGEE_ASSIGN_OR_RETURN(setup.chip, catalogue.chip(node->chip));
    PERIGEE_ASSIGN_OR_RETURN(setup.engine, catalogue.engine(layout.engine));
    PERIGEE_ASSIGN_OR_RETURN(setup.format, find_format(layout.format));
    setup.pool = layout.pool;
    setup.cache_element_bytes = setup.index_element_bytes = layout.cache_bytes;
    setup.vision = layout.vision;
    auto report = plan_memory(setup);
    if (!report.ok()) return report.status().with_context(layout.name);
    LayoutCheck check{.layout = &layout, .report = std::move(report).value(), .right = false};
    const bool said_fit = check.report.verdict != Verdict::kDoesNotFit;
    check.right = layout.published == Verdict::kFits    ? check.report.verdict == Verdict::kFits
                  : layout.published == Verdict::kTight ? said_fit
                                                        : !said_fit;
    out.push_back(std::move(check));
  }
  return out;
}

}  // namespace perigee::planner
