#include "checkpoint/memory_plan.h"

#include <algorithm>

#include "base/checked.h"
#include "base/tokens.h"

namespace perigee {
namespace {

void count(KindBytes& kind, std::int64_t bytes, Dtype dtype) {
  ++kind.tensors;
  kind.bytes += bytes;
  kind.dtypes |= std::uint32_t{1} << static_cast<unsigned>(dtype);
}

// Every stored tensor that may stand for an entry of the inventory.
constexpr const char* kSuffixes[] = {".weight",       ".weight_packed",    ".weight_scale",
                                     ".weight_shape", ".weight_scale_inv", ".weight_zero_point"};

}  // namespace

std::int64_t SequenceBytes::total(std::int64_t tokens) const {
  return state() + align_up(tokens, kPageTokens) * per_token();
}

SequenceBytes sequence_bytes(const ModelConfig& config, const CacheElements& elements) {
  const std::int64_t kda = config.count(Mixer::kKda);
  const std::int64_t mla = config.count(Mixer::kMla);
  const std::int64_t indexed = std::ranges::count(config.layers, true, &LayerConfig::indexer);
  return {.recurrent = kda * config.kda.width() * config.kda.head_dim * 4,
          .convolution = kda * (config.kda.conv_kernel - 1) * 3 * config.kda.width() * elements.conv,
          .latent_per_token = mla * config.mla.latent_row() * elements.latent,
          .index_per_token = indexed * config.indexer.head_dim * elements.index};
}

WeightBytes planned_weight_bytes(const ModelConfig& config) {
  WeightBytes weights{};
  const SynthOptions options;
  for (const TensorSpec& spec : expected_tensors(config, options, nullptr)) {
    KindBytes& kind = weights[static_cast<std::size_t>(spec.kind)];
    for (const GeneratedTensor& tensor : stored_tensors(spec, options)) count(kind, tensor.bytes(), tensor.dtype);
  }
  return weights;
}

WeightBytes stored_weight_bytes(const ModelConfig& config, const TensorTable& tensors) {
  WeightBytes weights{};
  const auto look_up = [&](TensorKind kind, const std::string& name) {
    const TensorView* view = tensors.find(name);
    if (view == nullptr) return;
    count(weights[static_cast<std::size_t>(kind)], static_cast<std::int64_t>(view->data.size()), view->dtype);
  };
  for (const TensorSpec& spec : expected_tensors(config, {}, nullptr)) {
    if (!spec.name.ends_with(".weight")) {
      look_up(spec.kind, spec.name);
      continue;
    }
    for (const char* suffix : kSuffixes) look_up(spec.kind, replace_weight(spec.name, suffix));
  }
  return weights;
}

KindBytes sum(const WeightBytes& weights) {
  KindBytes total;
  for (const KindBytes& kind : weights) {
    total.tensors += kind.tensors;
    total.bytes += kind.bytes;
    total.dtypes |= kind.dtypes;
  }
  return total;
}

std::int64_t parameter_count(const ModelConfig& config) {
  std::int64_t count = 0;
  for (const TensorSpec& spec : expected_tensors(config, {}, nullptr)) {
    if (spec.optional) continue;
    count += spec.use == TensorUse::kDecay ? spec.rule.meaningful : spec.shape.elements();
  }
  return count;
}

}  // namespace perigee
