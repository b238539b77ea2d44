// The time of one engine step by operator roofline plus host and launch costs (spec ascend.md 5.2, sharpened).
//
//   t = host + layers x launch + max(F / (compute x peak), W / (memory x HBM))
//     + max(A / (attention x BF16 peak), K / (memory x HBM)) + experts' link + TP link + draft
//
// F matrix work, W weights read, A attention work, K cache rows read, all on one device. Rows that a sparse attention
// selects are gathered by every query token for itself: nothing is shared between the tokens of a step, which is what
// bounds sparse prefill at high TP. Milliseconds. Immutable after construction, thread-safe.
#pragma once

#include <cstdint>
#include <string_view>

#include "planner/catalogue.h"
#include "planner/model_shape.h"
#include "planner/plan.h"

namespace perigee::planner {

// Everything about a pool that the time of its steps depends on.
struct StepSetup {
  const ModelShape* shape = nullptr;
  const Chip* chip = nullptr;
  std::int64_t devices_per_node = 8;
  WeightFormat format{};
  Parallel parallel;
  EngineTimes times;
  double cache_element_bytes = 2;
  DraftPlan draft;
  std::int64_t query_tokens = 0;         // of a decoding sequence in a step; 0: one and the drafts
  std::int64_t captured_tokens = 0;      // largest captured graph, in tokens of one group; 0: eager
  bool sparse_context_parallel = false;  // enable_dsa_cp: prefill tokens, not heads, are split over TP in attention
  std::int64_t indexer_every = 1;        // layers that share one selection (index_topk_freq)
  bool kernel_only = false;              // operator traces: no host time, no eager launches
};

// One group's share of a step, averaged over the groups that run in lock-step.
struct StepLoad {
  double prefill_tokens = 0;    // computed in this step
  double prefill_context = 0;   // sum over those tokens of their context
  double prefill_selected = 0;  // sum over those tokens of min(context, select_limit)
  double prompts = 0;           // prompts that end in this step
  double sequences = 0;         // decoding
  double context = 0;           // sum over those
  double pool_tokens = 0;       // query tokens of all groups together; 0: groups are equal

  // Adds tokens [begin, end) of one prompt.
  void add_prompt(double begin, double end, double select_limit);
};

struct StepTime {
  double host = 0, launch = 0, matrix = 0, attention = 0, expert_link = 0, tensor_link = 0, draft = 0;
  bool weights_bound = false;  // matrix: memory, not arithmetic
  bool cache_bound = false;    // attention: memory, not arithmetic
  bool captured = false;
  double total() const { return host + launch + matrix + attention + expert_link + tensor_link + draft; }
  std::string_view dominating() const;
};

class StepModel {
 public:
  explicit StepModel(const StepSetup& setup);
  StepTime step(const StepLoad& load) const;
  const StepSetup& setup() const { return setup_; }
  // Tokens that one decoding sequence puts into a step, and mean tokens that leave it.
  double limit() const { return select_limit_; }
  double tokens_per_sequence() const {
    return static_cast<double>(setup_.query_tokens > 0 ? setup_.query_tokens : 1 + setup_.draft.tokens);
  }
  double accepted() const { return setup_.draft.enabled() ? setup_.draft.accepted : 1.0; }

 private:
  StepSetup setup_;
  double select_limit_ = 0;
  double split_params_ = 0;     // cut by TP, on one device
  double sequence_params_ = 0;  // replicated, applied to a 1/TP share of the tokens
  double copied_params_ = 0;    // replicated, applied to every token
  double head_params_ = 0;
  double resident_bytes_ = 0;  // weights that every step reads
  double expert_bytes_ = 0;    // all experts of a device
  double expert_flops_ = 0;    // of one pool token on one device
  double log_miss_ = 0;        // log of the chance that a token leaves an expert alone
  double heads_ = 0;           // on one device
  double row_bytes_ = 0;       // of a cached row in one layer on one device
  double index_row_bytes_ = 0;
  double prefill_width_ = 0;  // multiply-adds of a query-key pair and head, both products
  double decode_width_ = 0;
  double state_bytes_ = 0;  // recurrent state of a query on a device, read and written
  double index_flops_ = 0;  // of one score
  double expert_link_bytes_ = 0, tensor_link_bytes_ = 0, slow_link_bytes_ = 0;  // of one token of the group; pool token
  double peak_ = 0, attention_peak_ = 0, memory_ = 0;                           // per millisecond, efficiencies applied
  double expert_rate_ = 0, tensor_rate_ = 0, slow_rate_ = 0;
};

}  // namespace perigee::planner
