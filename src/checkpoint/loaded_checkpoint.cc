#include "checkpoint/loaded_checkpoint.h"

#include "checkpoint/digest.h"
#include "checkpoint/progress.h"
#include "checkpoint/requantise.h"
#include "checkpoint/scales.h"

namespace perigee {

Result<std::unique_ptr<Checkpoint>> LoadedCheckpoint::create(CheckpointParts parts, const LoadOptions& options) {
  auto checkpoint = std::make_unique<LoadedCheckpoint>();
  checkpoint->parts_ = std::move(parts);
  CheckpointParts& own = checkpoint->parts_;
  ModelConfig& config = own.config;
  const std::int64_t extra = config.extra_layers > 0 ? static_cast<std::int64_t>(config.layers.size()) : -1;
  const std::vector<TensorSpec> specs = expected_tensors(config, own.variants, &checkpoint->weights_);
  PERIGEE_ASSIGN_OR_RETURN(BindResult bound, bind_tensors(specs, own.tensors, own.files, extra));
  PERIGEE_ASSIGN_OR_RETURN(const ScaleCheck scales, check_scales(specs, kCompleteScaleBytes));
  if (scales.checked < scales.bytes) {
    own.warnings.push_back(fmt::format("scales: {} of {} were looked at for NaN (samples of large checkpoints)",
                                       format_bytes(scales.checked), format_bytes(scales.bytes)));
  }
  checkpoint->copies_ = std::move(bound.copies);
  checkpoint->weights_as_ = options.weights;
  for (const TensorView& tensor : own.tensors) {
    checkpoint->resident_bytes_ += static_cast<std::int64_t>(tensor.data.size());
  }
  if (options.weights == WeightsAs::kInt8) {
    const bool mapped = !own.mappings.empty();
    PERIGEE_ASSIGN_OR_RETURN(Requantised made, requantise_int8(specs, {mapped, options.show_progress}));
    checkpoint->resident_bytes_ += static_cast<std::int64_t>(made.region.bytes().size());
    if (mapped) checkpoint->resident_bytes_ -= made.replaced_bytes;
    own.regions.push_back(std::move(made.region));
  }
  own.warnings.insert(own.warnings.end(), bound.warnings.begin(), bound.warnings.end());
  if (config.vision && !bound.vision_found) {
    own.warnings.emplace_back("config.json describes a vision tower, but no file has its tensors: text only");
    config.vision.reset();
    config.media_token = -1;
  }
  return std::unique_ptr<Checkpoint>(std::move(checkpoint));
}

const std::string& LoadedCheckpoint::digest() const {
  std::call_once(digest_once_, [this] { digest_ = checkpoint_digest(parts_.config_text, parts_.tensors); });
  return digest_;
}

}  // namespace perigee
