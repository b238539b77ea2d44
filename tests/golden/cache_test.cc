// The cache vectors against the real index: the same run as `perigee verify cache tests/data/cache`.
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <filesystem>

#include "cache/cache_vectors.h"

namespace perigee {
namespace {

TEST(CacheVectors, SequencesKeysAndTracesHold) {
  spdlog::set_level(spdlog::level::off);  // the vectors damage objects on purpose
  std::string scratch = (std::filesystem::temp_directory_path() / "perigee-cache-XXXXXX").string();
  ASSERT_NE(::mkdtemp(scratch.data()), nullptr);
  const std::string data = PERIGEE_SOURCE_DIR "/tests/data/cache";
  const auto report = run_cache_vectors(data, data + "/traces", scratch);
  std::filesystem::remove_all(scratch);
  ASSERT_TRUE(report.ok()) << report.status().message();
  for (const std::string& failure : report->failures) ADD_FAILURE() << failure;
  EXPECT_EQ(report->sequences_passed, 87);
  EXPECT_EQ(report->key_prompts_passed, 13);
  EXPECT_EQ(report->traces_passed, 10);
}

}  // namespace
}  // namespace perigee
