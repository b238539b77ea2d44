// Folders as they come, and folders with one thing wrong.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/numeric.h"
#include "checkpoint/names.h"
#include "checkpoint/test_support.h"

namespace perigee {
namespace {

using testing_support::kGoldens;
using testing_support::make_tensor;
using testing_support::put_file;
using testing_support::raw;
using testing_support::safetensors_bytes;
using testing_support::small_model;
using testing_support::SmallModel;
using testing_support::StoredTensor;
using testing_support::StoredTensors;
using testing_support::TemporaryFolder;
using testing_support::write_configs;
using testing_support::write_single_file;

const std::string kLayers = "language_model.model.layers.";
const std::string kExpert = kLayers + "1.block_sparse_moe.experts.2.w1";

Result<std::unique_ptr<Checkpoint>> open_model(const SmallModel& model) {
  const TemporaryFolder folder;
  write_single_file(model, folder.path());
  return Checkpoint::open(folder.path());
}

void expect_refused(const SmallModel& model, const std::string& part) {
  const auto checkpoint = open_model(model);
  ASSERT_FALSE(checkpoint.ok()) << part;
  EXPECT_NE(checkpoint.status().message().find(part), std::string::npos) << checkpoint.status().message();
}

// Formats and sizes of every matrix, and every vector, bit for bit.
void expect_same_weights(const Checkpoint& a, const Checkpoint& b) {
  ASSERT_EQ(a.tensors().size(), b.tensors().size());
  for (std::size_t i = 0; i < a.tensors().size(); ++i) {
    EXPECT_EQ(a.tensors()[i].name, b.tensors()[i].name);
    EXPECT_TRUE(std::ranges::equal(a.tensors()[i].data, b.tensors()[i].data)) << a.tensors()[i].name;
  }
  for (std::size_t i = 0; i < a.weights().layers.size(); ++i) {
    EXPECT_EQ(a.weights().layers[i].kda.a, b.weights().layers[i].kda.a);
    EXPECT_EQ(a.weights().layers[i].kda.conv, b.weights().layers[i].kda.conv);
    EXPECT_EQ(a.weights().layers[i].attention_mix.mix, b.weights().layers[i].attention_mix.mix);
  }
}

class WrittenGolden : public testing::TestWithParam<const char*> {};

TEST_P(WrittenGolden, IsTheGeneratedCheckpoint) {
  const TemporaryFolder folder;
  const auto source = read_synth_source(kGoldens + GetParam());
  ASSERT_TRUE(source.ok());
  const auto written =
      write_generated_checkpoint(*source, folder / "model", {.shard_bytes = 2'000'000, .show_progress = false});
  ASSERT_TRUE(written.ok()) << written.status().message();
  const auto generated = synthesise_checkpoint(kGoldens + GetParam());
  const auto mapped = Checkpoint::open(folder / "model");
  const auto read = Checkpoint::open(folder / "model", {.parallel_read = true, .show_progress = false});
  ASSERT_TRUE(generated.ok() && mapped.ok() && read.ok()) << mapped.status().message() << read.status().message();
  EXPECT_EQ(written->tensors, std::ssize((*generated)->tensors()));
  expect_same_weights(**generated, **mapped);
  expect_same_weights(**generated, **read);
  EXPECT_TRUE(Checkpoint::open(folder / "model", {.parallel_read = false, .show_progress = true}).ok());
  EXPECT_TRUE((*mapped)->warnings().empty());
  EXPECT_EQ((*generated)->digest(), (*mapped)->digest());
  EXPECT_EQ((*generated)->digest(), (*read)->digest());
  EXPECT_FALSE(write_generated_checkpoint(*source, folder / "model", {}).ok()) << "never over an existing checkpoint";
}

INSTANTIATE_TEST_SUITE_P(Configs, WrittenGolden, testing::Values("tiny-a", "tiny-a-int4", "tiny-b", "tiny-c"),
                         [](const auto& config) {
                           std::string name = config.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST(Loader, WeightsAreWhereTheyBelong) {
  const SmallModel model = small_model();
  const auto checkpoint = open_model(model);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  const ModelWeights& weights = (*checkpoint)->weights();
  const auto is_at = [&](const Matrix& matrix, const std::string& name) {
    const TensorView* view = (*checkpoint)->tensors().find(name);
    return view != nullptr && matrix.data == view->data.data() && matrix.rows == view->shape[0];
  };
  EXPECT_TRUE(is_at(weights.embedding, "language_model.model.embed_tokens.weight"));
  const MlpWeights& expert = weights.layers[1].moe.experts[2];
  EXPECT_TRUE(is_at(expert.gate, kExpert + ".weight_packed"));
  EXPECT_TRUE(is_at(expert.up, kLayers + "1.block_sparse_moe.experts.2.w3.weight_packed"));
  EXPECT_TRUE(is_at(expert.down, kLayers + "1.block_sparse_moe.experts.2.w2.weight_packed"));
  EXPECT_EQ(expert.gate.format, WeightFormat::kMxfp4);
  EXPECT_EQ(expert.gate.cols, 128);
  EXPECT_EQ(expert.gate.row_bytes, 64);
  EXPECT_EQ(expert.gate.scale_row_bytes, 4);

  const KdaWeights& kda = weights.layers[0].kda;
  EXPECT_EQ(kda.conv.size(), 3U * 192 * 4);
  float tap = 0;
  std::memcpy(&tap, model.tensors.at(kLayers + "0.self_attn.k_conv1d.weight").bytes.data() + 4 * 5, 4);
  EXPECT_EQ(kda.conv[192 * 4 + 5], tap);
  float a_log = 0;
  std::memcpy(&a_log, model.tensors.at(kLayers + "0.self_attn.A_log").bytes.data() + 8, 4);
  ASSERT_EQ(kda.a.size(), 3U);
  EXPECT_EQ(kda.a[2], std::exp(a_log));
  std::uint16_t norm = 0;
  std::uint16_t proj = 0;
  std::memcpy(&norm, model.tensors.at(kLayers + "2.mlp_res_norm.weight").bytes.data() + 14, 2);
  std::memcpy(&proj, model.tensors.at(kLayers + "2.mlp_res_proj.weight").bytes.data() + 14, 2);
  EXPECT_EQ(weights.layers[2].mlp_mix.mix[7], to_float(bf16{norm}) * to_float(bf16{proj}));
}

TEST(Loader, HuggingFaceCacheFolderWithLinks) {
  namespace fs = std::filesystem;
  const TemporaryFolder folder;
  const SmallModel model = small_model();
  const std::string root = folder / "models--org--name";
  const std::string snapshot = root + "/snapshots/0123abcd";
  write_single_file(model, folder / "plain");
  fs::create_directories(root + "/blobs");
  fs::create_directories(snapshot);
  fs::create_directories(root + "/refs");
  for (const char* name : {"config.json", "generation_config.json", "model.safetensors"}) {
    fs::rename(folder / ("plain/" + std::string(name)), root + "/blobs/" + name);
    fs::create_symlink("../../blobs/" + std::string(name), snapshot + "/" + name);
  }
  const auto only_snapshot = Checkpoint::open(root);
  ASSERT_TRUE(only_snapshot.ok()) << only_snapshot.status().message();
  EXPECT_EQ((*only_snapshot)->directory(), snapshot);

  fs::create_directories(root + "/snapshots/fedcba");
  EXPECT_NE(Checkpoint::open(root).status().message().find("found 2 snapshots"), std::string::npos);
  ASSERT_TRUE(put_file(root + "/refs/main", "0123abcd\n"));
  EXPECT_TRUE(Checkpoint::open(root).ok());
  ASSERT_TRUE(put_file(root + "/refs/main", "../../../etc"));
  EXPECT_NE(Checkpoint::open(root).status().message().find("expected the name of a snapshot"), std::string::npos);
}

TEST(Loader, Spellings) {
  const std::string prefix = "language_model.";
  EXPECT_EQ(canonical_tensor_name("language_model.layers.3.x", prefix), "language_model.model.layers.3.x");
  EXPECT_EQ(canonical_tensor_name("model.layers.3.x", prefix), "language_model.model.layers.3.x");
  EXPECT_EQ(canonical_tensor_name("language_model.model.layers.3.x", ""), "model.layers.3.x");
  EXPECT_EQ(canonical_tensor_name("lm_head.weight", prefix), "language_model.lm_head.weight");
  EXPECT_EQ(canonical_tensor_name("language_model.model.layers.0.mlp_res.proj_weight", prefix),
            "language_model.model.layers.0.mlp_res_proj.weight");
  EXPECT_EQ(canonical_tensor_name("language_model.model.output_attn_res.norm_weight", prefix),
            "language_model.model.output_attn_res_norm.weight");
  EXPECT_EQ(canonical_tensor_name("vision_tower.encoder.blocks.0.norm0.weight", prefix),
            "vision_tower.encoder.blocks.0.norm0.weight");
}

TEST(Loader, ReexportsWithOldNamesAndOtherPrefix) {
  SmallModel model = small_model();
  const auto expected = open_model(model);
  ASSERT_TRUE(expected.ok());
  SmallModel renamed = model;
  renamed.tensors.clear();
  for (const auto& [name, tensor] : model.tensors) {
    std::string to = name;
    const auto replace = [&to](const std::string& from, const std::string& by) {
      if (const auto at = to.find(from); at != std::string::npos) to.replace(at, from.size(), by);
    };
    replace("language_model.model.", "language_model.");
    replace("_res_proj.weight", "_res.proj_weight");
    replace("_res_norm.weight", "_res.norm_weight");
    renamed.tensors[to] = tensor;
  }
  const auto checkpoint = open_model(renamed);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  expect_same_weights(**expected, **checkpoint);
  EXPECT_EQ((*expected)->digest(), (*checkpoint)->digest());

  // The same tensor under two spellings is one too many.
  renamed.tensors["language_model.model.norm.weight"] = model.tensors["language_model.model.norm.weight"];
  expect_refused(renamed, "tensor language_model.model.norm.weight: expected once, found twice");
}

TEST(Loader, LowerPrecisionIsWidenedWithAWarning) {
  SmallModel model = small_model();
  StoredTensor& bias = model.tensors[kLayers + "0.self_attn.dt_bias"];
  bias = make_tensor("BF16", {192}, raw(std::vector<std::uint16_t>(192, 0x3F80)));
  StoredTensor& conv = model.tensors[kLayers + "0.self_attn.q_conv1d.weight"];
  conv = make_tensor("F16", {192, 4}, raw(std::vector<std::uint16_t>(768, 0x3C00)));
  const auto checkpoint = open_model(model);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_EQ((*checkpoint)->warnings(),
            (std::vector<std::string>{"1 tensors dt_bias are stored in less than F32, as released; widened",
                                      "1 tensors q_conv1d are stored in less than F32, as released; widened"}));
  EXPECT_EQ((*checkpoint)->weights().layers[0].kda.dt_bias[191], 1.0F);
  EXPECT_EQ((*checkpoint)->weights().layers[0].kda.conv[767], 1.0F);
}

TEST(Loader, MissingTensors) {
  SmallModel model = small_model();
  model.tensors.erase(kLayers + "3.self_attn.kv_b_proj.weight");
  expect_refused(model, "1 expected tensors are in no file: " + kLayers + "3.self_attn.kv_b_proj.weight");
  model = small_model();
  model.tensors.erase(kExpert + ".weight_scale");
  expect_refused(model, "model.safetensors: tensor " + kExpert + ".weight_packed: expected a companion .weight_scale");
  model = small_model();
  model.tensors.clear();
  expect_refused(model, "expected tensors are in no file");
}

TEST(Loader, ExtraTensors) {
  SmallModel model = small_model();
  model.tensors[kLayers + "0.self_attn.q_proj.bias"] = make_tensor("U8", {1}, "x");
  expect_refused(model, "1 tensors do not belong to the model that config.json describes: " + kLayers +
                            "0.self_attn.q_proj.bias U8 [1] in ");
  model = small_model();
  model.tensors[kLayers + "4.input_layernorm.weight"] = make_tensor("U8", {8}, "12345678");
  expect_refused(model, "1 tensors do not belong");
  model.config["text_config"]["num_nextn_predict_layers"] = 1;
  const auto draft = open_model(model);
  ASSERT_TRUE(draft.ok()) << draft.status().message();
  EXPECT_EQ((*draft)->warnings().front(), "1 tensors ignored: draft layers after the last one");
}

TEST(Loader, WrongShapesAndTypes) {
  SmallModel model = small_model();
  StoredTensor* tensor = &model.tensors[kLayers + "0.self_attn.q_proj.weight"];
  std::swap(tensor->shape[0], tensor->shape[1]);
  expect_refused(model, "self_attn.q_proj.weight: expected shape [192, 160], found [160, 192]");
  model = small_model();
  tensor = &model.tensors[kLayers + "0.input_layernorm.weight"];
  tensor->shape = {80};
  tensor->bytes.resize(160);
  expect_refused(model, "0.input_layernorm.weight: expected [160], found [80]");
  model = small_model();
  model.tensors[kLayers + "0.input_layernorm.weight"].dtype = "I16";
  expect_refused(model, "0.input_layernorm.weight: expected dtype F32, BF16 or F16, found I16");
  model = small_model();
  model.tensors["language_model.lm_head.weight"].dtype = "F16";
  expect_refused(model, "tensor language_model.lm_head.weight: a matrix stored as F16 is not supported");
  model = small_model();
  tensor = &model.tensors[kExpert + ".weight_scale"];
  tensor->shape = {32, 2};
  tensor->bytes.resize(64);
  expect_refused(model, "w1.weight_scale: expected shape [32, 4], found [32, 2]");
  model = small_model();
  model.tensors["vision_tower.patch_embed.proj.weight"].shape = {32, 3, 196};
  expect_refused(model, "vision_tower.patch_embed.proj.weight: expected shape [32, 3, 14, 14], found [32, 3, 196]");
}

TEST(Loader, DecayPadding) {
  SmallModel model = small_model();
  const std::string name = kLayers + "1.self_attn.A_log";
  model.tensors[name].bytes[4 * 100 + 3] = '\x3F';
  expect_refused(model, "tensor " + name +
                            ": expected zeros from element 3 on (padding after the heads), found 0.5 at "
                            "element 100");
  model.tensors[name] = make_tensor("F32", {2}, raw<float>({1, 2}));
  expect_refused(model, "expected a vector of 3 elements, or zeros after them, found [2]");
  model.tensors[name] = make_tensor("F32", {2, 2}, raw<float>({1, 2, 3, 0}));
  expect_refused(model, "expected a vector of 3 elements, or zeros after them, found [2, 2]");
  model.tensors[name] = make_tensor("F32", {3}, raw<float>({1, 2, 1000}));
  expect_refused(model, "expected finite values, found inf at 2");
  model.tensors[name] = make_tensor("F32", {1, 1, 3, 1}, raw<float>({1, 2, 3}));
  EXPECT_TRUE(open_model(model).ok());
}

TEST(Loader, NotANumber) {
  SmallModel model = small_model();
  model.tensors[kExpert + ".weight_scale"].bytes[77] = '\xFF';
  expect_refused(model, "tensor " + kExpert + ".weight_scale: expected finite scales, found 255 (NaN) at element 77");
  model = small_model("tiny-a-int4");
  model.tensors[kExpert + ".weight_scale"].bytes.replace(10, 2, "\x80\x7F");
  expect_refused(model, "expected finite scales, found NaN or infinity at element 5");
  model = small_model();
  model.tensors[kLayers + "0.self_attn.dt_bias"].bytes.replace(0, 4, std::string("\0\0\xC0\x7F", 4));
  expect_refused(model, "dt_bias: expected finite values, found nan at 0");
}

TEST(Loader, IntegerFormats) {
  SmallModel model = small_model("tiny-a-int4");
  const auto expected = open_model(model);
  ASSERT_TRUE(expected.ok()) << expected.status().message();
  EXPECT_EQ((*expected)->weights().layers[1].moe.experts[2].gate.format, WeightFormat::kInt4Group);
  EXPECT_EQ((*expected)->weights().layers[1].moe.experts[2].gate.group, 32);

  // Channel-wise INT4 in the experts, INT8 in the attention, as one re-export has it.
  model.tensors[kExpert + ".weight_scale"] = make_tensor("F32", {32, 1}, raw(std::vector<float>(32, 0.5F)));
  model.tensors.erase(kExpert + ".weight_shape");
  const std::string q = kLayers + "0.self_attn.q_proj.";
  model.tensors.erase(q + "weight");
  model.tensors[q + "weight_packed"] = make_tensor("I32", {192, 40}, std::string(192 * 40 * 4, '\x81'));
  model.tensors[q + "weight_scale"] = make_tensor("BF16", {192, 1}, raw(std::vector<std::uint16_t>(192, 0x3F80)));
  model.tensors[q + "weight_shape"] = make_tensor("I64", {2}, raw<std::int64_t>({192, 160}));
  const auto checkpoint = open_model(model);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  const Matrix& channel = (*checkpoint)->weights().layers[1].moe.experts[2].gate;
  EXPECT_EQ(channel.group, 128);
  EXPECT_EQ(channel.scale_format, ScaleFormat::kF32);
  EXPECT_EQ(channel.scale_row_bytes, 4);
  const Matrix& int8 = (*checkpoint)->weights().layers[0].kda.q;
  EXPECT_EQ(int8.format, WeightFormat::kInt8Group);
  EXPECT_EQ(int8.row_bytes, 160);
  EXPECT_EQ(int8.group, 160);

  model.tensors[q + "weight_shape"] = make_tensor("I64", {2}, raw<std::int64_t>({160, 192}));
  expect_refused(model, "q_proj.weight_shape: expected the values 192, 160, found 160, 192");
  model.tensors[q + "weight_zero_point"] = make_tensor("I32", {1}, "0000");
  expect_refused(model, "q_proj.weight_zero_point: asymmetric or reordered integer quantisation is not supported");
  model = small_model("tiny-a-int4");
  model.tensors[kExpert + ".weight_packed"].shape = {64, 8};
  expect_refused(model, "w1.weight_packed: expected shape [32, 16] (INT4) or [32, 32] (INT8), found [64, 8]");
}

TEST(Loader, Fp8Blocks) {
  SmallModel model = small_model();
  const std::string q = kLayers + "0.self_attn.q_proj.";
  model.tensors[q + "weight"] = make_tensor("F8_E4M3", {192, 160}, std::string(192 * 160, '\x38'));
  expect_refused(model, "q_proj.weight: expected a companion .weight_scale, found none");
  for (const char* suffix : {"weight_scale", "weight_scale_inv"}) {
    SmallModel variant = model;
    variant.tensors[q + suffix] = make_tensor("F32", {2, 2}, raw<float>({1, 2, 3, 4}));
    const auto checkpoint = open_model(variant);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    const Matrix& matrix = (*checkpoint)->weights().layers[0].kda.q;
    EXPECT_EQ(matrix.format, WeightFormat::kFp8Block);
    EXPECT_EQ(matrix.scale_row_bytes, 8);
    variant.tensors[q + suffix] = make_tensor("F32", {1}, raw<float>({1}));
    expect_refused(variant, "expected shape [2, 2] (128 x 128 blocks), found [1]");
  }
}

TEST(Loader, UnknownFormatsAreNamed) {
  SmallModel model = small_model();
  model.tensors[kExpert + ".weight_global_scale"] = make_tensor("F32", {1}, raw<float>({1}));
  expect_refused(model, "w1.weight_packed: NVFP4 (weight_global_scale) is not supported");
  model = small_model();
  model.tensors[kExpert + ".weight_scale"].dtype = "F8_E4M3";
  expect_refused(model, "w1.weight_scale: NVFP4 (E4M3 scales) is not supported");
  model = small_model();
  const std::string gate = kLayers + "1.block_sparse_moe.gate.weight";
  model.tensors[gate].dtype = "U16";
  expect_refused(model, gate + ": a matrix stored as U16 is not supported");
}

TEST(Loader, Vision) {
  SmallModel model = small_model();
  model.tensors.erase("mm_projector.proj.0.weight");
  expect_refused(model, "1 of 18 vision tensors are missing, the first is mm_projector.proj.0.weight");
  std::erase_if(model.tensors, [](const auto& item) { return !item.first.starts_with("language_model."); });
  const auto text_only = open_model(model);
  ASSERT_TRUE(text_only.ok()) << text_only.status().message();
  EXPECT_FALSE((*text_only)->config().vision.has_value());
  EXPECT_EQ((*text_only)->config().media_token, -1);
  EXPECT_EQ((*text_only)->warnings().size(), 1U);
}

TEST(Loader, IndexerIsAdoptedFromTensors) {
  SmallModel model = small_model();
  model.config["text_config"].erase("dsa_config");
  const auto checkpoint = open_model(model);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_EQ((*checkpoint)->config().indexer.heads, 5);
  EXPECT_EQ((*checkpoint)->config().indexer.head_dim, 16);
  EXPECT_EQ((*checkpoint)->config().indexer.top_k, 2048);
  EXPECT_TRUE((*checkpoint)->config().layers[3].indexer);

  model = small_model();
  model.config["text_config"]["dsa_config"]["index_n_heads"] = 6;
  expect_refused(model, "indexer.wq_b.weight: expected shape [96, 56], found [80, 56]");
  model = small_model();
  std::erase_if(model.tensors, [](const auto& item) { return item.first.find("indexer") != std::string::npos; });
  expect_refused(model, "4 expected tensors are in no file");

  // A size from a file is checked before anything is computed with it.
  model = small_model();
  model.config["text_config"].erase("dsa_config");
  model.tensors[kLayers + "3.self_attn.indexer.wk.weight"] = make_tensor("BF16", {std::int64_t{1} << 58, 0}, "");
  expect_refused(model, "indexer.wk.weight: expected 1 to 4096 rows, found 288230376151711744");

  // Should the query matrix be as wide as the model, it takes x (spec 14.4).
  model = small_model();
  model.tensors[kLayers + "3.self_attn.indexer.wq_b.weight"] = make_tensor("BF16", {80, 160}, std::string(25600, '\0'));
  const auto wide = open_model(model);
  ASSERT_TRUE(wide.ok()) << wide.status().message();
  EXPECT_EQ((*wide)->weights().layers[3].mla.indexer.q.cols, 160);
}

TEST(Loader, UnalignedDataIsCopied) {
  const SmallModel model = small_model();
  const auto expected = open_model(model);
  const TemporaryFolder folder;
  write_configs(model, folder.path());
  ASSERT_TRUE(put_file(folder / "model.safetensors", safetensors_bytes(model.tensors, 1)));
  const auto checkpoint = Checkpoint::open(folder.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_NE((*checkpoint)->warnings().front().find("not aligned"), std::string::npos);
  const Matrix& matrix = (*checkpoint)->weights().embedding;
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(matrix.data) % 2, 0U);
  EXPECT_EQ(std::memcmp(matrix.data, (*expected)->weights().embedding.data, 512 * 160 * 2), 0);
}

// Two shards and an index, each of which can be wrong.
class Sharded : public testing::Test {
 protected:
  void SetUp() override {
    write_configs(model_, folder_.path());
    StoredTensors halves[2];
    index_ = {{"metadata", Json::object()}, {"weight_map", Json::object()}};
    std::size_t count = 0;
    for (const auto& [name, tensor] : model_.tensors) {
      const std::size_t half = count++ % 2;
      halves[half][name] = tensor;
      index_["weight_map"][name] = half == 0 ? "a.safetensors" : "b.safetensors";
    }
    ASSERT_TRUE(put_file(folder_ / "a.safetensors", safetensors_bytes(halves[0])));
    ASSERT_TRUE(put_file(folder_ / "b.safetensors", safetensors_bytes(halves[1])));
  }
  void write_index() { ASSERT_TRUE(put_file(folder_ / "model.safetensors.index.json", index_.dump())); }
  std::string error() {
    const auto checkpoint = Checkpoint::open(folder_.path());
    return checkpoint.ok() ? "" : checkpoint.status().message();
  }

  const TemporaryFolder folder_;
  const SmallModel model_ = small_model();
  Json index_;
};

TEST_F(Sharded, WithAndWithoutIndex) {
  const auto loose = Checkpoint::open(folder_.path());
  ASSERT_TRUE(loose.ok()) << loose.status().message();
  EXPECT_EQ((*loose)->warnings().size(), 1U);
  write_index();
  const auto indexed = Checkpoint::open(folder_.path());
  ASSERT_TRUE(indexed.ok()) << indexed.status().message();
  EXPECT_TRUE((*indexed)->warnings().empty());
}

TEST_F(Sharded, IndexAndShardsDisagree) {
  Json& map = index_["weight_map"];
  const std::string name = map.begin().key();
  map[name] = "b.safetensors";
  write_index();
  EXPECT_NE(error().find("a.safetensors: tensor " + name + ": expected in b.safetensors (index), found here"),
            std::string::npos)
      << error();
  map[name] = "c.safetensors";
  write_index();
  EXPECT_NE(error().find("c.safetensors: cannot open"), std::string::npos) << error();
  map[name] = "../a.safetensors";
  write_index();
  EXPECT_NE(error().find("expected a file name like"), std::string::npos) << error();
  map[name] = "a.safetensors";
  map["nothing.weight"] = "a.safetensors";
  write_index();
  EXPECT_NE(error().find("tensor nothing.weight: expected (the index says so), found no such tensor"),
            std::string::npos)
      << error();
  index_ = Json::array();
  write_index();
  EXPECT_NE(error().find("weight_map: expected an object"), std::string::npos) << error();
}

TEST_F(Sharded, TruncatedShard) {
  write_index();
  const std::string path = folder_ / "b.safetensors";
  const auto size = std::filesystem::file_size(path);
  std::filesystem::resize_file(path, size - 64);
  EXPECT_NE(error().find("b.safetensors: tensor "), std::string::npos) << error();
  EXPECT_NE(error().find("data_offsets: expected begin <= end <= "), std::string::npos) << error();
  std::filesystem::resize_file(path, 4);
  EXPECT_NE(error().find("b.safetensors: safetensors header: expected at least 8 bytes, found 4"), std::string::npos)
      << error();
  std::filesystem::resize_file(path, 0);
  EXPECT_FALSE(error().empty());
  const auto read = Checkpoint::open(folder_.path(), {.parallel_read = true, .show_progress = false});
  EXPECT_FALSE(read.ok());
}

TEST(Loader, FoldersThatAreNone) {
  const TemporaryFolder folder;
  EXPECT_EQ(Checkpoint::open(folder / "nothing").status().code(), StatusCode::kNotFound);
  EXPECT_NE(Checkpoint::open(folder.path()).status().message().find("expected config.json"), std::string::npos);
  write_configs(small_model(), folder.path());
  EXPECT_NE(Checkpoint::open(folder.path()).status().message().find("*.safetensors, found neither"), std::string::npos);
}

TEST(Writer, ShrinksConfigs) {
  auto source = read_synth_source(kGoldens + "tiny-a");
  ASSERT_TRUE(source.ok());
  EXPECT_EQ(shrink_config(*source->config, 10, 0).message(),
            "--layers: expected at most 9 (num_hidden_layers), found 10");
  EXPECT_EQ(shrink_config(*source->config, 0, 3).message(),
            "--experts: expected at least 4 (num_experts_per_token), found 3");
  ASSERT_TRUE(shrink_config(*source->config, 8, 5).ok());
  const auto config = parse_model_config(*source->config, nullptr);
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->layers.size(), 8U);
  EXPECT_EQ(config->moe.experts, 5);
  EXPECT_TRUE(config->layers[7].indexer);
}

}  // namespace
}  // namespace perigee
