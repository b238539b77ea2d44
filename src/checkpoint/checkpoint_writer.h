// Writes a generated checkpoint in the released layout: shards with an index, config.json, generation_config.json.
// Bytes are made and written in ranges by all threads, so memory stays small whatever the model's size.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "checkpoint/synth_plan.h"

namespace perigee {

struct WriteOptions {
  std::int64_t shard_bytes = 5'000'000'000;  // a shard ends before it would pass this; one tensor is never split
  bool show_progress = false;
};

struct WriteSummary {
  std::int64_t tensors = 0;
  std::int64_t bytes = 0;  // of tensors
  std::int64_t shards = 0;
};

// `directory` is created, or must be empty. Checks the free space first. config.json is written last: a folder that
// was left half written is not taken for a checkpoint.
Result<WriteSummary> write_generated_checkpoint(const SynthSource& source, const std::string& directory,
                                                const WriteOptions& options);

// Cuts a config down to its first `layers` layers and to `experts` experts (0: as it is). Errors name the key.
Status shrink_config(Json& config, std::int64_t layers, std::int64_t experts);

}  // namespace perigee
