#include "checkpoint/model_config.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

namespace perigee {
namespace {

// Limits far above any model, so low that no sum of bytes over tensors, tokens and a few users leaves 63 bits.
constexpr std::int64_t kMaxWidth = std::int64_t{1} << 24;
constexpr std::int64_t kMaxHidden = std::int64_t{1} << 20;
constexpr std::int64_t kMaxHead = std::int64_t{1} << 16;
constexpr std::int64_t kMaxLayers = 1024;
constexpr std::int64_t kMaxPositions = std::int64_t{1} << 27;
constexpr std::int64_t kMaxExpertsInAll = std::int64_t{1} << 19;  // K3 has 82,432

// Reads keys of one JSON object and keeps the first error, so that a reader is a plain list of assignments.
class KeyReader {
 public:
  KeyReader(const Json& object, std::string where, Status& status)
      : object_(object), where_(std::move(where)), status_(status) {}

  // The value, or nullptr when the key is absent or null.
  const Json* find(const char* key) const {
    const auto it = object_.find(key);
    return it == object_.end() || it->is_null() ? nullptr : &*it;
  }

  std::int64_t integer(const char* key, std::int64_t low = 1, std::int64_t high = kMaxWidth) const {
    const Json* value = find(key);
    if (value == nullptr) {
      fail(key, fmt::format("an integer in [{}, {}]", low, high), "nothing");
      return low;
    }
    return checked_integer(key, *value, low, high);
  }

  std::int64_t integer_or(const char* key, std::int64_t fallback, std::int64_t low = 1,
                          std::int64_t high = kMaxWidth) const {
    const Json* value = find(key);
    return value == nullptr ? fallback : checked_integer(key, *value, low, high);
  }

  double number_or(const char* key, double fallback, double low, double high) const {
    const Json* value = find(key);
    if (value == nullptr) return fallback;
    if (!value->is_number() || !(value->get<double>() >= low && value->get<double>() <= high)) {
      fail(key, fmt::format("a number in [{}, {}]", low, high), describe(*value));
      return fallback;
    }
    return value->get<double>();
  }

  bool boolean_or(const char* key, bool fallback) const {
    const Json* value = find(key);
    if (value == nullptr) return fallback;
    if (!value->is_boolean()) {
      fail(key, "true or false", describe(*value));
      return fallback;
    }
    return value->get<bool>();
  }

  std::string string_or(const char* key, const char* fallback) const {
    const Json* value = find(key);
    if (value == nullptr) return fallback;
    if (!value->is_string()) {
      fail(key, "a string", describe(*value));
      return fallback;
    }
    return value->get<std::string>();
  }

  // 1-based layer numbers, each in [1, layers] and once.
  std::vector<std::int64_t> layer_list(const char* key, std::int64_t layers) const {
    std::vector<std::int64_t> list;
    const Json* value = find(key);
    if (value == nullptr || !value->is_array()) {
      fail(key, "a list of 1-based layer numbers", value == nullptr ? "nothing" : describe(*value));
      return list;
    }
    for (const Json& item : *value) {
      const std::int64_t layer = checked_integer(key, item, 1, layers);
      if (std::ranges::find(list, layer) != list.end()) fail(key, "each layer once", fmt::format("{} twice", layer));
      if (!status_.ok()) break;
      list.push_back(layer);
    }
    return list;
  }

  void fail(const char* key, const std::string& expected, const std::string& found) const {
    if (status_.ok()) status_ = invalid_argument("{}{}: expected {}, found {}", where_, key, expected, found);
  }
  void unsupported(const char* key, const std::string& supported, const std::string& found) const {
    if (status_.ok()) {
      status_ =
          make_error(StatusCode::kUnimplemented, "{}{}: only {} is supported, found {}", where_, key, supported, found);
    }
  }

  static std::string describe(const Json& value) {
    if (value.is_structured()) return value.is_array() ? "a list" : "an object";
    std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
    if (text.size() > 60) text = text.substr(0, 57) + "...";
    return text;
  }

 private:
  std::int64_t checked_integer(const char* key, const Json& value, std::int64_t low, std::int64_t high) const {
    // An unsigned value beyond 2^63 would wrap to a negative one and so fail the range, as it should.
    if (!value.is_number_integer() || value.get<std::int64_t>() < low || value.get<std::int64_t>() > high) {
      fail(key, fmt::format("an integer in [{}, {}]", low, high), describe(value));
      return low;
    }
    return value.get<std::int64_t>();
  }

  const Json& object_;
  std::string where_;
  Status& status_;
};

void read_layers(const KeyReader& text, const KeyReader& linear, ModelConfig& config, Status& status) {
  const std::int64_t count = text.integer("num_hidden_layers", 1, kMaxLayers);
  const std::vector<std::int64_t> full = linear.layer_list("full_attn_layers", count);
  const std::vector<std::int64_t> kda = linear.layer_list("kda_layers", count);
  if (!status.ok()) return;
  config.layers.resize(static_cast<std::size_t>(count));
  std::vector<int> seen(static_cast<std::size_t>(count), 0);
  for (const std::int64_t layer : full) {
    config.layers[static_cast<std::size_t>(layer - 1)].mixer = Mixer::kMla;
    ++seen[static_cast<std::size_t>(layer - 1)];
  }
  for (const std::int64_t layer : kda) ++seen[static_cast<std::size_t>(layer - 1)];
  for (std::size_t i = 0; i < seen.size(); ++i) {
    if (seen[i] != 1) {
      linear.fail("full_attn_layers and kda_layers", fmt::format("a partition of 1..{}", count),
                  fmt::format("layer {} in {}", i + 1, seen[i] == 0 ? "neither" : "both"));
      return;
    }
  }
  const std::int64_t dense = text.integer_or("first_k_dense_replace", 0, 0, count);
  for (std::int64_t i = 0; i < count; ++i) {
    config.layers[static_cast<std::size_t>(i)].feed_forward = i < dense ? FeedForward::kDense : FeedForward::kMoe;
  }
}

void read_kda(const KeyReader& linear, ModelConfig& config) {
  KdaConfig& kda = config.kda;
  kda.heads = linear.integer("num_heads");
  kda.head_dim = linear.integer("head_dim", 1, kMaxHead);
  if (kda.width() > kMaxWidth) {
    linear.fail("num_heads", fmt::format("num_heads * head_dim <= {}", kMaxWidth), std::to_string(kda.width()));
  }
  kda.conv_kernel = linear.integer("short_conv_kernel_size");
  if (kda.conv_kernel != 4) linear.unsupported("short_conv_kernel_size", "4", std::to_string(kda.conv_kernel));
  // The gate is lower_bound * sigmoid: zero would switch the decay off, and kernels rely on -5 (spec 2.4, 2.7).
  kda.gate_lower_bound = linear.number_or("gate_lower_bound", 0, -5.0, -1e-6);
  kda.full_rank_gate = linear.boolean_or("use_full_rank_gate", false);
}

void read_mla(const KeyReader& text, ModelConfig& config) {
  MlaConfig& mla = config.mla;
  mla.heads = text.integer("num_attention_heads");
  const std::int64_t kv_heads = text.integer_or("num_key_value_heads", mla.heads);
  if (kv_heads != mla.heads) {
    text.unsupported("num_key_value_heads", fmt::format("{} (one per head)", mla.heads), std::to_string(kv_heads));
  }
  mla.q_lora_rank = text.integer_or("q_lora_rank", 0);
  mla.kv_lora_rank = text.integer("kv_lora_rank", 1, kMaxHead);
  mla.nope = text.integer("qk_nope_head_dim", 1, kMaxHead);
  mla.rope = text.integer("qk_rope_head_dim", 0, kMaxHead);
  mla.v = text.integer("v_head_dim", 1, kMaxHead);
  mla.output_gate = text.boolean_or("mla_use_output_gate", false);
  if (!text.boolean_or("mla_use_nope", false)) text.unsupported("mla_use_nope", "true (no rotary positions)", "false");
  if (mla.heads * (mla.nope + mla.rope) > kMaxWidth || mla.heads * (mla.nope + mla.v) > kMaxWidth) {
    text.fail("num_attention_heads", fmt::format("heads * head sizes <= {}", kMaxWidth), std::to_string(mla.heads));
  }
}

void read_moe(const KeyReader& text, ModelConfig& config) {
  if (std::ranges::none_of(config.layers, [](const LayerConfig& l) { return l.feed_forward == FeedForward::kMoe; })) {
    return;
  }
  MoeConfig& moe = config.moe;
  moe.experts = text.integer("num_experts", 1, 65536);
  moe.top_k = text.integer("num_experts_per_token", 1, moe.experts);
  if (moe.experts * std::ssize(config.layers) > kMaxExpertsInAll) {
    text.fail("num_experts", fmt::format("at most {} in all layers", kMaxExpertsInAll), std::to_string(moe.experts));
  }
  moe.expert_width = text.integer("moe_intermediate_size", 1, kMaxHidden);
  moe.shared_width = text.integer_or("num_shared_experts", 0, 0, 64) * moe.expert_width;
  moe.latent = text.integer_or("routed_expert_hidden_size", 0, 1, kMaxHidden);
  moe.latent_norm = moe.latent > 0 && text.boolean_or("latent_moe_use_norm", false);
  moe.renormalize = text.boolean_or("moe_renormalize", true);
  moe.scaling = text.number_or("routed_scaling_factor", 1.0, 1e-6, 1e6);
  const std::string function = text.string_or("moe_router_activation_func", "sigmoid");
  if (function != "sigmoid") text.unsupported("moe_router_activation_func", "sigmoid", function);
  const std::string method = text.string_or("topk_method", "noaux_tc");
  if (method != "noaux_tc") text.unsupported("topk_method", "noaux_tc", method);
  const std::int64_t frequency = text.integer_or("moe_layer_freq", 1);
  if (frequency != 1) text.unsupported("moe_layer_freq", "1", std::to_string(frequency));
  if (text.boolean_or("use_grouped_topk", false)) {
    moe.groups = text.integer_or("num_expert_group", 1, 1, moe.experts);
    moe.top_k_groups = text.integer_or("topk_group", 1, 1, moe.groups);
    // A group is ranked by its two best experts; the kept groups must hold top_k experts (spec 6.2).
    if (moe.groups > 1 && (moe.experts % moe.groups != 0 || moe.experts / moe.groups < 2 ||
                           moe.experts / moe.groups * moe.top_k_groups < moe.top_k)) {
      text.fail("num_expert_group", fmt::format("a divisor of {} experts that leaves enough to choose", moe.experts),
                std::to_string(moe.groups));
    }
  }
}

void read_activation(const KeyReader& text, ModelConfig& config) {
  const std::string name = text.string_or("hidden_act", "silu");
  if (name == "situ") {
    config.activation = Activation::kSitu;
    config.situ_beta = text.number_or("activation_situ_beta", 4.0, 1e-3, 1e6);
    config.situ_linear_beta = text.number_or("activation_situ_linear_beta", 0.0, 1e-3, 1e6);
  } else if (name == "silu") {
    config.activation = Activation::kSwiglu;
  } else {
    text.unsupported("hidden_act", "situ or silu", name);
  }
  if (text.find("swiglu_limit") != nullptr) text.unsupported("swiglu_limit", "its absence", "a limit");
}

// The key names inside dsa_config are not certain: read with aliases, check against shapes at load (spec 4.5).
void read_indexer(const Json& dsa, std::string_view where, ModelConfig& config, Status& status) {
  const KeyReader keys(dsa, fmt::format("{}dsa_config.", where), status);
  const auto first_of = [&](std::initializer_list<const char*> names) -> const char* {
    const auto* it = std::ranges::find_if(names, [&](const char* name) { return keys.find(name) != nullptr; });
    return it == names.end() ? nullptr : *it;
  };
  const char* heads = first_of({"index_n_heads", "num_heads", "n_heads"});
  const char* head_dim = first_of({"index_head_dim", "head_dim"});
  const char* top_k = first_of({"index_topk", "topk", "top_k"});
  config.indexer.heads = heads == nullptr ? 32 : keys.integer(heads, 1, 4096);
  config.indexer.head_dim = head_dim == nullptr ? 128 : keys.integer(head_dim, 1, 4096);
  config.indexer.top_k = top_k == nullptr ? 2048 : keys.integer(top_k);
  config.indexer.sizes_assumed = heads == nullptr || head_dim == nullptr;

  const auto count = static_cast<std::int64_t>(config.layers.size());
  std::vector<std::int64_t> full;
  for (std::int64_t i = 0; i < count; ++i) {
    if (config.layers[static_cast<std::size_t>(i)].mixer == Mixer::kMla) full.push_back(i + 1);
  }
  const char* list = first_of({"layers", "dsa_layers", "index_layers", "full_attn_layers"});
  const std::vector<std::int64_t> chosen = list == nullptr ? full : keys.layer_list(list, count);
  for (const std::int64_t layer : chosen) {
    LayerConfig& entry = config.layers[static_cast<std::size_t>(layer - 1)];
    if (entry.mixer != Mixer::kMla) keys.fail(list, "layers of full_attn_layers", std::to_string(layer));
    entry.indexer = true;
  }
}

void read_vision(const Json& object, ModelConfig& config, Status& status) {
  const KeyReader keys(object, "vision_config.", status);
  VisionConfig vision;
  vision.hidden = keys.integer("vt_hidden_size", 1, kMaxHidden);
  vision.heads = keys.integer("vt_num_attention_heads");
  const std::int64_t qkv = keys.integer("qkv_hidden_size");
  if (qkv % vision.heads != 0) {
    keys.fail("qkv_hidden_size", fmt::format("a multiple of {} heads", vision.heads), std::to_string(qkv));
  }
  vision.head_dim = qkv / vision.heads;
  // The rotation turns pairs for two axes, so it needs a multiple of four (spec 8.3).
  if (vision.head_dim % 4 != 0) keys.fail("qkv_hidden_size", "a head size that 4 divides", std::to_string(qkv));
  vision.mlp_width = keys.integer("vt_intermediate_size");
  vision.layers = keys.integer("vt_num_hidden_layers", 1, kMaxLayers);
  vision.patch = keys.integer("patch_size", 1, 1024);
  vision.table_height = keys.integer("init_pos_emb_height", 1, 65536);
  vision.table_width = keys.integer("init_pos_emb_width", 1, 65536);
  vision.table_time = keys.integer_or("init_pos_emb_time", 1, 1, 65536);
  vision.projector_eps = keys.number_or("projector_ln_eps", 1e-5, 0, 1);
  const Json* merge = keys.find("merge_kernel_size");
  if (merge == nullptr || !merge->is_array() || merge->size() != 2 ||
      !std::ranges::all_of(*merge, [](const Json& side) { return side.is_number_integer(); })) {
    keys.fail("merge_kernel_size", "two integers", merge == nullptr ? "nothing" : KeyReader::describe(*merge));
    return;
  }
  vision.merge_height = (*merge)[0].get<std::int64_t>();
  vision.merge_width = (*merge)[1].get<std::int64_t>();
  if (vision.merge_height < 1 || vision.merge_height > 16 || vision.merge_width < 1 || vision.merge_width > 16) {
    keys.fail("merge_kernel_size", "sides in [1, 16]", merge->dump());
    return;
  }
  if (vision.merged_width() > kMaxWidth) keys.fail("vt_hidden_size", "a smaller width", std::to_string(vision.hidden));
  const std::int64_t text_hidden = keys.integer_or("text_hidden_size", config.hidden);
  if (text_hidden != config.hidden) {
    keys.fail("text_hidden_size", std::to_string(config.hidden), std::to_string(text_hidden));
  }
  for (const char* bias : {"attn_bias", "linear_bias", "patch_embed_proj_bias"}) {
    if (keys.boolean_or(bias, false)) keys.unsupported(bias, "false", "true");
  }
  const std::string projector = keys.string_or("mm_projector_type", "patchmergerv2");
  if (projector != "patchmergerv2") keys.unsupported("mm_projector_type", "patchmergerv2", projector);
  config.vision = vision;
}

void collect_tokens(const KeyReader& keys, const char* key, std::int64_t vocab, std::set<std::int64_t>& tokens) {
  const Json* value = keys.find(key);
  if (value == nullptr) return;
  const Json list = value->is_array() ? *value : Json::array({*value});
  for (const Json& item : list) {
    if (!item.is_number_integer() || item.get<std::int64_t>() < 0 || item.get<std::int64_t>() >= vocab) {
      keys.fail(key, fmt::format("token ids in [0, {})", vocab), KeyReader::describe(item));
      return;
    }
    tokens.insert(item.get<std::int64_t>());
  }
}

ExpertFormat declared_expert_format(const KeyReader& text, Status& status) {
  const Json* quantization = text.find("quantization_config");
  if (quantization == nullptr) return ExpertFormat::kBf16;
  if (!quantization->is_object()) {
    text.fail("quantization_config", "an object", KeyReader::describe(*quantization));
    return ExpertFormat::kOther;
  }
  const std::string format = KeyReader(*quantization, "quantization_config.", status).string_or("format", "");
  if (format == "mxfp4-pack-quantized") return ExpertFormat::kMxfp4;
  if (format == "pack-quantized") return ExpertFormat::kInt4Group32;
  return ExpertFormat::kOther;
}

const char* family_of(const ModelConfig& config, bool has_text_config, const std::string& model_type) {
  if (!has_text_config && config.attn_res_block == 0 && config.activation == Activation::kSwiglu) return "kimi_linear";
  return config.has_indexer() || model_type == "kimi_k31" ? "kimi_k31" : "kimi_k3";
}

}  // namespace

std::int64_t ModelConfig::count(Mixer mixer) const {
  return std::ranges::count(layers, mixer, &LayerConfig::mixer);
}

Result<ModelConfig> parse_model_config(const Json& document, const Json* generation_config) {
  if (!document.is_object()) return invalid_argument("config.json: expected an object");
  Status status;
  ModelConfig config;
  const KeyReader outer(document, "", status);
  const Json* nested = outer.find("text_config");
  if (nested != nullptr && !nested->is_object()) return invalid_argument("text_config: expected an object");
  const bool has_text_config = nested != nullptr;
  config.tensor_prefix = has_text_config ? "language_model." : "";
  const std::string where = has_text_config ? "text_config." : "";
  const KeyReader text(has_text_config ? *nested : document, where, status);

  const Json* linear_object = text.find("linear_attn_config");
  if (linear_object == nullptr || !linear_object->is_object()) {
    return make_error(StatusCode::kUnimplemented,
                      "{}linear_attn_config: expected an object (this program runs the Kimi-Linear, K3 and K3.1 "
                      "families); model_type is \"{}\"",
                      where, outer.string_or("model_type", ""));
  }
  const KeyReader linear(*linear_object, where + "linear_attn_config.", status);

  config.vocab = text.integer("vocab_size", 257);  // the last 256 ids are special
  config.hidden = text.integer("hidden_size", 1, kMaxHidden);
  config.max_positions = text.integer_or(
      "max_position_embeddings", text.integer_or("model_max_length", 1048576, 1, kMaxPositions), 1, kMaxPositions);
  config.rms_eps = text.number_or("rms_norm_eps", 1e-5, 0, 1);
  config.index_norm_eps = config.rms_eps;
  read_layers(text, linear, config, status);
  if (!status.ok()) return status;
  if (config.layers.front().feed_forward == FeedForward::kDense) config.dense_width = text.integer("intermediate_size");
  read_activation(text, config);
  if (config.count(Mixer::kKda) > 0) read_kda(linear, config);
  if (config.count(Mixer::kMla) > 0) read_mla(text, config);
  read_moe(text, config);
  config.attn_res_block = text.integer_or("attn_res_block_size", 0, 1, kMaxLayers);
  config.extra_layers = text.integer_or("num_nextn_predict_layers", 0, 0, 64);
  if (text.boolean_or("tie_word_embeddings", false)) text.unsupported("tie_word_embeddings", "false", "true");
  if (text.boolean_or("mhc", false)) text.unsupported("mhc", "false", "true");
  config.expert_format = declared_expert_format(text, status);

  const Json* dsa = text.find("dsa_config");
  const bool dsa_outside = dsa == nullptr;
  if (dsa_outside) dsa = outer.find("dsa_config");
  if (dsa != nullptr) {
    if (!dsa->is_object()) return invalid_argument("dsa_config: expected an object");
    read_indexer(*dsa, dsa_outside ? "" : where, config, status);
  }
  const Json* vision = outer.find("vision_config");
  if (vision != nullptr) {
    if (!vision->is_object()) return invalid_argument("vision_config: expected an object");
    read_vision(*vision, config, status);
    config.media_token = outer.integer_or("media_placeholder_token_id", -1, 0, config.vocab - 1);
  }

  const KeyReader& ids = outer.find("bos_token_id") != nullptr ? outer : text;
  config.bos_token = ids.integer_or("bos_token_id", -1, 0, config.vocab - 1);
  config.pad_token = ids.integer_or("pad_token_id", -1, 0, config.vocab - 1);
  std::set<std::int64_t> stop = {config.first_special_token() + 1};  // [EOS]; config files name end_of_msg only
  collect_tokens(text, "eos_token_id", config.vocab, stop);
  collect_tokens(outer, "eos_token_id", config.vocab, stop);
  if (generation_config != nullptr) {
    if (!generation_config->is_object()) return invalid_argument("generation_config.json: expected an object");
    const KeyReader generation(*generation_config, "generation_config.json: ", status);
    collect_tokens(generation, "eos_token_id", config.vocab, stop);
  }
  config.stop_tokens.assign(stop.begin(), stop.end());
  config.family = family_of(config, has_text_config, outer.string_or("model_type", ""));
  if (!status.ok()) return status;
  return config;
}

Result<ModelConfig> read_model_config(const std::string& directory) {
  const std::string path = directory + "/config.json";
  PERIGEE_ASSIGN_OR_RETURN(const Json config, read_json_file(path));
  const std::string generation_path = directory + "/generation_config.json";
  Json generation;
  const bool has_generation = std::filesystem::exists(generation_path);
  if (has_generation) {
    PERIGEE_ASSIGN_OR_RETURN(generation, read_json_file(generation_path));
  }
  auto parsed = parse_model_config(config, has_generation ? &generation : nullptr);
  if (!parsed.ok()) return parsed.status().with_context(path);
  return parsed;
}

}  // namespace perigee
