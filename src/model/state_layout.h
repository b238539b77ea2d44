// Sizes and places of a sequence's state (spec 2.9, 3.3, 4.4), computed from the configuration alone.
//
// Recurrent part: one float array; per KDA layer the state [heads, K, V] and the last three convolution inputs
// [3, 3 * width], oldest first, channels q then k then v. Paged part: pages of 64 tokens; one page holds, for every MLA
// layer, the latent rows [64, kv + rope] and, with an indexer, the index keys [64, head_dim].
#pragma once

#include <cstdint>
#include <vector>

#include "checkpoint/model_config.h"
#include "kernels/kernels.h"

namespace perigee {

struct StateLayout {
  struct KdaPlace {
    std::int64_t state = -1;  // floats from the start of the recurrent array
    std::int64_t convolution = -1;
  };
  struct MlaPlace {
    std::int64_t latent = -1;  // bytes from the start of a page
    std::int64_t index = -1;   // -1: no indexer
  };

  StateLayout(const ModelConfig& config, KeyFormat key_format);

  KeyFormat key_format;
  std::int64_t recurrent_floats = 0;
  std::int64_t page_bytes = 0;
  std::vector<KdaPlace> kda;  // by layer; -1 in layers of the other kind
  std::vector<MlaPlace> mla;
};

}  // namespace perigee
