#include "planner/model_shape.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "planner/catalogue.h"

namespace perigee::planner {
namespace {

const ModelShape& model(const char* name) {
  return **built_in_catalogue().model(name);
}
WeightFormat format(const char* name) {
  return *find_format(name);
}

// Expected numbers: spec model.md 1.7, ascend.md 4.2 and 4.4.
TEST(ModelShape, KimiK3ToTheByte) {
  const ModelShape& k3 = model("kimi-k3");
  const ParameterCount p = count_parameters(k3);
  EXPECT_EQ(p.total(), 2779931834976);
  EXPECT_EQ(p.text(), 2779484476000);
  EXPECT_EQ(p.kda, 30618086496);
  EXPECT_EQ(p.attention_heads + p.attention_shared, 5572706304);
  EXPECT_EQ(p.routed, 2722740830208);
  EXPECT_EQ(p.shared + p.latent + p.router, 17473358336);
  EXPECT_EQ(p.vision, 447358976);
  EXPECT_EQ(p.f32_elements, 11122432);
  EXPECT_EQ(checkpoint_bytes(k3, format("bf16")), 5559863669952);
  EXPECT_EQ(checkpoint_bytes(k3, format("mxfp4")), 1560860324864);
  EXPECT_EQ(checkpoint_bytes(k3, format("int4-g32")), 1645945975808);
  EXPECT_EQ(nominal_int4_bytes(k3), 1389965917488);
  EXPECT_NEAR(static_cast<double>(checkpoint_bytes(k3, format("int4-channel"))), 1478.96e9, 0.03e9);
  EXPECT_NEAR(static_cast<double>(active_parameters(k3)), 104.19e9, 0.01e9);
  EXPECT_EQ(expert_bytes(k3, format("mxfp4")), 17547264);
}

TEST(ModelShape, Siblings) {
  EXPECT_EQ(checkpoint_bytes(model("kimi-k3.1-pro"), format("mxfp4")), 1561217377280);
  EXPECT_EQ(count_parameters(model("kimi-k3.1-pro")).indexer, 178526208);
  EXPECT_EQ(count_parameters(model("kimi-linear-48b")).total(), 49122681728);
  for (const ModelShape& shape : built_in_catalogue().models) {
    const auto total = static_cast<double>(count_parameters(shape).total());
    EXPECT_NEAR(total / static_cast<double>(shape.published_parameters), 1, 0.02) << shape.name;
    EXPECT_FALSE(shape.source.empty());
  }
}

TEST(ModelShape, WhatASequenceKeeps) {
  const ModelShape& k3 = model("kimi-k3");
  EXPECT_EQ(cache_bytes_per_token(k3, 2), 27648);
  EXPECT_EQ(index_bytes_per_token(model("kimi-k3.1-pro"), 2), 6144);
  EXPECT_NEAR(static_cast<double>(state_bytes_per_sequence(k3, 4)), 449.4e6, 0.1e6);
  EXPECT_NEAR(static_cast<double>(state_bytes_per_sequence(k3, 2)), 232e6, 1e6);
  EXPECT_EQ(hybrid_pages(k3, 16, 0, 0).block_tokens, 384);
  EXPECT_EQ(hybrid_pages(k3, 8, 0, 0).block_tokens, 768);
  EXPECT_EQ(hybrid_pages(k3, 16, 0, 0).page_bytes, 442368);
  EXPECT_NEAR(static_cast<double>(hybrid_pages(k3, 16, 0, 0).slot_bytes), 31.9e6, 0.1e6);
  EXPECT_NEAR(static_cast<double>(hybrid_pages(k3, 16, 5, 0).slot_bytes), 38.5e6, 0.1e6);
  EXPECT_EQ(hybrid_pages(model("kimi-k2"), 16, 0, 0).slot_bytes, 0);
}

TEST(ModelShape, TokenWork) {
  const TokenWork work = token_work(model("kimi-k3"), 8192);
  EXPECT_NEAR(work.expert_dispatch_bytes / 92, 57344, 1);
  EXPECT_NEAR(work.expert_combine_bytes / 92, 114688, 1);
  EXPECT_NEAR(work.expert_dispatch_bytes + work.expert_combine_bytes, 15.8e6, 0.1e6);
  EXPECT_NEAR(work.matrix_flops, 2 * 104.19e9, 0.1e9);
  // Sparse layers stop growing at the top-k.
  const ModelShape& pro = model("kimi-k3.1-pro");
  EXPECT_EQ(token_work(pro, 1e6).attention_flops, token_work(pro, 2048).attention_flops);
  EXPECT_EQ(attention_reach(pro, 1000).pairs, attention_reach(model("kimi-k3"), 1000).pairs);
}

constexpr const char* kConfig = R"({
  "model_type": "kimi_k3", "architectures": ["KimiK3ForConditionalGeneration"], "bos_token_id": 163584,
  "eos_token_id": 163586, "pad_token_id": 163839, "media_placeholder_token_id": 163605, "tie_word_embeddings": false,
  "text_config": {"model_type": "kimi_linear", "vocab_size": 163840, "hidden_size": 7168, "intermediate_size": 33792,
    "num_hidden_layers": 93, "num_attention_heads": 96, "num_key_value_heads": 96, "hidden_act": "situ",
    "activation_situ_beta": 4.0, "activation_situ_linear_beta": 25.0, "rms_norm_eps": 1e-5,
    "max_position_embeddings": 1048576, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "v_head_dim": 128, "mla_use_nope": true, "mla_use_output_gate": true, "num_experts": 896,
    "num_experts_per_token": 16, "num_shared_experts": 2, "moe_intermediate_size": 3072,
    "routed_expert_hidden_size": 3584, "latent_moe_use_norm": true, "first_k_dense_replace": 1, "moe_layer_freq": 1,
    "moe_renormalize": true, "moe_router_activation_func": "sigmoid", "use_grouped_topk": true,
    "num_expert_group": 1, "topk_group": 1, "topk_method": "noaux_tc", "routed_scaling_factor": 1.0,
    "attn_res_block_size": 12, "num_nextn_predict_layers": 0, "tie_word_embeddings": false,
    "bos_token_id": 163584, "eos_token_id": 163586, "pad_token_id": 163839,
    "linear_attn_config": {"head_dim": 128, "num_heads": 96, "short_conv_kernel_size": 4, "use_full_rank_gate": true,
      "gate_lower_bound": -5.0, "full_attn_layers": [FULL], "kda_layers": [KDA]}},
  "vision_config": {"patch_size": 14, "init_pos_emb_height": 64, "init_pos_emb_width": 64,
    "vt_num_attention_heads": 12, "vt_num_hidden_layers": 27, "vt_hidden_size": 1024, "vt_intermediate_size": 4096,
    "qkv_hidden_size": 1536, "merge_kernel_size": [2, 2]}})";

std::string k3_config() {
  std::string full;
  std::string kda;
  for (int layer = 1; layer <= 93; ++layer) {
    std::string& list = layer % 4 == 0 || layer == 93 ? full : kda;
    list += (list.empty() ? "" : ",") + std::to_string(layer);
  }
  std::string text = kConfig;
  text.replace(text.find("FULL"), 4, full);
  text.replace(text.find("KDA]"), 3, kda);
  return text;
}

TEST(ModelShape, ConfigurationGivesTheSameBytes) {
  const auto shape = shape_from_json(*parse_json(k3_config()));
  ASSERT_TRUE(shape.ok()) << shape.status().message();
  EXPECT_EQ(checkpoint_bytes(*shape, format("mxfp4")), 1560860324864);
  EXPECT_EQ(checkpoint_bytes(*shape, format("bf16")), 5559863669952);
}

TEST(ModelShape, DeepSeekStyleConfiguration) {
  const auto config = parse_json(R"({"model_type": "deepseek_v3", "num_hidden_layers": 61, "hidden_size": 7168,
    "vocab_size": 163840, "first_k_dense_replace": 1, "intermediate_size": 18432, "num_attention_heads": 64,
    "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "n_routed_experts": 384, "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "n_shared_experts": 1})");
  const auto shape = shape_from_json(*config);
  ASSERT_TRUE(shape.ok()) << shape.status().message();
  EXPECT_EQ(count_parameters(*shape).total(), count_parameters(model("kimi-k2")).total());
  for (const char* bad : {R"({"hidden_size": 1})", R"([])", R"({"num_hidden_layers": 61, "hidden_size": 9999999999,
       "vocab_size": 1, "intermediate_size": 1, "num_attention_heads": 1})"}) {
    EXPECT_FALSE(shape_from_json(*parse_json(bad)).ok()) << bad;
  }
}

}  // namespace
}  // namespace perigee::planner
