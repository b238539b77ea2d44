// Options of generated weights: the content of synth.json (spec synth.md 4).
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace perigee {

struct SynthOptions {
  std::uint64_t seed = 0;
  bool kda_small_bf16 = false;     // conv taps and o_norm as BF16 instead of F32
  std::int64_t a_log_rank = 4;     // unbounded gate only: 4 is [1, 1, H, 1], 1 is [H]
  bool indexer_small_f32 = false;  // weights_proj and k_norm as F32 instead of BF16
  bool indexer_norm_bias = false;  // whether k_norm.bias exists
  // (name ending, k): sigma of tensors with a normal rule and such a name is multiplied by 2^k, in list order.
  std::vector<std::pair<std::string, int>> scale;
};

// {"seed": n, "options": {...}}. Errors name the key.
Result<SynthOptions> parse_synth_options(const Json& document);

}  // namespace perigee
