// What one device (die) has to hold, line by line, and whether it fits (spec ascend.md 4). Bytes as doubles: low is
// the reading of the checkpoint that needs least (latent projections INT8, router BF16, sequence split), high the one
// that needs most. Pure functions, thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "planner/catalogue.h"
#include "planner/model_shape.h"
#include "planner/plan.h"

namespace perigee::planner {

struct MemorySetup {
  const ModelShape* shape = nullptr;
  const Chip* chip = nullptr;
  const EngineProfile* engine = nullptr;
  WeightFormat format{};
  PoolPlan pool;  // parallel sizes, limits, buffers, draft
  double cache_element_bytes = 2;
  double index_element_bytes = 2;
  std::int64_t mean_length = 0;  // tokens of a typical sequence, for the largest batch; 0: max_model_len
  bool vision = true;            // text-only servers drop the tower
};

enum class Verdict : std::uint8_t { kFits, kTight, kDoesNotFit };
std::string_view verdict_name(Verdict verdict);

struct MemoryLine {
  std::string name;
  double low = 0, high = 0;
  std::string why;
};

struct MemoryReport {
  std::vector<MemoryLine> lines;
  double need_low = 0, need_high = 0;
  double budget = 0;  // memory utilization x what the allocator sees
  Verdict verdict = Verdict::kDoesNotFit;
  // With the high reading where it fits, else with the low one; zero when the weights alone do not fit.
  std::int64_t largest_context = 0;  // tokens of one sequence beside the other slots
  std::int64_t largest_batch = 0;    // sequences of mean length in one group
  double cache_tokens = 0;           // that one group can hold beside its state slots
  double bytes_per_token = 0;        // on one device
  double bytes_per_slot = 0;
  std::int64_t block_tokens = 128;  // shortest prefix that can be cached
};

Result<MemoryReport> plan_memory(const MemorySetup& setup);

// Smallest HCCL_BUFFSIZE (MiB) for dispatch and combine of `tokens_per_rank` tokens (ascend.md 4.6).
double mc2_buffer_mib(const ModelShape& shape, std::string_view chip_family, std::int64_t ep,
                      std::int64_t tokens_per_rank);
// Tokens a rank dispatches in a step: largest captured size, else sequences x (1 + drafts), or the whole prefill
// budget with enable_prefill_mc2 (ascend.md 2.4).
std::int64_t mc2_tokens_per_rank(const PoolPlan& pool);

// Published layouts with the verdict that practice gave (layouts.yaml).
struct PublishedLayout {
  std::string name, model, format, node, engine, source;
  std::int64_t nodes = 1;
  PoolPlan pool;
  double cache_bytes = 2;
  bool vision = true;
  Verdict published = Verdict::kFits;  // kTight: it runs, and both fits and tight are right answers
};
Result<std::vector<PublishedLayout>> load_layouts(const std::string& directory);

struct LayoutCheck {
  const PublishedLayout* layout = nullptr;
  MemoryReport report;
  bool right = false;
};
Result<std::vector<LayoutCheck>> check_layouts(const Catalogue& catalogue, const std::vector<PublishedLayout>& layouts);

}  // namespace perigee::planner
