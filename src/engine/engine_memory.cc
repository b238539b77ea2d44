#include <unistd.h>

#include <algorithm>
#include <limits>
#include <thread>

#include "base/checked.h"
#include "engine/open_engine.h"
#include "kernels/scratch.h"

namespace perigee {
namespace {

constexpr std::int64_t kDefaultBranches = 64;
// Of a key and thread: the indexer keeps the scores of four queries in prefill, scores and positions of two in decode.
constexpr std::int64_t kIndexScoreBytes = 4 * 4 + 2 * 4;

std::int64_t machine_memory() {
  return static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<std::int64_t>(::sysconf(_SC_PAGESIZE));
}

// Floats a token row that the buffers of src/model hold at once.
std::int64_t activation_floats(const ModelConfig& config) {
  const std::int64_t blocks = config.attn_res_block > 0
                                  ? ceil_div(static_cast<std::int64_t>(config.layers.size()), config.attn_res_block) + 1
                                  : 0;
  std::int64_t floats = config.hidden * (blocks + 6);
  floats += 10 * config.kda.width() + config.kda.heads + 2 * config.kda.head_dim;
  const MlaConfig& mla = config.mla;
  floats += mla.q_lora_rank + mla.heads * (mla.nope + mla.rope) + (mla.heads + 1) * mla.latent_row() +
            mla.heads * mla.kv_lora_rank + 2 * mla.heads * mla.v;
  const IndexerConfig& index = config.indexer;
  floats += index.heads * (index.head_dim + 1) + index.head_dim + index.top_k;
  const MoeConfig& moe = config.moe;
  const std::int64_t width = moe.latent > 0 ? moe.latent : config.hidden;
  floats += moe.experts + moe.top_k * 2 * (width + moe.expert_width) + 2 * width + 2 * moe.shared_width + config.hidden;
  return floats + 2 * config.dense_width;
}

std::string gib(std::int64_t bytes) {
  return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / (1 << 30));
}

}  // namespace

std::string EngineMemory::to_string() const {
  return fmt::format(
      "memory plan: {} = weights {} + activations {} + live states {} ({} branches) + key pages {} + snapshots {}; "
      "context {} tokens",
      gib(total), gib(weights), gib(activations), gib(live_states), branches, gib(pages), gib(snapshots),
      context_tokens);
}

Result<EngineMemory> plan_engine_memory(const Checkpoint& checkpoint, const StateLayout& layout,
                                        const EngineOptions& options) {
  const ModelConfig& config = checkpoint.config();
  EngineMemory plan;
  plan.total = options.memory_bytes > 0 ? options.memory_bytes : machine_memory() / 10 * 9;
  plan.weights = checkpoint.resident_bytes();
  const std::int64_t rows = options.scheduler.max_step_tokens;
  const std::int64_t threads =
      options.threads > 0 ? options.threads : static_cast<std::int64_t>(std::thread::hardware_concurrency());
  plan.activations = 4 * (rows * activation_floats(config) + kDefaultBranches * 3 * config.vocab) +
                     threads * kScratchSlots * kScratchSlotBytes;
  const std::int64_t state_bytes = layout.recurrent_floats * 4;
  const std::int64_t page_bytes = std::max<std::int64_t>(layout.page_bytes, 1);
  const std::int64_t model_limit =
      config.max_positions > 0 ? config.max_positions : std::numeric_limits<std::int64_t>::max();
  const std::int64_t wanted_context = options.context_tokens > 0 ? options.context_tokens : model_limit;
  if (std::ranges::any_of(config.layers, &LayerConfig::indexer)) {
    const std::int64_t most_keys =
        std::min(wanted_context,
                 std::max<std::int64_t>(plan.total - plan.weights - plan.activations, 0) / page_bytes * kPageTokens);
    plan.activations += kIndexScoreBytes * threads * most_keys;
  }
  const std::int64_t rest = plan.total - plan.weights - plan.activations;

  // Half of what is left goes to key pages, a quarter each at most to live states and to snapshots; one branch with a
  // context of one block must fit at least.
  const std::int64_t smallest = state_bytes + (kBlockTokens / kPageTokens) * page_bytes;
  if (rest < smallest) {
    return make_error(StatusCode::kResourceExhausted,
                      "memory: expected at least {} (weights {}, activations {} at {} tokens a step, one branch {}), "
                      "found {}",
                      gib(plan.weights + plan.activations + smallest), gib(plan.weights), gib(plan.activations), rows,
                      gib(smallest), gib(plan.total));
  }
  const std::int64_t wanted = options.max_branches > 0 ? options.max_branches : kDefaultBranches;
  plan.branches = std::clamp<std::int64_t>(rest / 4 / std::max<std::int64_t>(state_bytes, 1), 1, wanted);
  plan.live_states = plan.branches * state_bytes;
  plan.pages = std::max((rest - plan.live_states) / 3 * 2, (kBlockTokens / kPageTokens) * page_bytes);
  const std::int64_t longest = plan.pages / page_bytes * kPageTokens;
  plan.context_tokens = std::min(wanted_context, longest);
  if (options.context_tokens > longest) {
    return make_error(StatusCode::kResourceExhausted,
                      "context: expected at most {} tokens (key pages {}, {} bytes a token), found {}", longest,
                      gib(plan.pages), page_bytes / kPageTokens, options.context_tokens);
  }
  // Small models do not need all of it: no more pages than every branch can fill twice over.
  const std::int64_t useful = 2 * plan.branches * ceil_div(plan.context_tokens, kPageTokens) * page_bytes;
  plan.pages = std::min(plan.pages, useful);
  plan.snapshots = options.prefix_cache ? std::max<std::int64_t>(rest - plan.live_states - plan.pages, 0) / 2 : 0;
  return plan;
}

}  // namespace perigee
