#include "checkpoint/inventory.h"

#include <algorithm>
#include <cmath>

#include "base/checked.h"

namespace perigee {
namespace {

FillRule normal(double sigma) {
  return {.distribution = Distribution::kNormal, .a = sigma};
}
// Scaled by the number of inputs, so that outputs keep the size of inputs.
FillRule linear(double gain, std::int64_t columns) {
  return normal(gain / std::sqrt(static_cast<double>(columns)));
}
FillRule uniform(double centre, double width) {
  return {.distribution = Distribution::kUniform, .a = centre, .b = width};
}

class Builder {
 public:
  Builder(const ModelConfig& config, const SynthOptions& options, ModelWeights* weights)
      : config_(config), options_(options), weights_(weights) {}

  std::vector<TensorSpec> build() {
    if (weights_ != nullptr) weights_->layers.assign(config_.layers.size(), {});
    const std::int64_t d = config_.hidden;
    const std::string model = config_.tensor_prefix + "model.";
    kind_ = TensorKind::kEmbedding;
    plain(model + "embed_tokens", {config_.vocab, d}, normal(1.0), at(&ModelWeights::embedding));
    kind_ = TensorKind::kHead;
    matrix(config_.tensor_prefix + "lm_head", {config_.vocab, d}, 2.0, at(&ModelWeights::lm_head));
    norm(model + "norm", d, at(&ModelWeights::final_norm));
    if (config_.attn_res_block > 0) {
      attn_res(model + "output_attn_res", weights_ == nullptr ? nullptr : &weights_->output_mix);
    }
    for (std::size_t i = 0; i < config_.layers.size(); ++i) {
      layer(fmt::format("{}layers.{}.", model, i), config_.layers[i],
            weights_ == nullptr ? nullptr : &weights_->layers[i]);
    }
    if (config_.vision) vision(*config_.vision);
    return std::move(specs_);
  }

 private:
  template <typename Member>
  Member* at(Member ModelWeights::* member) {
    return weights_ == nullptr ? nullptr : &(weights_->*member);
  }
  template <typename Owner, typename Member>
  static Member* at(Owner* owner, Member Owner::* member) {
    return owner == nullptr ? nullptr : &(owner->*member);
  }

  TensorSpec& add(std::string name, TensorUse use, Dtype dtype, Shape shape, FillRule rule) {
    TensorSpec& spec = specs_.emplace_back();
    spec.name = std::move(name);
    spec.kind = kind_;
    spec.use = use;
    spec.dtype = dtype;
    spec.shape = shape;
    spec.rule = rule;
    return spec;
  }

  TensorSpec& matrix(const std::string& module, Shape shape, double gain, Matrix* to) {
    TensorSpec& spec =
        add(module + ".weight", TensorUse::kMatrix, Dtype::kBf16, shape, linear(gain, shape[shape.rank() - 1]));
    spec.matrix = to;
    return spec;
  }

  TensorSpec& plain(const std::string& module, Shape shape, FillRule rule, Matrix* to) {
    TensorSpec& spec = add(module + ".weight", TensorUse::kPlainMatrix, Dtype::kBf16, shape, rule);
    spec.matrix = to;
    return spec;
  }

  TensorSpec& vector(std::string name, Dtype dtype, Shape shape, FillRule rule, FloatVector* to,
                     std::int64_t offset = 0) {
    TensorSpec& spec = add(std::move(name), TensorUse::kVector, dtype, shape, rule);
    spec.vector = to;
    spec.offset = offset;
    return spec;
  }

  void norm(const std::string& module, std::int64_t width, FloatVector* to) {
    const TensorKind kind = std::exchange(kind_, TensorKind::kNorm);
    vector(module + ".weight", Dtype::kBf16, {width}, uniform(1, 0.2), to);
    kind_ = kind;
  }

  void attn_res(const std::string& module, AttnResWeights* to) {
    kind_ = TensorKind::kAttnRes;
    FloatVector* mix = at(to, &AttnResWeights::mix);
    vector(module + "_norm.weight", Dtype::kBf16, {config_.hidden}, uniform(1, 0.2), mix);
    TensorSpec& proj =
        vector(module + "_proj.weight", Dtype::kBf16, {1, config_.hidden}, linear(0.5, config_.hidden), mix);
    proj.use = TensorUse::kFactor;
  }

  void layer(const std::string& l, const LayerConfig& layer, LayerWeights* to) {
    norm(l + "input_layernorm", config_.hidden, at(to, &LayerWeights::input_norm));
    norm(l + "post_attention_layernorm", config_.hidden, at(to, &LayerWeights::post_attention_norm));
    if (config_.attn_res_block > 0) {
      attn_res(l + "self_attention_res", at(to, &LayerWeights::attention_mix));
      attn_res(l + "mlp_res", at(to, &LayerWeights::mlp_mix));
    }
    if (layer.mixer == Mixer::kKda) {
      kda(l + "self_attn.", at(to, &LayerWeights::kda));
    } else {
      mla(l + "self_attn.", layer.indexer, at(to, &LayerWeights::mla));
    }
    if (layer.feed_forward == FeedForward::kDense) {
      kind_ = TensorKind::kDense;
      mlp(l + "mlp.", config_.dense_width, at(to, &LayerWeights::dense));
    } else {
      moe(l + "block_sparse_moe.", at(to, &LayerWeights::moe));
    }
  }

  void mlp(const std::string& m, std::int64_t width, MlpWeights* to) {
    matrix(m + "gate_proj", {width, config_.hidden}, 1.0, at(to, &MlpWeights::gate));
    matrix(m + "up_proj", {width, config_.hidden}, 1.0, at(to, &MlpWeights::up));
    matrix(m + "down_proj", {config_.hidden, width}, 1.0, at(to, &MlpWeights::down));
  }

  void kda(const std::string& a, KdaWeights* to) {
    kind_ = TensorKind::kKda;
    const KdaConfig& kda = config_.kda;
    const std::int64_t d = config_.hidden;
    const std::int64_t width = kda.width();
    const Dtype small = options_.kda_small_bf16 ? Dtype::kBf16 : Dtype::kF32;
    const bool bounded = kda.gate_lower_bound < 0;
    matrix(a + "q_proj", {width, d}, 1.0, at(to, &KdaWeights::q));
    matrix(a + "k_proj", {width, d}, 1.0, at(to, &KdaWeights::k));
    matrix(a + "v_proj", {width, d}, 1.0, at(to, &KdaWeights::v));
    std::int64_t channel = 0;
    for (const char* conv : {"q_conv1d", "k_conv1d", "v_conv1d"}) {
      vector(a + conv + ".weight", small, {width, 1, kda.conv_kernel}, normal(0.5), at(to, &KdaWeights::conv),
             channel * kda.conv_kernel)
          .keep_f32 = bounded;
      channel += width;
    }
    matrix(a + "f_a_proj", {kda.head_dim, d}, 1.0, at(to, &KdaWeights::f_a)).keep_bf16 = true;
    matrix(a + "f_b_proj", {width, kda.head_dim}, 0.5, at(to, &KdaWeights::f_b)).keep_bf16 = true;
    matrix(a + "b_proj", {kda.heads, d}, 1.0, at(to, &KdaWeights::b)).keep_bf16 = true;
    if (kda.full_rank_gate) {
      matrix(a + "g_proj", {width, d}, 1.0, at(to, &KdaWeights::g));
    } else {
      matrix(a + "g_a_proj", {kda.head_dim, d}, 1.0, at(to, &KdaWeights::g_a));
      matrix(a + "g_b_proj", {width, kda.head_dim}, 1.0, at(to, &KdaWeights::g_b));
    }
    Shape decay_shape{ceil_div<std::int64_t>(kda.heads, 128) * 128};
    if (!bounded) decay_shape = options_.a_log_rank == 1 ? Shape{kda.heads} : Shape{1, 1, kda.heads, 1};
    FillRule decay = uniform(0.25, 1.25);
    decay.distribution = Distribution::kPaddedUniform;
    decay.meaningful = kda.heads;
    TensorSpec& a_log = vector(a + "A_log", Dtype::kF32, decay_shape, decay, at(to, &KdaWeights::a));
    a_log.use = TensorUse::kDecay;
    a_log.keep_f32 = true;
    vector(a + "dt_bias", Dtype::kF32, {width}, bounded ? normal(2.0) : uniform(-3, 3), at(to, &KdaWeights::dt_bias))
        .keep_f32 = true;
    vector(a + "o_norm.weight", small, {kda.head_dim}, uniform(1, 0.2), at(to, &KdaWeights::o_norm)).keep_f32 = bounded;
    matrix(a + "o_proj", {d, width}, 1.0, at(to, &KdaWeights::o));
  }

  void mla(const std::string& a, bool indexer, MlaWeights* to) {
    kind_ = TensorKind::kMla;
    const MlaConfig& mla = config_.mla;
    const std::int64_t d = config_.hidden;
    const std::int64_t q_width = mla.heads * (mla.nope + mla.rope);
    const std::int64_t o_width = mla.heads * mla.v;
    if (mla.q_lora_rank > 0) {
      matrix(a + "q_a_proj", {mla.q_lora_rank, d}, 1.0, at(to, &MlaWeights::q_a));
      vector(a + "q_a_layernorm.weight", Dtype::kBf16, {mla.q_lora_rank}, uniform(1, 0.2),
             at(to, &MlaWeights::q_a_norm));
      matrix(a + "q_b_proj", {q_width, mla.q_lora_rank}, 1.0, at(to, &MlaWeights::q_b));
    } else {
      matrix(a + "q_proj", {q_width, d}, 1.0, at(to, &MlaWeights::q));
    }
    matrix(a + "kv_a_proj_with_mqa", {mla.latent_row(), d}, 1.0, at(to, &MlaWeights::kv_a));
    vector(a + "kv_a_layernorm.weight", Dtype::kBf16, {mla.kv_lora_rank}, uniform(1, 0.2),
           at(to, &MlaWeights::kv_a_norm));
    matrix(a + "kv_b_proj", {mla.heads * (mla.nope + mla.v), mla.kv_lora_rank}, 1.0, at(to, &MlaWeights::kv_b))
        .keep_bf16 = true;
    if (mla.output_gate) matrix(a + "g_proj", {o_width, d}, 1.0, at(to, &MlaWeights::g));
    matrix(a + "o_proj", {d, o_width}, 0.5, at(to, &MlaWeights::o));
    if (!indexer) return;
    kind_ = TensorKind::kIndexer;
    const IndexerConfig& index = config_.indexer;
    IndexerWeights* w = at(to, &MlaWeights::indexer);
    const Dtype small = options_.indexer_small_f32 ? Dtype::kF32 : Dtype::kBf16;
    // The query input is the normed q latent; were the matrix d wide it would take x (spec 14.4).
    const std::int64_t columns = mla.q_lora_rank > 0 ? mla.q_lora_rank : d;
    TensorSpec& query =
        matrix(a + "indexer.wq_b", {index.heads * index.head_dim, columns}, 1.0, at(w, &IndexerWeights::q));
    query.other_columns = d;
    query.keep_bf16 = true;
    matrix(a + "indexer.wk", {index.head_dim, d}, 1.0, at(w, &IndexerWeights::k)).keep_bf16 = true;
    plain(a + "indexer.weights_proj", {index.heads, d}, linear(1.0, d), at(w, &IndexerWeights::weights)).dtype = small;
    vector(a + "indexer.k_norm.weight", small, {index.head_dim}, uniform(1, 0.2), at(w, &IndexerWeights::k_norm));
    vector(a + "indexer.k_norm.bias", small, {index.head_dim}, uniform(0, 0.3), at(w, &IndexerWeights::k_norm_bias))
        .optional = true;
  }

  void moe(const std::string& m, MoeWeights* to) {
    const MoeConfig& moe = config_.moe;
    const std::int64_t d = config_.hidden;
    kind_ = TensorKind::kRouter;
    plain(m + "gate", {moe.experts, d}, linear(2.0, d), at(to, &MoeWeights::router));
    vector(m + "gate.e_score_correction_bias", Dtype::kF32, {moe.experts}, uniform(0, 0.3),
           at(to, &MoeWeights::router_bias))
        .keep_f32 = true;
    if (moe.latent > 0) {
      kind_ = TensorKind::kLatent;
      matrix(m + "routed_expert_down_proj", {moe.latent, d}, 1.0, at(to, &MoeWeights::latent_down));
      matrix(m + "routed_expert_up_proj", {d, moe.latent}, 0.375, at(to, &MoeWeights::latent_up));
      if (moe.latent_norm) {
        vector(m + "routed_expert_norm.weight", Dtype::kBf16, {moe.latent}, uniform(1, 0.2),
               at(to, &MoeWeights::latent_norm));
      }
    }
    if (moe.shared_width > 0) {
      kind_ = TensorKind::kShared;
      mlp(m + "shared_experts.", moe.shared_width, at(to, &MoeWeights::shared));
    }
    kind_ = TensorKind::kExpert;
    if (to != nullptr) to->experts.resize(static_cast<std::size_t>(moe.experts));
    const std::int64_t in = moe.latent > 0 ? moe.latent : d;
    for (std::int64_t e = 0; e < moe.experts; ++e) {
      MlpWeights* expert = to == nullptr ? nullptr : &to->experts[static_cast<std::size_t>(e)];
      const std::string name = fmt::format("{}experts.{}.", m, e);
      // In this order the six tensors of a released expert lie back to back (spec 1.6).
      matrix(name + "w1", {moe.expert_width, in}, 0.75, at(expert, &MlpWeights::gate)).stored_as =
          config_.expert_format;
      matrix(name + "w2", {in, moe.expert_width}, 0.75, at(expert, &MlpWeights::down)).stored_as =
          config_.expert_format;
      matrix(name + "w3", {moe.expert_width, in}, 0.75, at(expert, &MlpWeights::up)).stored_as = config_.expert_format;
    }
  }

  void unread(const std::string& module, Shape shape, FillRule rule) {
    add(module + ".weight", TensorUse::kUnread, Dtype::kBf16, shape, rule);
  }

  void vision(const VisionConfig& vision) {
    kind_ = TensorKind::kVision;
    const std::int64_t d = vision.hidden;
    const std::int64_t merged = vision.merged_width();
    const FillRule ones = uniform(1, 0.2);
    unread("vision_tower.patch_embed.proj", {d, 3, vision.patch, vision.patch},
           linear(1.0, 3 * vision.patch * vision.patch));
    unread("vision_tower.patch_embed.pos_emb", {vision.table_height, vision.table_width, d}, normal(0.5));
    for (std::int64_t i = 0; i < vision.layers; ++i) {
      const std::string block = fmt::format("vision_tower.encoder.blocks.{}.", i);
      unread(block + "norm0", {d}, ones);
      unread(block + "norm1", {d}, ones);
      unread(block + "wqkv", {3 * vision.qkv_width(), d}, linear(1.25, d));
      unread(block + "wo", {d, vision.qkv_width()}, linear(1.0, vision.qkv_width()));
      unread(block + "mlp.fc0", {vision.mlp_width, d}, linear(1.0, d));
      unread(block + "mlp.fc1", {d, vision.mlp_width}, linear(1.0, vision.mlp_width));
    }
    unread("vision_tower.encoder.final_layernorm", {d}, ones);
    unread("mm_projector.proj.0", {merged, merged}, linear(1.0, merged));
    unread("mm_projector.proj.2", {config_.hidden, merged}, linear(1.0, merged));
    unread("mm_projector.post_norm", {config_.hidden}, ones);
  }

  const ModelConfig& config_;
  const SynthOptions& options_;
  ModelWeights* weights_;
  TensorKind kind_ = TensorKind::kNorm;
  std::vector<TensorSpec> specs_;
};

}  // namespace

const char* tensor_kind_name(TensorKind kind) {
  static constexpr const char* kNames[kTensorKinds] = {
      "embedding", "lm_head", "norms",          "attn_res",       "kda",   "mla", "indexer", "dense mlp",
      "router",    "latent",  "shared experts", "routed experts", "vision"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string replace_weight(const std::string& name, std::string_view suffix) {
  constexpr std::string_view kEnding = ".weight";
  std::string base = name.ends_with(kEnding) ? name.substr(0, name.size() - kEnding.size()) : name;
  return base.append(suffix);
}

std::vector<TensorSpec> expected_tensors(const ModelConfig& config, const SynthOptions& options,
                                         ModelWeights* weights) {
  return Builder(config, options, weights).build();
}

std::vector<GeneratedTensor> stored_tensors(const TensorSpec& spec, const SynthOptions& options) {
  if (spec.optional && !options.indexer_norm_bias) return {};  // k_norm.bias is the only optional tensor
  const std::int64_t out = spec.shape[0];
  if (spec.stored_as == ExpertFormat::kMxfp4) {
    const std::int64_t in = spec.shape[1];
    int exponent = 0;
    while ((std::int64_t{1} << (2 * exponent)) < in) ++exponent;
    return {{.name = replace_weight(spec.name, ".weight_packed"),
             .dtype = Dtype::kU8,
             .shape = {out, in / 2},
             .rule = {.distribution = Distribution::kRandomBits},
             .described = {}},
            {.name = replace_weight(spec.name, ".weight_scale"),
             .dtype = Dtype::kU8,
             .shape = {out, in / 32},
             .rule = {.distribution = Distribution::kE8m0, .a = 124.0 - exponent},
             .described = {}}};
  }
  if (spec.stored_as == ExpertFormat::kInt4Group32) {
    const std::int64_t in = spec.shape[1];
    const auto centre = static_cast<float>(0.75 * 0.2 / std::sqrt(static_cast<double>(in)));
    return {{.name = replace_weight(spec.name, ".weight_packed"),
             .dtype = Dtype::kI32,
             .shape = {out, ceil_div<std::int64_t>(in, 8)},
             .rule = {.distribution = Distribution::kRandomBits},
             .described = {}},
            {.name = replace_weight(spec.name, ".weight_scale"),
             .dtype = Dtype::kBf16,
             .shape = {out, ceil_div<std::int64_t>(in, 32)},
             .rule = uniform(centre, centre * 0.5F),
             .described = {}},
            {.name = replace_weight(spec.name, ".weight_shape"),
             .dtype = Dtype::kI32,
             .shape = {2},
             .rule = {.distribution = Distribution::kShape},
             .described = spec.shape}};
  }
  GeneratedTensor tensor{
      .name = spec.name, .dtype = spec.dtype, .shape = spec.shape, .rule = spec.rule, .described = {}};
  if (spec.rule.distribution == Distribution::kNormal) {
    for (const auto& [ending, power] : options.scale) {
      if (spec.name.ends_with(ending)) tensor.rule.a = std::ldexp(tensor.rule.a, power);
    }
  }
  return {tensor};
}

}  // namespace perigee
