// What one step must compute and read, from the configuration and the weights' formats alone: the numerators of a
// roofline.
#pragma once

#include <cstdint>

#include "checkpoint/model_config.h"
#include "checkpoint/weights.h"

namespace perigee {

class StepCost {
 public:
  // `config` outlives this object.
  StepCost(const ModelConfig& config, const ModelWeights& weights);

  // Operations (a multiply-add is two) of `tokens` of one sequence from `position` on, of which `heads` want logits.
  double flops(std::int64_t position, std::int64_t tokens, std::int64_t heads) const;

  // Bytes that a decode step of `batch` sequences at `depth` reads; experts by their expected number of distinct ones
  // under even routing.
  double bytes(std::int64_t depth, std::int64_t batch) const;

 private:
  void add(const Matrix& m);

  const ModelConfig& config_;
  double trunk_bytes_ = 0;
  double trunk_flops_ = 0;
  double head_flops_ = 0;
  double expert_bytes_ = 0;  // of one expert
  double expert_flops_ = 0;  // of all MoE layers and the chosen experts of one token
  std::int64_t moe_layers_ = 0;
};

}  // namespace perigee
