// int8 groups made of BF16 matrices: what is converted, how far the values are, what is refused.
#include <gtest/gtest.h>

#include <cmath>

#include "base/numeric.h"
#include "checkpoint/test_support.h"

namespace perigee {
namespace {

using testing_support::kGoldens;
using testing_support::small_model;
using testing_support::TemporaryFolder;
using testing_support::write_single_file;

constexpr LoadOptions kInt8Weights{.weights = WeightsAs::kInt8};

std::int64_t bytes_of(const Matrix& m) {
  return m.rows * (m.row_bytes + m.scale_row_bytes);
}

// Every code is the nearest one to its weight: half a step away at most, or at the end of the range, which rounding
// the scale to bf16 may have moved by 2^-9 of it.
void expect_near(const Matrix& stored, const Matrix& made, const std::string& name) {
  ASSERT_EQ(stored.cols, made.cols) << name;
  ASSERT_EQ(made.group, 32) << name;
  for (std::int64_t row = 0; row < stored.rows; ++row) {
    const auto* weights = reinterpret_cast<const bf16*>(stored.data + row * stored.row_bytes);
    const auto* codes = reinterpret_cast<const std::uint8_t*>(made.data + row * made.row_bytes);
    const auto* scales = reinterpret_cast<const bf16*>(made.scales + row * made.scale_row_bytes);
    for (std::int64_t c = 0; c < stored.cols; ++c) {
      const float step = to_float(scales[c / 32]);
      const float want = to_float(weights[c]);
      const float got = step * static_cast<float>(codes[c] - 128);
      ASSERT_LE(std::fabs(got - want), 0.5001F * step) << name << " [" << row << ", " << c << "]";
      ASSERT_LE(std::fabs(want), 127.5F * step) << name << " [" << row << ", " << c << "]";
    }
  }
}

TEST(Requantise, EveryLargeMatrixIsNearAndTheOthersStay) {
  for (const char* config : {"tiny-a", "tiny-a-bf16", "tiny-b", "tiny-k3"}) {
    const auto stored = synthesise_checkpoint(kGoldens + config);
    const auto made = synthesise_checkpoint(kGoldens + config, kInt8Weights);
    ASSERT_TRUE(stored.ok() && made.ok()) << made.status().message();
    EXPECT_EQ((*stored)->weights_as(), WeightsAs::kStored);
    EXPECT_EQ((*made)->weights_as(), WeightsAs::kInt8);
    const ModelWeights& a = (*stored)->weights();
    const ModelWeights& b = (*made)->weights();
    const auto converted = [&](const Matrix& from, const Matrix& to, const std::string& name) {
      if (from.empty()) return;
      ASSERT_EQ(to.format, from.format == WeightFormat::kBf16 ? WeightFormat::kInt8Group : from.format) << name;
      if (from.format == WeightFormat::kBf16) expect_near(from, to, name);
    };
    converted(a.lm_head, b.lm_head, "lm_head");
    EXPECT_EQ(b.embedding.format, a.embedding.format);
    for (std::size_t i = 0; i < a.layers.size(); ++i) {
      const LayerWeights& from = a.layers[i];
      const LayerWeights& to = b.layers[i];
      converted(from.kda.q, to.kda.q, "kda.q");
      converted(from.kda.o, to.kda.o, "kda.o");
      converted(from.mla.o, to.mla.o, "mla.o");
      converted(from.mla.kv_a, to.mla.kv_a, "mla.kv_a");
      converted(from.dense.down, to.dense.down, "dense.down");
      converted(from.moe.latent_up, to.moe.latent_up, "latent_up");
      converted(from.moe.shared.gate, to.moe.shared.gate, "shared.gate");
      if (!from.moe.experts.empty()) converted(from.moe.experts[0].up, to.moe.experts[0].up, "expert.up");
      // W_UK is read transposed; the others decide what is forgotten, chosen or looked at.
      EXPECT_EQ(to.mla.kv_b.format, from.mla.kv_b.format);
      EXPECT_EQ(to.mla.indexer.q.format, from.mla.indexer.q.format);
      EXPECT_EQ(to.kda.f_b.format, from.kda.f_b.format);
      EXPECT_EQ(to.kda.b.format, from.kda.b.format);
      EXPECT_EQ(to.moe.router.format, from.moe.router.format);
    }
  }
}

// Pages of mapped files are given back, so they are not counted; generated weights stay in memory.
TEST(Requantise, CountsWhatStaysInMemory) {
  const TemporaryFolder folder;
  write_single_file(small_model(), folder.path());
  const auto stored = Checkpoint::open(folder.path());
  const auto made = Checkpoint::open(folder.path(), kInt8Weights);
  ASSERT_TRUE(stored.ok() && made.ok()) << made.status().message();
  const Matrix& from = (*stored)->weights().lm_head;
  const Matrix& to = (*made)->weights().lm_head;
  // At least what the head saves; other matrices save as well.
  EXPECT_GE((*stored)->resident_bytes() - (*made)->resident_bytes(), bytes_of(from) - bytes_of(to));
  EXPECT_LT((*made)->resident_bytes(), (*stored)->resident_bytes());
  // Digest and stored tensors are those of the folder: the numerics id tells the two apart.
  EXPECT_EQ((*made)->digest(), (*stored)->digest());
}

TEST(Requantise, WeightsThatAreNotFiniteAreRefused) {
  auto model = small_model();
  const std::string name = "language_model.lm_head.weight";
  ASSERT_TRUE(model.tensors.contains(name));
  model.tensors[name].bytes[201] = '\x7F';  // the upper byte of a bf16
  model.tensors[name].bytes[200] = '\xC0';
  const TemporaryFolder folder;
  write_single_file(model, folder.path());
  ASSERT_TRUE(Checkpoint::open(folder.path()).ok());
  const auto made = Checkpoint::open(folder.path(), kInt8Weights);
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.status().message().find(name + ": expected finite weights"), std::string::npos)
      << made.status().message();
}

}  // namespace
}  // namespace perigee
