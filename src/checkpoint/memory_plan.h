// Bytes of weights, of a sequence's state and of its caches (spec model.md 2.9, 3.3, 4.4, 13.1), computed from the
// config alone: what `inspect` prints. A test holds them equal to the engine's own layout (model/state_layout.h).
#pragma once

#include <array>
#include <cstdint>

#include "checkpoint/inventory.h"
#include "checkpoint/model_config.h"

namespace perigee {

// Element sizes of what a sequence keeps. The recurrent state is always F32 (spec 2.9).
struct CacheElements {
  std::int64_t conv = 2;    // bf16 is lossless on the bf16 path; 4 on the f32 path
  std::int64_t latent = 2;  // MLA rows
  std::int64_t index = 2;   // indexer keys
};
constexpr CacheElements kF32CacheElements{.conv = 4, .latent = 4, .index = 4};
// Our engine on the bf16 path: the recurrent array is float throughout (model/state_layout.h).
constexpr CacheElements kEngineCacheElements{.conv = 4};

struct SequenceBytes {
  std::int64_t recurrent = 0;         // all KDA layers, whatever the length
  std::int64_t convolution = 0;       // all KDA layers, 3 tokens
  std::int64_t latent_per_token = 0;  // all MLA layers
  std::int64_t index_per_token = 0;   // all layers with an indexer

  std::int64_t state() const { return recurrent + convolution; }
  std::int64_t per_token() const { return latent_per_token + index_per_token; }
  // State and the pages of `tokens` tokens (64 a page).
  std::int64_t total(std::int64_t tokens) const;
};
SequenceBytes sequence_bytes(const ModelConfig& config, const CacheElements& elements = {});

struct KindBytes {
  std::int64_t tensors = 0;
  std::int64_t bytes = 0;
  std::uint32_t dtypes = 0;  // bit 1 << Dtype for each that occurs
};
using WeightBytes = std::array<KindBytes, kTensorKinds>;  // indexed by TensorKind

// As the released format stores them.
WeightBytes planned_weight_bytes(const ModelConfig& config);
// As they are stored in these tensors.
WeightBytes stored_weight_bytes(const ModelConfig& config, const TensorTable& tensors);
KindBytes sum(const WeightBytes& weights);
// Elements of all tensors; padding and quantisation scales do not count.
std::int64_t parameter_count(const ModelConfig& config);

}  // namespace perigee
