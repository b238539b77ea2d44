// Typed views of a loaded checkpoint. Matrices point into the mapped shards; small vectors (norms, taps, biases) are
// widened to float once. Read-only after load, so shared freely between threads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/matrix.h"
#include "base/status.h"
#include "checkpoint/model_config.h"
#include "checkpoint/synth_options.h"
#include "checkpoint/tensor.h"

namespace perigee {

using FloatVector = std::vector<float>;

struct KdaWeights {
  Matrix q, k, v;       // [width, hidden]
  FloatVector conv;     // [3 * width, 4]: q, k, v channels; tap 3 is the current token
  Matrix f_a, f_b;      // [head_dim, hidden], [width, head_dim]
  Matrix b;             // [heads, hidden]
  Matrix g;             // [width, hidden] when full rank
  Matrix g_a, g_b;      // [head_dim, hidden], [width, head_dim] otherwise
  FloatVector a;        // [heads] exp(A_log)
  FloatVector dt_bias;  // [width]
  FloatVector o_norm;   // [head_dim]
  Matrix o;             // [hidden, width]
};

struct IndexerWeights {
  Matrix q;                 // wq_b [heads * head_dim, q_lora_rank] (or hidden columns: takes x, spec 14.4)
  Matrix k;                 // wk [head_dim, hidden]
  Matrix weights;           // weights_proj [heads, hidden]
  FloatVector k_norm;       // [head_dim]
  FloatVector k_norm_bias;  // [head_dim] or empty
};

struct MlaWeights {
  Matrix q;         // q_proj, when q_lora_rank is 0
  Matrix q_a, q_b;  // [q_lora_rank, hidden], [heads * (nope + rope), q_lora_rank]
  FloatVector q_a_norm;
  Matrix kv_a;             // [kv_lora_rank + rope, hidden]
  FloatVector kv_a_norm;   // [kv_lora_rank]
  Matrix kv_b;             // [heads * (nope + v), kv_lora_rank], per head W_UK then W_UV
  Matrix g;                // [heads * v, hidden] or empty
  Matrix o;                // [hidden, heads * v]
  IndexerWeights indexer;  // empty matrices when the layer has none
};

struct MlpWeights {
  Matrix gate, up, down;
};

struct MoeWeights {
  Matrix router;                  // [experts, hidden]
  FloatVector router_bias;        // [experts]
  Matrix latent_down, latent_up;  // [latent, hidden], [hidden, latent]; empty without a latent
  FloatVector latent_norm;
  MlpWeights shared;                // empty without shared experts
  std::vector<MlpWeights> experts;  // gate = w1, up = w3, down = w2
};

struct AttnResWeights {
  FloatVector mix;  // [hidden] norm * proj; empty in models without AttnRes
};

struct LayerWeights {
  FloatVector input_norm, post_attention_norm;
  AttnResWeights attention_mix, mlp_mix;
  KdaWeights kda;  // one of kda and mla is filled, as LayerConfig says
  MlaWeights mla;
  MlpWeights dense;
  MoeWeights moe;
};

struct ModelWeights {
  Matrix embedding;  // [vocab, hidden]
  Matrix lm_head;    // [vocab, hidden]
  FloatVector final_norm;
  AttnResWeights output_mix;
  std::vector<LayerWeights> layers;
};

// kInt8: BF16 matrices are made int8 groups while the checkpoint is opened (checkpoint/requantise.h).
enum class WeightsAs : std::uint8_t { kStored, kInt8 };

struct LoadOptions {
  WeightsAs weights = WeightsAs::kStored;
  bool parallel_read = false;  // read shards into memory instead of mapping them
  bool show_progress = false;  // bytes/s and time left on stderr
};

// A checkpoint that passed every check. Owns the shards.
class Checkpoint {
 public:
  // `path`: a folder with config.json and safetensors (sharded or single), or a Hugging Face cache folder
  // (models--x--y with snapshots/ and refs/).
  static Result<std::unique_ptr<Checkpoint>> open(const std::string& path, const LoadOptions& options = {});
  virtual ~Checkpoint() = default;

  virtual const ModelConfig& config() const = 0;
  virtual const ModelWeights& weights() const = 0;
  // Every stored tensor, by name as stored: the parts of quantised matrices and the vision tensors too.
  virtual const TensorTable& tensors() const = 0;
  virtual WeightsAs weights_as() const = 0;
  // What the weights take of memory once all of them were read.
  virtual std::int64_t resident_bytes() const = 0;
  virtual const std::string& directory() const = 0;
  virtual const std::vector<std::string>& warnings() const = 0;
  // SHA-256 of config, shard headers and sampled tensor bytes: the model digest of cache keys (spec cache.md 1.4).
  virtual const std::string& digest() const = 0;
};

// A checkpoint of generated weights (spec synth.md) in memory: for tests, benchmarks and the default model.
Result<std::unique_ptr<Checkpoint>> synthesise_checkpoint(const Json& config, const Json* generation_config,
                                                          const SynthOptions& options, const LoadOptions& load = {});
// The same from a folder with config.json and, where they are there, generation_config.json and synth.json.
Result<std::unique_ptr<Checkpoint>> synthesise_checkpoint(const std::string& directory, const LoadOptions& load = {});

}  // namespace perigee
