#include "model/step_cost.h"

#include <cmath>
#include <vector>

namespace perigee {
namespace {

double bytes_of(const Matrix& m) {
  return static_cast<double>(m.rows * m.row_bytes) +
         (m.scales == nullptr ? 0.0 : static_cast<double>(m.rows * m.scale_row_bytes));
}
std::vector<const Matrix*> matrices_of(const LayerWeights& layer) {
  const KdaWeights& kda = layer.kda;
  const MlaWeights& mla = layer.mla;
  const MoeWeights& moe = layer.moe;
  std::vector<const Matrix*> all = {&kda.q,
                                    &kda.k,
                                    &kda.v,
                                    &kda.f_a,
                                    &kda.f_b,
                                    &kda.b,
                                    &kda.g,
                                    &kda.g_a,
                                    &kda.g_b,
                                    &kda.o,
                                    &mla.q,
                                    &mla.q_a,
                                    &mla.q_b,
                                    &mla.kv_a,
                                    &mla.kv_b,
                                    &mla.g,
                                    &mla.o,
                                    &mla.indexer.q,
                                    &mla.indexer.k,
                                    &mla.indexer.weights,
                                    &moe.router,
                                    &moe.latent_down,
                                    &moe.latent_up,
                                    &moe.shared.gate,
                                    &moe.shared.up,
                                    &moe.shared.down,
                                    &layer.dense.gate,
                                    &layer.dense.up,
                                    &layer.dense.down};
  std::erase_if(all, [](const Matrix* m) { return m->empty(); });
  return all;
}

}  // namespace

StepCost::StepCost(const ModelConfig& config, const ModelWeights& weights) : config_(config) {
  for (const LayerWeights& layer : weights.layers) {
    for (const Matrix* m : matrices_of(layer)) add(*m);
  }
  add(weights.lm_head);  // counted once a sequence
  head_flops_ = 2.0 * static_cast<double>(weights.lm_head.rows * weights.lm_head.cols);
  trunk_flops_ -= head_flops_;
  if (config.moe.experts > 0) {
    for (const LayerWeights& layer : weights.layers) {
      if (layer.moe.experts.empty()) continue;
      ++moe_layers_;
      const MlpWeights& expert = layer.moe.experts.front();
      for (const Matrix* m : {&expert.gate, &expert.up, &expert.down}) {
        expert_flops_ += 2.0 * static_cast<double>(m->rows * m->cols * config.moe.top_k);
        expert_bytes_ += bytes_of(*m);
      }
    }
    expert_bytes_ /= static_cast<double>(moe_layers_);
  }
}

double StepCost::flops(std::int64_t position, std::int64_t tokens, std::int64_t heads) const {
  double total =
      (trunk_flops_ + expert_flops_) * static_cast<double>(tokens) + head_flops_ * static_cast<double>(heads);
  const KdaConfig& kda = config_.kda;
  total += 7.0 * static_cast<double>(config_.count(Mixer::kKda) * kda.heads * kda.head_dim * kda.head_dim * tokens);
  for (const LayerConfig& layer : config_.layers) {
    if (layer.mixer != Mixer::kMla) continue;
    for (std::int64_t t = 0; t < tokens; ++t) {
      const std::int64_t keys = position + t + 1;
      const bool sparse = layer.indexer && keys > config_.indexer.top_k;
      const std::int64_t attended = sparse ? config_.indexer.top_k : keys;
      total +=
          2.0 * static_cast<double>(attended * config_.mla.heads * (2 * config_.mla.kv_lora_rank + config_.mla.rope));
      if (sparse) total += 2.0 * static_cast<double>(keys * config_.indexer.heads * config_.indexer.head_dim);
    }
  }
  return total;
}

double StepCost::bytes(std::int64_t depth, std::int64_t batch) const {
  double total = trunk_bytes_;
  if (config_.moe.experts > 0) {
    const auto experts = static_cast<double>(config_.moe.experts);
    const double missed = std::pow(1.0 - static_cast<double>(config_.moe.top_k) / experts, static_cast<double>(batch));
    total += expert_bytes_ * static_cast<double>(moe_layers_) * experts * (1.0 - missed);
  }
  double sequence = 8.0 * static_cast<double>(config_.count(Mixer::kKda) * config_.kda.heads * config_.kda.head_dim *
                                              config_.kda.head_dim);
  for (const LayerConfig& layer : config_.layers) {
    if (layer.mixer != Mixer::kMla) continue;
    const bool sparse = layer.indexer && depth > config_.indexer.top_k;
    sequence += 2.0 * static_cast<double>((sparse ? config_.indexer.top_k : depth) * config_.mla.latent_row());
    if (sparse) sequence += 2.0 * static_cast<double>(depth * config_.indexer.head_dim);
  }
  return total + sequence * static_cast<double>(batch);
}

void StepCost::add(const Matrix& m) {
  trunk_bytes_ += bytes_of(m);
  trunk_flops_ += 2.0 * static_cast<double>(m.rows * m.cols);
}
}  // namespace perigee
