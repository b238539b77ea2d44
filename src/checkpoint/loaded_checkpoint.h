// The one implementation of Checkpoint: views into mapped files or into memory that it owns.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/file.h"
#include "checkpoint/bind.h"
#include "checkpoint/region.h"
#include "checkpoint/weights.h"

namespace perigee {

// What the bytes of a checkpoint live in and what was read from its config files.
struct CheckpointParts {
  std::string directory;
  std::string config_text;  // canonical dump of config.json, for the digest
  ModelConfig config;
  std::vector<std::string> files;  // names for messages; TensorView::file counts them
  std::vector<MappedFile> mappings;
  std::vector<MemoryRegion> regions;
  TensorTable tensors;
  std::vector<std::string> warnings;
  SynthOptions variants;
};

class LoadedCheckpoint final : public Checkpoint {
 public:
  // Binds the weights; every check that needs shapes happens here.
  static Result<std::unique_ptr<Checkpoint>> create(CheckpointParts parts, const LoadOptions& options);

  const ModelConfig& config() const override { return parts_.config; }
  const ModelWeights& weights() const override { return weights_; }
  const TensorTable& tensors() const override { return parts_.tensors; }
  WeightsAs weights_as() const override { return weights_as_; }
  std::int64_t resident_bytes() const override { return resident_bytes_; }
  const std::string& directory() const override { return parts_.directory; }
  const std::vector<std::string>& warnings() const override { return parts_.warnings; }
  const std::string& digest() const override;

 private:
  CheckpointParts parts_;
  ModelWeights weights_;
  std::vector<std::unique_ptr<std::byte[]>> copies_;
  WeightsAs weights_as_ = WeightsAs::kStored;
  std::int64_t resident_bytes_ = 0;
  mutable std::once_flag digest_once_;
  mutable std::string digest_;
};

}  // namespace perigee
