// Generated weights against the manifests of the golden configurations: names, types, shapes and every byte.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/sha256.h"
#include "checkpoint/test_support.h"

namespace perigee {
namespace {

using testing_support::kGoldens;

class Manifest : public testing::TestWithParam<const char*> {};

TEST_P(Manifest, EveryTensorIsTheSameBytes) {
  auto checkpoint = synthesise_checkpoint(kGoldens + GetParam());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  const auto manifest = read_json_file(kGoldens + GetParam() + "/manifest.json");
  ASSERT_TRUE(manifest.ok()) << manifest.status().message();
  const TensorTable& tensors = (*checkpoint)->tensors();
  EXPECT_EQ(tensors.size(), (*manifest)["count"].get<std::size_t>());
  EXPECT_TRUE((*checkpoint)->warnings().empty());
  for (const auto& [name, entry] : (*manifest)["tensors"].items()) {
    const TensorView* view = tensors.find(name);
    ASSERT_NE(view, nullptr) << name;
    EXPECT_EQ(dtype_name(view->dtype), entry["dtype"].get<std::string>()) << name;
    Shape shape;
    for (const auto& extent : entry["shape"]) shape.push_back(extent.get<std::int64_t>());
    EXPECT_EQ(view->shape, shape) << name;
    EXPECT_EQ(to_hex(sha256(view->data)), entry["sha256"].get<std::string>()) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Configs, Manifest,
                         testing::Values("tiny-a", "tiny-a-bf16", "tiny-a-int4", "tiny-k3", "tiny-b", "tiny-c",
                                         "tiny-eps"),
                         [](const auto& config) {
                           std::string name = config.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace perigee
