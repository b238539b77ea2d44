// The normalised description of a model. A reader per model family fills it from config.json; after that nothing
// asks for a model's name, and every size of weights, states and caches is computed from here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace perigee {

enum class Mixer : std::uint8_t { kKda, kMla };
enum class FeedForward : std::uint8_t { kDense, kMoe };
enum class Activation : std::uint8_t { kSitu, kSwiglu };

struct KdaConfig {
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;  // K = V
  std::int64_t conv_kernel = 4;
  double gate_lower_bound = 0;  // < 0: bounded gate (spec 2.4); 0: unbounded
  bool full_rank_gate = false;  // output gate g_proj, else g_a_proj/g_b_proj
  std::int64_t width() const { return heads * head_dim; }
};

struct MlaConfig {
  std::int64_t heads = 0;
  std::int64_t q_lora_rank = 0;  // 0: a single q_proj
  std::int64_t kv_lora_rank = 0;
  std::int64_t nope = 0;
  std::int64_t rope = 0;  // never rotated in this family
  std::int64_t v = 0;
  bool output_gate = false;
  std::int64_t latent_row() const { return kv_lora_rank + rope; }
};

struct IndexerConfig {
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t top_k = 0;      // 0: no layer has an indexer
  bool sizes_assumed = false;  // config.json does not state heads and head_dim: the loader takes them from shapes
};

struct MoeConfig {
  std::int64_t experts = 0;
  std::int64_t top_k = 0;
  std::int64_t expert_width = 0;
  std::int64_t shared_width = 0;  // shared experts fused into one MLP; 0: none
  std::int64_t latent = 0;        // 0: experts act on the full hidden width
  bool latent_norm = false;
  bool renormalize = true;
  double scaling = 1.0;
  std::int64_t groups = 1;
  std::int64_t top_k_groups = 1;
};

// The image tower and its projector (spec 8.1, 8.2).
struct VisionConfig {
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t mlp_width = 0;
  std::int64_t layers = 0;
  std::int64_t patch = 0;
  std::int64_t table_height = 0;  // position table
  std::int64_t table_width = 0;
  std::int64_t table_time = 0;  // most frames of one item
  std::int64_t merge_height = 0;
  std::int64_t merge_width = 0;
  double projector_eps = 1e-5;
  std::int64_t qkv_width() const { return heads * head_dim; }
  std::int64_t merged_width() const { return hidden * merge_height * merge_width; }
};

// How config.json says that routed experts are stored. A hint for generated checkpoints and byte plans: the loader
// decides each tensor by what the shards hold (spec 7.1).
enum class ExpertFormat : std::uint8_t { kBf16, kMxfp4, kInt4Group32, kOther };

struct LayerConfig {
  Mixer mixer = Mixer::kKda;
  bool indexer = false;
  FeedForward feed_forward = FeedForward::kDense;
};

struct ModelConfig {
  std::string family;  // "kimi_linear", "kimi_k3", "kimi_k31": for people and prompt dialects, never for arithmetic
  std::string tensor_prefix;  // "" or "language_model."
  std::int64_t vocab = 0;
  std::int64_t hidden = 0;
  std::int64_t dense_width = 0;
  std::int64_t max_positions = 0;
  double rms_eps = 1e-5;
  double latent_norm_eps = 1e-6;  // q_a_layernorm and kv_a_layernorm (spec 1.5)
  double index_norm_eps = 1e-5;
  Activation activation = Activation::kSitu;
  double situ_beta = 4.0;
  double situ_linear_beta = 25.0;   // 0: the up branch is not capped
  std::int64_t attn_res_block = 0;  // 0: plain residual adds
  KdaConfig kda;
  MlaConfig mla;
  IndexerConfig indexer;
  MoeConfig moe;
  ExpertFormat expert_format = ExpertFormat::kBf16;
  std::int64_t extra_layers = 0;  // multi-token-prediction layers after the last one; their tensors are ignored
  std::vector<LayerConfig> layers;
  std::optional<VisionConfig> vision;

  std::int64_t bos_token = -1;
  std::int64_t pad_token = -1;
  std::vector<std::int64_t> stop_tokens;  // ascending: config.json, generation_config.json and [EOS] (chat.md 1.3)
  std::int64_t media_token = -1;          // embedding rows of images are spliced at this id; -1: no vision

  bool has_indexer() const { return indexer.top_k > 0; }
  std::int64_t count(Mixer mixer) const;
  std::int64_t first_special_token() const { return vocab - 256; }
};

// Reads config.json (and generation_config.json when it is there) of a checkpoint folder. Errors name the key, what
// was expected and what was found.
Result<ModelConfig> read_model_config(const std::string& directory);
Result<ModelConfig> parse_model_config(const Json& config, const Json* generation_config);

}  // namespace perigee
