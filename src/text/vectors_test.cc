#include "text/vectors.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace perigee {
namespace {

class Vectors : public testing::TestWithParam<VectorSuite> {};

TEST_P(Vectors, AllPass) {
  const auto document = read_json_file(std::string(PERIGEE_SOURCE_DIR "/tests/data/text/") + GetParam().file);
  ASSERT_TRUE(document.ok()) << document.status().message();
  const auto report = GetParam().run(*document);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_GT(report->total, 0U);
  for (const std::string& failure : report->failures) ADD_FAILURE() << failure;
}

INSTANTIATE_TEST_SUITE_P(Text, Vectors, testing::ValuesIn(kTextSuites));

}  // namespace
}  // namespace perigee
