// Sizes: heads, experts, buffers, graphs, memory, devices. Rules 8.1, 8.2, 8.4 to 8.9, 8.14 to 8.17, 8.26, 8.33,
// 8.34, 8.36 of spec ascend.md; formulas from its sections 2.4, 4.4, 4.6 and 4.8.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "planner/preflight/server.h"

namespace perigee::planner {

namespace {

constexpr std::int64_t kMib = std::int64_t{1} << 20;
constexpr std::int64_t kMc2TokensPerRank = 512;

std::vector<std::int64_t> divisors_up_to(std::int64_t number, std::int64_t limit) {
  std::vector<std::int64_t> out;
  for (std::int64_t i = 1; i <= std::min<std::int64_t>(number, limit); ++i) {
    if (number % i == 0 && (i & (i - 1)) == 0) out.push_back(i);
  }
  return out;
}

// Bytes of the MC2 buffer for b tokens a rank: spec ascend.md 4.6, fullmesh v1, no shared expert in dispatch.
std::int64_t mc2_bytes(std::int64_t experts, std::int64_t hidden, std::int64_t top_k, std::int64_t tokens) {
  const std::int64_t row = align_up(2 * hidden, 32) + 64;
  return 2 * (experts * tokens * align_up(row, 512) + top_k * tokens * align_up(2 * hidden, 512));
}

std::string list_text(const std::vector<std::int64_t>& values) {
  return fmt::format("[{}]", fmt::join(values, ","));
}

}  // namespace

void Rules::layout(const Server& server) {
  const auto tp = server.tp.get(1);
  const auto dcp = server.dcp.get(1);
  const bool heads_known = server.model.heads() > 0;
  bool tp_divides = true;
  if (heads_known && tp && *tp > 0) {
    // With attention data parallelism SGLang cuts the heads by tp / dp.
    std::int64_t cut = *tp;
    if (server.sglang() && server.launch->flag("--enable-dp-attention")) {
      const auto dp = server.dp.get(1);
      cut = dp && *dp > 0 && *tp % *dp == 0 ? *tp / *dp : 0;
    }
    if (cut > 0 && server.model.heads() % cut != 0) {
      tp_divides = false;
      const auto fitting = divisors_up_to(server.model.heads(), *tp);
      report(server, "8.1", Severity::kError, server.line_of(server.tp),
             fmt::format("{} attention heads of {} do not split into {} parts.", server.model.heads(),
                         server.model.name, cut),
             fmt::format("--tensor-parallel-size {}", fitting.empty() ? 1 : fitting.back()));
    }
  }
  if (tp && dcp && *dcp > 1 && *dcp > 0 && (*tp < *dcp || *tp % *dcp != 0)) {
    report(server, "8.1", Severity::kError, server.line_of(server.dcp),
           fmt::format("Decode context parallel {} does not divide tensor parallel {}.", *dcp, *tp),
           fmt::format("a --decode-context-parallel-size that divides {}", *tp));
  }
  const auto ep = server.ep();
  if (tp_divides && server.vllm() && ep && *ep > 1 && server.model.experts() > 0) {
    std::int64_t redundant = 0;
    bool known = true;
    for (const Value* value : {server.key({"eplb_config", "num_redundant_experts"}),
                               find_path(server.launch->config("--eplb-config"), {"num_redundant_experts"})}) {
      if (value == nullptr) continue;
      known = known && value->integer().has_value();
      redundant = std::max(redundant, value->integer().value_or(0));
    }
    if (known && (server.model.experts() + redundant) % *ep != 0) {
      const std::int64_t missing = align_up(server.model.experts() + redundant, *ep) - server.model.experts();
      report(server, "8.2", Severity::kError, server.dp.known() ? server.line_of(server.dp) : server.line_of(server.tp),
             fmt::format("{} experts{} do not split over EP = DP x TP = {} ranks.", server.model.experts(),
                         redundant > 0 ? fmt::format(" and {} redundant ones", redundant) : std::string(), *ep),
             fmt::format("a DP x TP that divides {}, or {} redundant experts", server.model.experts(), missing));
    }
  }
  if (server.model.hybrid() && server.vllm() && server.drafts.known() && server.drafts.value > 7 && server.ascend()) {
    report(server, "8.17", Severity::kError, server.line_of(server.drafts),
           fmt::format("{} drafts: the KDA verify operator takes at most 8 tokens a sequence, so 7 drafts.",
                       server.drafts.value),
           "\"num_speculative_tokens\": 7");
  }
  if (server.model.hybrid() && server.vllm() && tp && *tp > 0) {
    const HybridPages pages = hybrid_pages(*server.model.shape, *tp, 0, 0);
    if (pages.block_tokens > 0) {
      // Prefix caching is on by default.
      const Argument* caching = server.launch->argument("--enable-prefix-caching");
      const bool cached = caching == nullptr || !caching->flag.negated;
      const bool useless = cached && server.context.known() && server.context.value < pages.block_tokens;
      report(server, "8.16", useless ? Severity::kWarning : Severity::kNote,
             useless && caching != nullptr ? caching->line : server.line_of(useless ? server.context : server.tp),
             fmt::format("With TP{} a cache block holds {} tokens; shorter prefixes are never reused{}.", *tp,
                         pages.block_tokens,
                         useless ? fmt::format(", and --max-model-len is {}", server.context.value) : ""),
             useless ? fmt::format("--max-model-len above {}, or a larger TP", pages.block_tokens)
                     : "a larger TP makes the block smaller");
    }
  }
}

void Rules::context_parallel(const Server& server) {
  if (!server.vllm() || !server.ascend()) return;
  const auto dcp = server.dcp.get(1);
  const auto pcp = server.pcp.get(1);
  if (pcp && *pcp > 1) {
    const bool newer = compare_versions(server.version.empty() ? "999" : server.version, "0.26.0rc1") >= 0;
    if (newer || server.pp.get(1).value_or(1) > 1) {
      report(server, "8.14", Severity::kError, server.line_of(server.pcp),
             newer ? "Prefill context parallel must be 1 in this version."
                   : "Prefill context parallel does not work with pipeline stages in this version.",
             "--prefill-context-parallel-size 1");
    }
  }
  const bool parallel = (dcp && *dcp > 1) || (pcp && *pcp > 1);
  if (!parallel) return;
  const int line = dcp && *dcp > 1 ? server.line_of(server.dcp) : server.line_of(server.pcp);
  if (server.model.sparse && server.chip_is("950")) {
    report(server, "8.14", Severity::kError, line,
           "Context parallel with sparse attention is not supported on Ascend 950.",
           "--decode-context-parallel-size 1");
  }
  const bool drafting = server.drafts.state != Number::State::kAbsent;
  if (server.model.mla() && drafting && !server.disaggregated() && server.role != PdRole::kHidden) {
    report(server, "8.14", Severity::kError, line,
           "MLA decode context parallel with drafts works only in a prefill/decode deployment, not in mixed mode: the "
           "metadata builder fails.",
           "drop the drafts or --decode-context-parallel-size");
  }
  if (server.transfer != nullptr && (server.disaggregated() || server.pool != nullptr)) {
    const Number interleave = server.launch->number("--cp-kv-cache-interleave-size");
    const auto size = interleave.get(1);
    if (size && server.block.known() && *size != server.block.value) {
      report(
          server, "8.14", Severity::kError, interleave.absent() ? line : server.line_of(interleave),
          fmt::format("--cp-kv-cache-interleave-size {} differs from --block-size {}; a transferred cache needs them "
                      "equal.",
                      *size, server.block.value),
          fmt::format("--cp-kv-cache-interleave-size {}", server.block.value));
    } else if (size && interleave.absent() && !server.launch->open) {
      report(server, "8.14", Severity::kError, line,
             "A transferred cache under context parallel needs --cp-kv-cache-interleave-size equal to the block size; "
             "its default is 1.",
             "--cp-kv-cache-interleave-size with the value of --block-size");
    }
  }
}

// Rules 8.5 to 8.9: which way the experts' tokens take and what that way needs.
void Rules::mc2(const Server& server) {
  if (!server.vllm() || !server.ascend() || server.chip == nullptr) return;
  const auto ep = server.ep();
  const auto tp = server.tp.get(1);
  const std::int64_t experts = server.model.experts();
  if (!ep || !tp || *ep <= 1 || experts == 0 || *tp < 1) return;
  if (server.chip_is("a2") && experts > kMc2TokensPerRank) {
    report(server, "8.9", Severity::kNote, server.line(),
           fmt::format("{} experts on A2 always take the all-gather path: expert traffic grows with DP x tokens.",
                       experts),
           "nothing to change; plan for it");
  }
  const Value* fused = server.key({"enable_fused_mc2"});
  bool fused_on = server.switched_on({"enable_fused_mc2"});
  int fused_line = fused == nullptr ? 0 : fused->line;
  if (const Setting* setting = server.launch->env("VLLM_ASCEND_ENABLE_FUSED_MC2");
      setting != nullptr && compare_versions(server.version, "0.26.0rc1") < 0 && setting->text.value != "0") {
    fused_on = true;
    fused_line = setting->line;
  }
  if (fused_on) {
    if (*ep > 64) {
      report(server, "8.8", *ep > 128 ? Severity::kError : Severity::kWarning, fused_line,
             fmt::format("enable_fused_mc2 covers EP up to 32 (64 with MegaMoe); this layout has EP {}.", *ep),
             "remove enable_fused_mc2");
    }
    if (server.switched_on({"eplb_config", "dynamic_eplb"})) {
      report(server, "8.8", Severity::kError, fused_line, "enable_fused_mc2 does not work with dynamic EPLB.",
             "remove enable_fused_mc2 or dynamic_eplb");
    }
  }
  const bool prefill_mc2 = server.switched_on({"enable_prefill_mc2"});
  if (prefill_mc2 && server.batched.known() && server.batched.value > *tp * kMc2TokensPerRank) {
    report(server, "8.7", Severity::kError, server.line_of(server.batched),
           fmt::format(
               "With enable_prefill_mc2 a rank may get at most 512 tokens: TP{} x 512 = {} batched tokens, not {}.",
               *tp, *tp * kMc2TokensPerRank, server.batched.value),
           fmt::format("--max-num-batched-tokens {} or drop enable_prefill_mc2", *tp * kMc2TokensPerRank));
  }
  if (experts > 2048) {
    report(server, "8.6", Severity::kError, server.line(),
           fmt::format("MC2 takes at most 2048 experts, not {}.", experts), "drop --enable-expert-parallel");
  }
  // MC2 is taken on A3 and 950 with several ranks; on A2 only for small expert counts over 16 and more ranks.
  bool used = !fused_on;
  if (server.chip_is("a2")) used = used && experts <= 512 && *ep >= 16 && experts / *ep <= 24;
  if (!used) return;
  std::optional<std::int64_t> tokens;
  if (prefill_mc2) {
    tokens = server.batched.known() ? std::optional(server.batched.value) : std::nullopt;
  } else if (!server.graph_sizes.empty() && server.graph_sizes_known && !server.eager) {
    tokens = 0;
    for (const auto& [size, line] : server.graph_sizes) tokens = std::max(*tokens, size);
  } else if (server.sequences.known() && server.drafts.get(0)) {
    tokens = server.sequences.value * (1 + *server.drafts.get(0));
  }
  if (!tokens || *tokens < 1) return;
  const std::int64_t per_rank = std::min(kMc2TokensPerRank, (*tokens + *tp - 1) / *tp);
  if (server.chip_is("a2")) return;  // the A2 formula has its own, much smaller need
  const std::int64_t need =
      (mc2_bytes(experts, server.model.moe_width(), server.model.top_k(), per_rank) + kMib - 1) / kMib;
  const Setting* setting = server.launch->env("HCCL_BUFFSIZE");
  if (setting == nullptr && (server.launch->environment_open || server.launch->container >= 0)) {
    if (server.container == nullptr || server.container->open) return;
  }
  const auto size = setting == nullptr ? std::optional<std::int64_t>(200) : human_integer(setting->text.value);
  if (!size || *size >= need) return;
  std::int64_t fitting = 256;
  while (fitting < need) fitting *= 2;
  report(server, "8.5", Severity::kError, setting == nullptr ? server.line() : setting->line,
         fmt::format("{} tokens over TP{} are {} a rank; with {} experts of width {} dispatch and combine need {} MB, "
                     "HCCL_BUFFSIZE {} {}.",
                     *tokens, *tp, per_rank, experts, server.model.moe_width(), need,
                     setting == nullptr ? "is by default" : "is", *size),
         fmt::format("export HCCL_BUFFSIZE={}", fitting > need * 3 / 2 ? align_up(need, 100) : fitting));
}

void Rules::mega_moe(const Server& server) {
  if (!server.vllm() || !server.ascend()) return;
  const bool fused_on = server.switched_on({"enable_fused_mc2"});
  if (fused_on && server.disaggregated() && server.model.hybrid()) {
    report(server, "7.5", Severity::kWarning, server.key({"enable_fused_mc2"})->line,
           "MegaMoe in a prefill/decode deployment of K3 gave garbled text and device errors (VA#16914).",
           "remove enable_fused_mc2 (MC2 is used instead)");
  }
  const Value* capacity = server.key({"mega_moe_max_tokens"});
  const auto limit = capacity == nullptr ? std::nullopt : capacity->integer();
  const auto ep = server.ep();
  const auto dp = server.dp.get(1);
  if (!limit || !ep || !dp || !server.batched.known() || *ep <= 1 || server.model.top_k() == 0) return;
  const std::int64_t mean = server.batched.value * *dp * server.model.top_k() / *ep;
  if (*limit >= mean * 5 / 4) return;
  report(server, "8.34", *limit < mean ? Severity::kError : Severity::kWarning, capacity->line,
         fmt::format("A full step sends {} x {} x {} / {} = {} rows to a rank on average; a capacity of {} {}.", *dp,
                     server.batched.value, server.model.top_k(), *ep, mean, *limit,
                     *limit < mean ? "aborts on the first long prompt" : "leaves no room for uneven experts"),
         "65536 (default), or smaller --max-num-batched-tokens");
}

void Rules::graphs(const Server& server) {
  const auto drafts = server.drafts.get(0);
  const std::int64_t width = drafts ? *drafts + 1 : 0;
  int flash_line = 0;
  const auto tp = server.tp.get(1);
  if (server.vllm() && server.ascend() && server.flashcomm(flash_line) && drafts && *drafts > 0 && tp && *tp > 1) {
    const std::int64_t larger = std::max(*tp, width);
    if (larger % *tp != 0 || larger % width != 0) {
      std::vector<std::string> fitting;
      for (std::int64_t count = 1; count <= 15; ++count) {
        const std::int64_t top = std::max(*tp, count + 1);
        if (top % *tp == 0 && top % (count + 1) == 0) fitting.push_back(std::to_string(count));
      }
      report(server, "8.33", Severity::kError, server.line_of(server.drafts),
             fmt::format(
                 "FlashComm1 wants graph sizes that are multiples of TP ({}), drafts want multiples of {}: max({},{}) "
                 "is no multiple of both and the worker stops.",
                 *tp, width, *tp, width),
             fmt::format("{} drafts, or FlashComm1 off", fmt::join(fitting, " or ")));
    }
  }
  if (!server.graph_sizes_given || !server.graph_sizes_known || server.graph_sizes.empty() || server.eager) return;
  std::int64_t largest = 0;
  int largest_line = server.graph_sizes.front().second;
  for (const auto& [size, line] : server.graph_sizes) {
    if (size > largest) {
      largest = size;
      largest_line = line;
    }
  }
  std::vector<std::string> problems;
  int line = largest_line;
  std::int64_t wanted = 0;
  if (server.vllm() && width > 1) {
    for (const auto& [size, size_line] : server.graph_sizes) {
      if (size % width == 0) continue;
      problems.push_back(
          fmt::format("a decode step has 1+{} tokens a sequence and {} is no multiple of {}", *drafts, size, width));
      line = size_line;
      break;
    }
  }
  if (!server.prefill() && server.sequences.known() && width > 0) {
    wanted = server.sequences.value * (server.vllm() ? width : 1);
    if (server.sglang() && server.launch->flag("--enable-dp-attention")) {
      const auto dp = server.dp.get(1);
      if (!dp || *dp < 1) {
        wanted = 0;
      } else {
        wanted = (server.sequences.value + *dp - 1) / *dp;
      }
    } else if (server.sglang() && server.dp.get(1).value_or(0) > 1) {
      wanted = 0;
    }
    if (largest < wanted) {
      problems.push_back(fmt::format(
          "the largest size is {}, a full batch has {} tokens and runs eager, 2-4 times slower", largest, wanted));
    }
  }
  if (server.vllm() && server.batched.known() && largest > server.batched.value) {
    problems.push_back(fmt::format("a size of {} is above --max-num-batched-tokens {}", largest, server.batched.value));
  }
  if (problems.empty()) return;
  std::vector<std::int64_t> sizes;
  const std::int64_t unit = server.vllm() ? std::max<std::int64_t>(width, 1) : 1;
  const std::int64_t goal = wanted > 0 ? wanted : align_up(largest, unit);
  for (std::int64_t size = unit; size < goal; size *= 2) sizes.push_back(size);
  sizes.push_back(goal);
  report(server, "8.26", Severity::kWarning, line, fmt::format("Captured sizes: {}.", fmt::join(problems, "; ")),
         list_text(sizes));
}

void Rules::devices(const Server& server) {
  const auto ranks = server.local_ranks();
  const Setting* mask = server.launch->env("ASCEND_RT_VISIBLE_DEVICES");
  std::int64_t node = context_.devices_per_node;
  if (node == 0 && server.chip != nullptr) node = server.chip->devices;
  if (mask != nullptr && !mask->text.unknown()) {
    std::vector<std::int64_t> ids;
    std::string number;
    for (const char c : mask->text.value + ",") {
      if (c != ',') {
        if (c != ' ') number += c;
        continue;
      }
      if (const auto id = human_integer(number)) ids.push_back(*id);
      number.clear();
    }
    std::sort(ids.begin(), ids.end());
    const bool twice = std::adjacent_find(ids.begin(), ids.end()) != ids.end();
    if (!ids.empty() && (twice || (node > 0 && ids.back() >= node))) {
      report(
          server, "8.36", Severity::kError, mask->line,
          twice ? std::string("ASCEND_RT_VISIBLE_DEVICES names a device twice.")
                : fmt::format("ASCEND_RT_VISIBLE_DEVICES names device {}; the node has 0 to {}.", ids.back(), node - 1),
          fmt::format("ids between 0 and {}", node > 0 ? node - 1 : 15));
    } else if (ranks && !ids.empty() && *ranks > static_cast<std::int64_t>(ids.size())) {
      report(server, "8.36", Severity::kError, mask->line,
             fmt::format("The command starts {} ranks on this node, the mask shows {} devices.", *ranks, ids.size()),
             fmt::format("{} device ids, or smaller parallel sizes", *ranks));
    }
  }
  if (!ranks) return;
  const int line = server.dp.known() && server.dp.value > 1 ? server.line_of(server.dp) : server.line_of(server.tp);
  if (server.container != nullptr && server.container->kind == Container::Kind::kKubernetes) {
    for (const auto& [name, limit] : server.container->limits) {
      if (name.rfind("huawei.com/", 0) != 0) continue;
      const auto count = human_integer(limit.text.value);
      if (!count || server.container->group_size > 1 || *ranks <= *count) continue;
      report(server, "8.36", Severity::kError, line,
             fmt::format("TP x DP x PP of this command needs {} devices, the pod's limit gives {}.", *ranks, *count),
             fmt::format("{}: \"{}\", or smaller parallel sizes", name, *ranks));
      return;
    }
    return;
  }
  if (node > 0 && *ranks > node) {
    report(server, "8.36", Severity::kError, line,
           fmt::format("TP x DP x PP on this node needs {} devices, it has {}.", *ranks, node),
           "smaller sizes, or --data-parallel-size-local / --nnodes over several nodes");
    return;
  }
  if (server.container == nullptr || server.container->open || server.container->ascend_runtime) return;
  std::int64_t mapped = 0;
  for (const Setting& device : server.container->devices) {
    if (device.text.unknown()) return;
    const std::string& path = device.text.value;
    if (path.rfind("/dev/davinci", 0) == 0 && path.size() > 12 &&
        std::isdigit(static_cast<unsigned char>(path[12])) != 0)
      ++mapped;
  }
  if (mapped == 0 && server.container->privileged) return;
  if (mapped < *ranks && mapped > 0) {
    report(server, "8.36", Severity::kError, line,
           fmt::format("The command starts {} ranks, the container gets {} of /dev/davinciN.", *ranks, mapped),
           fmt::format("--device for {} of /dev/davinciN, or smaller parallel sizes", *ranks));
  }
}

}  // namespace perigee::planner
