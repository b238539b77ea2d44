// What a generated checkpoint consists of: shared by the in-memory generator and the writer of folders.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "checkpoint/model_config.h"
#include "checkpoint/synth_options.h"
#include "checkpoint/tensor_fill.h"

namespace perigee {

// Every stored tensor in the order of the inventory. Errors: formats and widths that cannot be generated.
Result<std::vector<GeneratedTensor>> generated_tensors(const ModelConfig& config, const SynthOptions& options);

// The files that describe a generated checkpoint: config.json and, where they are there, generation_config.json (else
// null) and synth.json.
struct SynthSource {
  std::shared_ptr<Json> config;
  std::shared_ptr<Json> generation_config;
  SynthOptions options;
};
Result<SynthSource> read_synth_source(const std::string& directory);

}  // namespace perigee
