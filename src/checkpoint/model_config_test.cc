#include "checkpoint/model_config.h"

#include <gtest/gtest.h>

#include "checkpoint/memory_plan.h"
#include "checkpoint/test_support.h"

namespace perigee {
namespace {

using testing_support::kGoldens;

Json golden_config(const std::string& name) {
  auto config = read_json_file(kGoldens + name + "/config.json");
  EXPECT_TRUE(config.ok()) << config.status().message();
  return *config;
}

// The released values of Kimi K3 (spec model.md 1.2, 8.1).
Json released_k3() {
  Json config = golden_config("tiny-k3");
  config["media_placeholder_token_id"] = 163605;
  Json full = Json::array();
  Json kda = Json::array();
  for (int layer = 1; layer <= 93; ++layer) (layer % 4 == 0 || layer == 93 ? full : kda).push_back(layer);
  config["text_config"].update(Json{{"vocab_size", 163840},
                                    {"hidden_size", 7168},
                                    {"intermediate_size", 33792},
                                    {"num_hidden_layers", 93},
                                    {"num_attention_heads", 96},
                                    {"num_key_value_heads", 96},
                                    {"max_position_embeddings", 1048576},
                                    {"q_lora_rank", 1536},
                                    {"kv_lora_rank", 512},
                                    {"qk_nope_head_dim", 128},
                                    {"qk_rope_head_dim", 64},
                                    {"v_head_dim", 128},
                                    {"num_experts", 896},
                                    {"num_experts_per_token", 16},
                                    {"moe_intermediate_size", 3072},
                                    {"routed_expert_hidden_size", 3584},
                                    {"attn_res_block_size", 12},
                                    {"bos_token_id", 163584},
                                    {"eos_token_id", 163586},
                                    {"pad_token_id", 163839}});
  config["text_config"]["linear_attn_config"].update(
      Json{{"num_heads", 96}, {"head_dim", 128}, {"full_attn_layers", full}, {"kda_layers", kda}});
  config.update(Json{{"bos_token_id", 163584}, {"eos_token_id", 163586}, {"pad_token_id", 163839}});
  config["vision_config"].update(Json{{"init_pos_emb_height", 64},
                                      {"init_pos_emb_width", 64},
                                      {"mm_hidden_size", 1024},
                                      {"qkv_hidden_size", 1536},
                                      {"text_hidden_size", 7168},
                                      {"vt_hidden_size", 1024},
                                      {"vt_intermediate_size", 4096},
                                      {"vt_num_attention_heads", 12},
                                      {"vt_num_hidden_layers", 27}});
  return config;
}

TEST(ModelConfig, K3AddsUpToThePublishedSizes) {
  const auto config = parse_model_config(released_k3(), nullptr);
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->family, "kimi_k3");
  EXPECT_EQ(config->count(Mixer::kKda), 69);
  EXPECT_EQ(config->count(Mixer::kMla), 24);
  EXPECT_EQ(config->stop_tokens, (std::vector<std::int64_t>{163585, 163586}));
  EXPECT_EQ(parameter_count(*config), 2'779'931'834'976);
  const WeightBytes weights = planned_weight_bytes(*config);
  EXPECT_EQ(sum(weights).tensors, 497'220);
  EXPECT_EQ(sum(weights).bytes, 1'560'860'324'864);
  EXPECT_EQ(weights[static_cast<std::size_t>(TensorKind::kExpert)].bytes, 1'446'456'066'048);
  EXPECT_EQ(weights[static_cast<std::size_t>(TensorKind::kVision)].bytes, 894'717'952);
  const SequenceBytes sequence = sequence_bytes(*config);
  EXPECT_EQ(sequence.recurrent, 434'110'464);
  EXPECT_EQ(sequence.convolution, 15'261'696);
  EXPECT_EQ(sequence.latent_per_token, 27'648);
  EXPECT_EQ(sequence.index_per_token, 0);
  EXPECT_EQ(sequence.total(0), 449'372'160);
  EXPECT_EQ(sequence.total(1) - sequence.total(0), 64 * 27'648);
}

TEST(ModelConfig, K31HasAnIndexerInEveryMlaLayer) {
  Json document = released_k3();
  document["text_config"]["dsa_config"] = Json::object();
  const auto config = parse_model_config(document, nullptr);
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->family, "kimi_k31");
  EXPECT_EQ(config->indexer.top_k, 2048);
  EXPECT_EQ(sequence_bytes(*config).index_per_token, 6'144);
  const auto k3 = parse_model_config(released_k3(), nullptr);
  // wq_b, wk, weights_proj and k_norm without a bias (spec 4.4 counts one).
  EXPECT_EQ(parameter_count(*config) - parameter_count(*k3), 24 * (7'438'592 - 128));
}

TEST(ModelConfig, KimiLinearAddsUpToThePublishedSize) {
  Json document = golden_config("tiny-c");
  Json full = {4, 8, 12, 16, 20, 24, 27};
  Json kda = Json::array();
  for (int layer = 1; layer <= 26; ++layer) {
    if (layer % 4 != 0) kda.push_back(layer);
  }
  document.update(Json{{"vocab_size", 163840},
                       {"hidden_size", 2304},
                       {"intermediate_size", 9216},
                       {"num_hidden_layers", 27},
                       {"num_attention_heads", 32},
                       {"num_key_value_heads", 32},
                       {"kv_lora_rank", 512},
                       {"qk_nope_head_dim", 128},
                       {"qk_rope_head_dim", 64},
                       {"v_head_dim", 128},
                       {"num_experts", 256},
                       {"num_experts_per_token", 8},
                       {"moe_intermediate_size", 1024}});
  document["linear_attn_config"].update(
      Json{{"num_heads", 32}, {"head_dim", 128}, {"full_attn_layers", full}, {"kda_layers", kda}});
  const auto config = parse_model_config(document, nullptr);
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(parameter_count(*config), 49'122'681'728);
  EXPECT_EQ(sequence_bytes(*config).recurrent, 41'943'040);
}

TEST(ModelConfig, TinyA) {
  const auto config = read_model_config(kGoldens + "tiny-a");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->family, "kimi_k31");
  EXPECT_EQ(config->tensor_prefix, "language_model.");
  EXPECT_EQ(config->layers[3].mixer, Mixer::kMla);
  EXPECT_TRUE(config->layers[8].indexer);
  EXPECT_EQ(config->layers[0].feed_forward, FeedForward::kDense);
  EXPECT_EQ(config->layers[1].feed_forward, FeedForward::kMoe);
  EXPECT_EQ(config->moe.shared_width, 64);
  EXPECT_TRUE(config->moe.latent_norm);
  EXPECT_EQ(config->indexer.heads, 5);
  EXPECT_FALSE(config->indexer.sizes_assumed);
  EXPECT_EQ(config->latent_norm_eps, 1e-6);
  EXPECT_EQ(config->media_token, 277);
  EXPECT_EQ(config->expert_format, ExpertFormat::kMxfp4);
  EXPECT_EQ(config->stop_tokens, (std::vector<std::int64_t>{257, 258}));
  // Text and tower as spec 11.1 counts them, with A_log at its padded length there.
  EXPECT_EQ(parameter_count(*config) + 6 * (128 - 3), 3'700'496 + 86'720);
}

TEST(ModelConfig, TinyC) {
  const auto config = read_model_config(kGoldens + "tiny-c");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->family, "kimi_linear");
  EXPECT_EQ(config->tensor_prefix, "");
  EXPECT_EQ(config->activation, Activation::kSwiglu);
  EXPECT_EQ(config->attn_res_block, 0);
  EXPECT_EQ(config->kda.gate_lower_bound, 0);
  EXPECT_FALSE(config->kda.full_rank_gate);
  EXPECT_EQ(config->mla.q_lora_rank, 0);
  EXPECT_FALSE(config->mla.output_gate);
  EXPECT_DOUBLE_EQ(config->moe.scaling, 2.446);
  EXPECT_EQ(config->max_positions, 4096);
  EXPECT_FALSE(config->vision.has_value());
  EXPECT_EQ(config->media_token, -1);
}

TEST(ModelConfig, StopTokensOfAllFilesTogether) {
  Json config = golden_config("tiny-a");
  const Json generation = {{"eos_token_id", {258, 300}}};
  const auto parsed = parse_model_config(config, &generation);
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->stop_tokens, (std::vector<std::int64_t>{257, 258, 300}));
  const Json bad = {{"eos_token_id", 512}};
  EXPECT_EQ(parse_model_config(config, &bad).status().message(),
            "generation_config.json: eos_token_id: expected token ids in [0, 512), found 512");
}

TEST(ModelConfig, IndexerKeysHaveAliases) {
  Json config = golden_config("tiny-a");
  config["text_config"]["dsa_config"] = {{"n_heads", 5}, {"head_dim", 16}, {"top_k", 9}, {"dsa_layers", {8}}};
  const auto parsed = parse_model_config(config, nullptr);
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_EQ(parsed->indexer.top_k, 9);
  EXPECT_FALSE(parsed->layers[3].indexer);
  EXPECT_TRUE(parsed->layers[7].indexer);
}

struct BadConfig {
  const char* path;  // JSON pointer below text_config (or from the root, with a leading "//")
  const char* value;
  const char* message;
};

class RefusedConfig : public testing::TestWithParam<BadConfig> {};

TEST_P(RefusedConfig, NamesKeyExpectedAndFound) {
  const BadConfig& bad = GetParam();
  Json config = golden_config("tiny-a");
  const std::string path = bad.path;
  const Json::json_pointer pointer(path.starts_with("//") ? path.substr(1) : "/text_config" + path);
  config[pointer] = Json::parse(bad.value);
  const auto parsed = parse_model_config(config, nullptr);
  ASSERT_FALSE(parsed.ok());
  EXPECT_EQ(parsed.status().message(), bad.message);
}

INSTANTIATE_TEST_SUITE_P(
    Keys, RefusedConfig,
    testing::Values(
        BadConfig{"/hidden_size", "null",
                  "text_config.hidden_size: expected an integer in [1, 1048576], found nothing"},
        BadConfig{"/hidden_size", "0", "text_config.hidden_size: expected an integer in [1, 1048576], found 0"},
        BadConfig{"/hidden_size", "\"160\"",
                  "text_config.hidden_size: expected an integer in [1, 1048576], found \"160\""},
        BadConfig{"/hidden_size", "18446744073709551615",
                  "text_config.hidden_size: expected an integer in [1, 1048576], found 18446744073709551615"},
        BadConfig{"/hidden_size", "160.5", "text_config.hidden_size: expected an integer in [1, 1048576], found 160.5"},
        BadConfig{"/num_hidden_layers", "5000",
                  "text_config.num_hidden_layers: expected an integer in [1, 1024], found 5000"},
        BadConfig{"/num_hidden_layers", "10",
                  "text_config.linear_attn_config.full_attn_layers and kda_layers: expected a partition of 1..10, "
                  "found layer 10 in neither"},
        BadConfig{"/linear_attn_config/kda_layers", "[1,2,3,4,5,6,7]",
                  "text_config.linear_attn_config.full_attn_layers and kda_layers: expected a partition of 1..9, "
                  "found layer 4 in both"},
        BadConfig{"/linear_attn_config/kda_layers", "[0,1,2]",
                  "text_config.linear_attn_config.kda_layers: expected an integer in [1, 9], found 0"},
        BadConfig{"/linear_attn_config/full_attn_layers", "[4,4,8,9]",
                  "text_config.linear_attn_config.full_attn_layers: expected each layer once, found 4 twice"},
        BadConfig{"/linear_attn_config/full_attn_layers", "4",
                  "text_config.linear_attn_config.full_attn_layers: expected a list of 1-based layer numbers, found 4"},
        BadConfig{"/linear_attn_config/short_conv_kernel_size", "3",
                  "text_config.linear_attn_config.short_conv_kernel_size: only 4 is supported, found 3"},
        BadConfig{"/linear_attn_config/gate_lower_bound", "-6.0",
                  "text_config.linear_attn_config.gate_lower_bound: expected a number in [-5, -1e-06], found -6.0"},
        BadConfig{"/linear_attn_config/num_heads", "16777216",
                  "text_config.linear_attn_config.num_heads: expected num_heads * head_dim <= 16777216, found "
                  "1073741824"},
        BadConfig{"/mla_use_nope", "false",
                  "text_config.mla_use_nope: only true (no rotary positions) is supported, found false"},
        BadConfig{"/num_key_value_heads", "1",
                  "text_config.num_key_value_heads: only 3 (one per head) is supported, found 1"},
        BadConfig{"/hidden_act", "\"gelu\"", "text_config.hidden_act: only situ or silu is supported, found gelu"},
        BadConfig{"/num_experts_per_token", "17",
                  "text_config.num_experts_per_token: expected an integer in [1, 16], found 17"},
        BadConfig{"/moe_router_activation_func", "\"softmax\"",
                  "text_config.moe_router_activation_func: only sigmoid is supported, found softmax"},
        BadConfig{
            "/num_expert_group", "3",
            "text_config.num_expert_group: expected a divisor of 16 experts that leaves enough to choose, found 3"},
        BadConfig{"/tie_word_embeddings", "true",
                  "text_config.tie_word_embeddings: only false is supported, found true"},
        BadConfig{"/rms_norm_eps", "\"x\"", "text_config.rms_norm_eps: expected a number in [0, 1], found \"x\""},
        BadConfig{"/dsa_config/layers", "[4,5]",
                  "text_config.dsa_config.layers: expected layers of full_attn_layers, found 5"},
        BadConfig{"/dsa_config", "7", "dsa_config: expected an object"},
        BadConfig{"/linear_attn_config", "[]",
                  "text_config.linear_attn_config: expected an object (this program runs the Kimi-Linear, K3 and K3.1 "
                  "families); model_type is \"kimi_k31\""},
        BadConfig{"//text_config", "[]", "text_config: expected an object"},
        BadConfig{"//vision_config/merge_kernel_size", "[2]",
                  "vision_config.merge_kernel_size: expected two integers, found a list"},
        BadConfig{"//vision_config/qkv_hidden_size", "65",
                  "vision_config.qkv_hidden_size: expected a multiple of 2 heads, found 65"},
        BadConfig{"//media_placeholder_token_id", "512",
                  "media_placeholder_token_id: expected an integer in [0, 511], found 512"},
        BadConfig{"//eos_token_id", "[1,\"x\"]", "eos_token_id: expected token ids in [0, 512), found \"x\""}));

TEST(ModelConfig, OtherFamiliesAreNamed) {
  const Json llama = {{"model_type", "llama"}, {"hidden_size", 4096}};
  EXPECT_EQ(parse_model_config(llama, nullptr).status().code(), StatusCode::kUnimplemented);
  EXPECT_NE(parse_model_config(llama, nullptr).status().message().find("llama"), std::string::npos);
  EXPECT_FALSE(parse_model_config(Json::array(), nullptr).ok());
}

}  // namespace
}  // namespace perigee
