// Shapes of a model as the planner needs them: parameters by the way in which they are cut, bytes in a format, bytes
// a token and a sequence keep, work a token costs. Formulas: spec model.md 1.7, ascend.md 4.1-4.4 and 5.1.
// Pure functions of values, thread-safe. Sizes are bytes or parameters, never GiB.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "checkpoint/model_config.h"

namespace perigee::planner {

enum class AttentionKind : std::uint8_t { kMla, kGqa, kShared };

struct AttentionShape {
  AttentionKind kind = AttentionKind::kMla;
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t q_rank = 0;  // 0: one query projection
  // MLA
  std::int64_t kv_rank = 0, nope = 0, rope = 0, v = 0;
  bool gate = false;
  // GQA and shared: width of a key (= value) head
  std::int64_t kv_heads = 0, head_dim = 0;
  // shared: grouped output projection; layers take the compression ratios in turn, the last `window` tokens stay whole
  std::int64_t o_groups = 0, o_rank = 0, window = 0;
  std::vector<std::int64_t> ratios;
};

struct VisionShape {
  std::int64_t layers = 0, hidden = 0, qkv = 0, mlp = 0, patch = 0, table = 0, merge = 0;
};

struct ModelShape {
  std::string name, title, source, confidence;
  std::int64_t published_parameters = 0;  // what others state; 0: unknown
  std::int64_t layers = 0, dense_layers = 0, dense_width = 0, hidden = 0, vocab = 0, max_positions = 0;
  AttentionShape attention;
  KdaConfig kda;
  std::int64_t kda_layers = 0;
  IndexerConfig indexer;  // on every attention layer (MLA), or on the layers of the smallest ratio (shared)
  MoeConfig moe;
  std::int64_t attn_res_block = 0;
  std::int64_t mtp_layers = 0;
  VisionShape vision;
  bool released_f32 = false;  // convolutions, decay, output norm and correction bias stored as F32 (model.md 1.6)

  std::int64_t moe_layers() const { return moe.experts > 0 ? layers - dense_layers : 0; }
  std::int64_t indexer_layers() const;
};

// Parameters grouped by their cut (ascend.md 4.2 and 4.7).
struct ParameterCount {
  std::int64_t expert = 0;            // one routed expert
  std::int64_t routed = 0;            // all of them
  std::int64_t shared = 0;            // by TP
  std::int64_t latent = 0;            // latent projections and their norm: replicated
  std::int64_t router = 0;            // with correction bias: replicated
  std::int64_t attention_heads = 0;   // by TP
  std::int64_t attention_shared = 0;  // down-projections and norms: replicated
  std::int64_t kda = 0;               // by TP
  std::int64_t indexer = 0;           // replicated
  std::int64_t dense = 0;             // by TP
  std::int64_t embedding = 0;         // table and head: by TP
  std::int64_t norms = 0;             // with the attention residual's vectors: replicated
  std::int64_t vision = 0;            // replicated
  std::int64_t f32_elements = 0;      // of the above, stored in F32 in the released container
  std::int64_t padding = 0;           // stored elements that are no parameters (A_log)
  std::int64_t mtp = 0;               // draft layers shipped with the model; not in total()
  std::int64_t total() const;
  std::int64_t text() const { return total() - vision; }
  std::int64_t trunk() const { return total() - routed; }
};

ParameterCount count_parameters(const ModelShape& shape);
std::int64_t active_parameters(const ModelShape& shape);

// How weights are stored. `trunk_bytes` holds for matrices; embedding, head, vision and norms stay at 2 bytes.
struct WeightFormat {
  std::string_view name;
  double expert_bits;        // without scales
  std::int64_t group;        // elements a scale covers along the input; 0: one scale an output row; -1: none
  std::int64_t scale_bytes;  // of one scale
  double trunk_bytes;
  double compute_bytes;  // width of the multiplication: 2 BF16, 1 INT8 or FP8
  bool released_trunk;   // the trunk as released: BF16 with the F32 tensors
};

// bf16, mxfp4, int4-g32, int4-channel (containers), w4a8, w8a8, w4a16, mxfp4-mxfp8 (deployments).
Result<WeightFormat> find_format(std::string_view name);
std::vector<std::string_view> format_names();

// Bytes of one routed expert, with scales.
double expert_bytes(const ModelShape& shape, const WeightFormat& format);
// Bytes of a whole checkpoint. Exact for bf16 (2 bytes a parameter), mxfp4 and the INT4 containers.
std::int64_t checkpoint_bytes(const ModelShape& shape, const WeightFormat& format);
// Half a byte a parameter: the figure in the press, without scales and without the BF16 remainder. Never plan with it.
std::int64_t nominal_int4_bytes(const ModelShape& shape);

// What a sequence keeps. Latents and index keys count one token on one device (replicated over TP except DCP).
double cache_bytes_per_token(const ModelShape& shape, double element_bytes);  // latents or keys and values, before TP
double index_bytes_per_token(const ModelShape& shape, double element_bytes);
std::int64_t state_bytes_per_sequence(const ModelShape& shape, std::int64_t state_element_bytes);  // KDA, whole model

// Token pages of hybrid models: the KDA state of one layer sets the page, and KDA layers are padded to groups
// (ascend.md 4.4). Zero for models without KDA.
struct HybridPages {
  std::int64_t block_tokens = 0;  // shortest prefix that can be cached
  std::int64_t page_bytes = 0;
  std::int64_t slot_bytes = 0;     // state of one sequence on one device
  std::int64_t padded_layers = 0;  // places for KDA layers
};
HybridPages hybrid_pages(const ModelShape& shape, std::int64_t tp, std::int64_t draft_layers, std::int64_t drafts);

// What queries touch, all attention layers together. A sum over queries is enough to describe them, because every
// kind is linear in (queries, sum of contexts, sum of min(context, select_limit)).
struct AttentionReach {
  double pairs = 0;      // query-key pairs
  double gathered = 0;   // of these, selected by an indexer
  double scored = 0;     // index scores
  double rows_read = 0;  // rows that layers without selection hold for those contexts
};
// Contexts above this are cut by the indexer; infinity without one.
double select_limit(const ModelShape& shape);
AttentionReach attention_reach(const ModelShape& shape, double queries, double sum_context, double sum_selected);
// The same for one query.
AttentionReach attention_reach(const ModelShape& shape, double context);

// FLOPs of one token at that context (multiply and add counted as two), and bytes of expert traffic.
struct TokenWork {
  double matrix_flops = 0;
  double attention_flops = 0;  // absorbed form
  double index_flops = 0;
  double recurrence_flops = 0;
  double expert_dispatch_bytes = 0;  // one byte an element, to every chosen expert, all layers
  double expert_combine_bytes = 0;   // two bytes an element
};
TokenWork token_work(const ModelShape& shape, double context);

// From a checkpoint's configuration. The K3 family goes through ModelConfig; DeepSeek-style configurations
// (n_routed_experts) are read here. Errors name the key.
ModelShape shape_from_config(const ModelConfig& config);
Result<ModelShape> shape_from_json(const Json& config);
Result<ModelShape> read_model_shape(const std::string& directory);

}  // namespace perigee::planner
