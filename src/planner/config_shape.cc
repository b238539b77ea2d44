// Reading model shapes from config.json.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "planner/model_shape.h"

namespace perigee::planner {
namespace {

Result<std::int64_t> integer_at(const Json& object, const char* key, std::int64_t fallback, bool required) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) {
    if (required) return invalid_argument("config.json: the key '{}' is missing", key);
    return fallback;
  }
  if (!found->is_number_integer()) return invalid_argument("config.json: '{}': expected an integer", key);
  const auto value = found->get<std::int64_t>();
  if (value < 0 || value > std::int64_t{1} << 32) {
    return invalid_argument("config.json: '{}': {} is out of range", key, value);
  }
  return value;
}

Status read_vision(const Json& config, ModelShape& shape) {
  const auto found = config.find("vision_config");
  if (found == config.end() || !found->is_object()) return {};
  VisionShape& v = shape.vision;
  PERIGEE_ASSIGN_OR_RETURN(v.layers, integer_at(*found, "vt_num_hidden_layers", 0, false));
  PERIGEE_ASSIGN_OR_RETURN(v.hidden, integer_at(*found, "vt_hidden_size", 0, false));
  PERIGEE_ASSIGN_OR_RETURN(v.qkv, integer_at(*found, "qkv_hidden_size", v.hidden, false));
  PERIGEE_ASSIGN_OR_RETURN(v.mlp, integer_at(*found, "vt_intermediate_size", 0, false));
  PERIGEE_ASSIGN_OR_RETURN(v.patch, integer_at(*found, "patch_size", 0, false));
  PERIGEE_ASSIGN_OR_RETURN(v.table, integer_at(*found, "init_pos_emb_height", 0, false));
  v.merge = 4;
  const auto kernel = found->find("merge_kernel_size");
  if (kernel != found->end() && kernel->is_array() && kernel->size() == 2 && (*kernel)[0].is_number_unsigned() &&
      (*kernel)[1].is_number_unsigned() && (*kernel)[0] < 64 && (*kernel)[1] < 64) {
    v.merge = (*kernel)[0].get<std::int64_t>() * (*kernel)[1].get<std::int64_t>();
  }
  return {};
}

Result<ModelShape> shape_from_deepseek(const Json& c) {
  ModelShape s;
  s.source = "config.json";
  s.confidence = "H";
  PERIGEE_ASSIGN_OR_RETURN(s.layers, integer_at(c, "num_hidden_layers", 0, true));
  PERIGEE_ASSIGN_OR_RETURN(s.hidden, integer_at(c, "hidden_size", 0, true));
  PERIGEE_ASSIGN_OR_RETURN(s.vocab, integer_at(c, "vocab_size", 0, true));
  PERIGEE_ASSIGN_OR_RETURN(s.dense_layers, integer_at(c, "first_k_dense_replace", 0, false));
  PERIGEE_ASSIGN_OR_RETURN(s.dense_width, integer_at(c, "intermediate_size", 0, true));
  PERIGEE_ASSIGN_OR_RETURN(s.max_positions, integer_at(c, "max_position_embeddings", 0, false));
  PERIGEE_ASSIGN_OR_RETURN(s.mtp_layers, integer_at(c, "num_nextn_predict_layers", 0, false));
  AttentionShape& a = s.attention;
  a.layers = s.layers;
  PERIGEE_ASSIGN_OR_RETURN(a.heads, integer_at(c, "num_attention_heads", 0, true));
  PERIGEE_ASSIGN_OR_RETURN(a.kv_rank, integer_at(c, "kv_lora_rank", 0, false));
  if (a.kv_rank > 0) {
    PERIGEE_ASSIGN_OR_RETURN(a.q_rank, integer_at(c, "q_lora_rank", 0, false));
    PERIGEE_ASSIGN_OR_RETURN(a.nope, integer_at(c, "qk_nope_head_dim", 0, true));
    PERIGEE_ASSIGN_OR_RETURN(a.rope, integer_at(c, "qk_rope_head_dim", 0, true));
    PERIGEE_ASSIGN_OR_RETURN(a.v, integer_at(c, "v_head_dim", 0, true));
  } else {
    a.kind = AttentionKind::kGqa;
    PERIGEE_ASSIGN_OR_RETURN(a.kv_heads, integer_at(c, "num_key_value_heads", a.heads, false));
    PERIGEE_ASSIGN_OR_RETURN(a.head_dim, integer_at(c, "head_dim", a.heads > 0 ? s.hidden / a.heads : 0, false));
  }
  PERIGEE_ASSIGN_OR_RETURN(s.indexer.heads, integer_at(c, "index_n_heads", 0, false));
  PERIGEE_ASSIGN_OR_RETURN(s.indexer.head_dim, integer_at(c, "index_head_dim", 0, false));
  PERIGEE_ASSIGN_OR_RETURN(s.indexer.top_k, integer_at(c, "index_topk", 0, false));
  PERIGEE_ASSIGN_OR_RETURN(s.moe.experts, integer_at(c, "n_routed_experts", 0, false));
  if (s.moe.experts > 0) {
    PERIGEE_ASSIGN_OR_RETURN(s.moe.top_k, integer_at(c, "num_experts_per_tok", 0, true));
    PERIGEE_ASSIGN_OR_RETURN(s.moe.expert_width, integer_at(c, "moe_intermediate_size", 0, true));
    PERIGEE_ASSIGN_OR_RETURN(const std::int64_t shared, integer_at(c, "n_shared_experts", 0, false));
    if (shared > 1024) return invalid_argument("config.json: 'n_shared_experts': {} is out of range", shared);
    s.moe.shared_width = shared * s.moe.expert_width;
  } else {
    s.dense_layers = s.layers;
  }
  return s;
}

// Bounds every size so that no product below leaves 64 bits.
Status check_shape(const ModelShape& s) {
  const auto within = [](const char* key, std::int64_t value, std::int64_t low, std::int64_t high) {
    if (value >= low && value <= high) return Status();
    return invalid_argument("model shape: '{}' is {}, expected {} to {}", key, value, low, high);
  };
  constexpr std::int64_t kWidest = 1 << 20;
  PERIGEE_RETURN_IF_ERROR(within("layers", s.layers, 1, 4096));
  PERIGEE_RETURN_IF_ERROR(within("dense layers", s.dense_layers, 0, s.layers));
  PERIGEE_RETURN_IF_ERROR(within("hidden", s.hidden, 1, kWidest));
  PERIGEE_RETURN_IF_ERROR(within("vocab", s.vocab, 1, 1 << 24));
  PERIGEE_RETURN_IF_ERROR(within("dense width", s.dense_width, 0, kWidest));
  PERIGEE_RETURN_IF_ERROR(within("heads", s.attention.heads, 0, 4096));
  for (const std::int64_t size : {s.attention.kv_rank, s.attention.nope, s.attention.rope, s.attention.v,
                                  s.attention.head_dim, s.attention.q_rank, s.attention.o_rank}) {
    PERIGEE_RETURN_IF_ERROR(within("attention size", size, 0, 1 << 16));
  }
  PERIGEE_RETURN_IF_ERROR(within("attention groups", s.attention.kv_heads + s.attention.o_groups, 0, 8192));
  PERIGEE_RETURN_IF_ERROR(within("kda heads", s.kda.heads, 0, 4096));
  PERIGEE_RETURN_IF_ERROR(within("kda head dim", s.kda.head_dim, 0, 4096));
  PERIGEE_RETURN_IF_ERROR(within("kda kernel", s.kda.conv_kernel, 1, 64));
  PERIGEE_RETURN_IF_ERROR(within("experts", s.moe.experts, 0, 1 << 16));
  PERIGEE_RETURN_IF_ERROR(within("experts per token", s.moe.top_k, s.moe.experts > 0 ? 1 : 0, s.moe.experts));
  PERIGEE_RETURN_IF_ERROR(within("expert width", s.moe.expert_width, 0, 1 << 17));
  PERIGEE_RETURN_IF_ERROR(within("shared width", s.moe.shared_width, 0, kWidest));
  PERIGEE_RETURN_IF_ERROR(within("latent width", s.moe.latent, 0, 1 << 17));
  PERIGEE_RETURN_IF_ERROR(within("index heads", s.indexer.heads, 0, 4096));
  PERIGEE_RETURN_IF_ERROR(within("index head dim", s.indexer.head_dim, 0, 4096));
  PERIGEE_RETURN_IF_ERROR(within("mtp layers", s.mtp_layers, 0, 64));
  const VisionShape& v = s.vision;
  PERIGEE_RETURN_IF_ERROR(within("vision layers", v.layers, 0, 4096));
  for (const std::int64_t size : {v.hidden, v.qkv, v.mlp}) {
    PERIGEE_RETURN_IF_ERROR(within("vision size", size, 0, 1 << 16));
  }
  PERIGEE_RETURN_IF_ERROR(within("vision patch or table", std::max({v.patch, v.table, v.merge}), 0, 4096));
  return {};
}

}  // namespace

ModelShape shape_from_config(const ModelConfig& config) {
  ModelShape s;
  s.name = config.family;
  s.title = config.family;
  s.source = "config.json";
  s.confidence = "H";
  s.layers = static_cast<std::int64_t>(config.layers.size());
  s.dense_width = config.dense_width;
  s.hidden = config.hidden;
  s.vocab = config.vocab;
  s.max_positions = config.max_positions;
  s.kda = config.kda;
  s.indexer = config.indexer;
  s.moe = config.moe;
  s.attn_res_block = config.attn_res_block;
  s.attention = {.kind = AttentionKind::kMla,
                 .layers = 0,
                 .heads = config.mla.heads,
                 .q_rank = config.mla.q_lora_rank,
                 .kv_rank = config.mla.kv_lora_rank,
                 .nope = config.mla.nope,
                 .rope = config.mla.rope,
                 .v = config.mla.v,
                 .gate = config.mla.output_gate,
                 .kv_heads = 0,
                 .head_dim = 0,
                 .o_groups = 0,
                 .o_rank = 0,
                 .window = 0,
                 .ratios = {}};
  for (const auto& layer : config.layers) {
    (layer.mixer == Mixer::kKda ? s.kda_layers : s.attention.layers) += 1;
    if (layer.feed_forward == FeedForward::kDense) ++s.dense_layers;
  }
  s.released_f32 = config.kda.full_rank_gate;  // K3 and later; the 48B ancestor stores BF16
  return s;
}

Result<ModelShape> shape_from_json(const Json& config) {
  if (!config.is_object()) return invalid_argument("config.json: expected an object");
  const Json* text = &config;
  if (const auto inner = config.find("text_config"); inner != config.end() && inner->is_object()) text = &*inner;
  ModelShape shape;
  if (text->contains("linear_attn_config")) {
    PERIGEE_ASSIGN_OR_RETURN(const ModelConfig normalised, parse_model_config(config, nullptr));
    shape = shape_from_config(normalised);
  } else {
    PERIGEE_ASSIGN_OR_RETURN(shape, shape_from_deepseek(*text));
    const auto type = text->find("model_type");
    shape.name = type != text->end() && type->is_string() ? type->get<std::string>() : "model";
    shape.title = shape.name;
  }
  PERIGEE_RETURN_IF_ERROR(read_vision(config, shape));
  PERIGEE_RETURN_IF_ERROR(check_shape(shape));
  return shape;
}

Result<ModelShape> read_model_shape(const std::string& directory) {
  PERIGEE_ASSIGN_OR_RETURN(const Json config, read_json_file(directory + "/config.json"));
  auto shape = shape_from_json(config);
  if (!shape.ok()) return shape.status().with_context(directory);
  return shape;
}

}  // namespace perigee::planner
