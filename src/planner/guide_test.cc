#include "planner/guide.h"

#include <gtest/gtest.h>

#include "base/file.h"

namespace perigee::planner {
namespace {

TEST(Guide, DocumentsEqualTheGeneratedText) {
  for (const Guide& guide : guides()) {
    const auto text = write_guide(built_in_catalogue(), guide);
    ASSERT_TRUE(text.ok()) << text.status().message();
    const std::string path = std::string(PERIGEE_SOURCE_DIR) + "/docs/ascend/" + std::string(guide.file);
    const auto file = read_file(path, 1 << 20);
    ASSERT_TRUE(file.ok()) << file.status().message();
    EXPECT_EQ(*file, *text) << "write it again: perigee plan guide " << guide.node << " > docs/ascend/" << guide.file;
  }
}

}  // namespace
}  // namespace perigee::planner
