// The key vectors of tests/data/cache run in tests/golden; here: what decides equality.
#include "cache/keys.h"

#include <gtest/gtest.h>

#include <numeric>

#include "cache/pages.h"
#include "cache/payload.h"
#include "cache/snapshot_plan.h"

namespace perigee {
namespace {

Sha256Digest digest_of(const char* text) {
  Sha256 hash;
  hash.update(text);
  return hash.finish();
}

TEST(CompareTokens, ImageTokensDifferFromPadTextAndFromOtherOffsets) {
  const std::vector<TokenId> pads(10, 7);
  const std::vector<ImageSpan> image = {{.begin = 2, .length = 6, .digest = digest_of("a")}};
  const std::vector<ImageSpan> other = {{.begin = 2, .length = 6, .digest = digest_of("b")}};
  const std::vector<ImageSpan> later = {{.begin = 1, .length = 7, .digest = digest_of("a")}};
  const BlockTokens text = slice_tokens(pads, {}, 0, 10);
  const BlockTokens a = slice_tokens(pads, image, 0, 10);
  EXPECT_EQ(compare_tokens(a, a).common, 10);
  EXPECT_TRUE(compare_tokens(a, a).order == 0);
  EXPECT_EQ(compare_tokens(a, text).common, 2);
  EXPECT_TRUE(compare_tokens(text, a).order < 0);
  EXPECT_EQ(compare_tokens(a, slice_tokens(pads, other, 0, 10)).common, 2);
  EXPECT_EQ(compare_tokens(a, slice_tokens(pads, later, 0, 10)).common, 1);
  EXPECT_EQ(compare_tokens(a, a.head(5)).common, 5);
  EXPECT_TRUE(compare_tokens(a.head(5), a).order < 0);
  EXPECT_EQ(block_key({}, a.head(5)), block_key({}, slice_tokens(pads, image, 0, 5)));
}

TEST(PagePool, SharesCopiesAndPoisons) {
  auto pool = PagePool::create({.page_bytes = 100, .capacity_pages = 2, .poison = true});
  ASSERT_TRUE(pool.ok());
  PageRef a = (*pool)->allocate();
  ASSERT_TRUE(a);
  a.data()[0] = std::byte{1};
  std::byte* where = a.data();
  PageRef b = a;
  EXPECT_TRUE(a.shared());
  ASSERT_TRUE((*pool)->make_private(b));
  EXPECT_FALSE(a.shared());
  EXPECT_NE(a.data(), b.data());
  EXPECT_EQ(b.data()[0], std::byte{1});
  EXPECT_FALSE((*pool)->allocate());
  PageRef c = a;
  EXPECT_FALSE((*pool)->make_private(c));
  c = PageRef();
  a = PageRef();
  EXPECT_EQ(where[0], std::byte{0xFF});
  EXPECT_EQ((*pool)->free_pages(), 1);
}

TEST(PagePool, RefusesSizesThatOverflow) {
  EXPECT_FALSE(PagePool::create({.page_bytes = std::int64_t{1} << 60, .capacity_pages = 1 << 20}).ok());
  EXPECT_FALSE(PagePool::create({.page_bytes = 0, .capacity_pages = 1}).ok());
}

TEST(Sections, FindEveryFlippedByte) {
  auto buffer = BufferPayload::create(kSectionBytes + 3);
  ASSERT_TRUE(buffer.ok());
  const std::vector<Section> sections = digest_sections(**buffer);
  ASSERT_EQ(sections.size(), 2U);
  EXPECT_TRUE(verify_sections(**buffer, sections));
  for (const std::size_t at :
       {std::size_t{0}, static_cast<std::size_t>(kSectionBytes), static_cast<std::size_t>(kSectionBytes) + 2}) {
    (*buffer)->data()[at] ^= std::byte{4};
    EXPECT_FALSE(verify_sections(**buffer, sections));
    (*buffer)->data()[at] ^= std::byte{4};
  }
  EXPECT_FALSE(verify_sections(**buffer, std::span(sections).first(1)));
}

TEST(SnapshotPlan, CandidatesAtTheImageEdgesStay) {
  const std::vector<ImageSpan> images = {{.begin = 900, .length = 124, .digest = {}}};
  EXPECT_EQ(plan_snapshots({.prompt_tokens = 3000, .interval = 1024, .images = images}),
            (std::vector<std::int64_t>{1024, 2048, 3000}));
  const std::vector<ImageSpan> longer = {{.begin = 900, .length = 125, .digest = {}}};
  EXPECT_EQ(plan_snapshots({.prompt_tokens = 3000, .interval = 1024, .images = longer}),
            (std::vector<std::int64_t>{900, 2048, 3000}));
  EXPECT_FALSE(snapshot_on_cancel(1024, 0, longer));
  EXPECT_TRUE(snapshot_on_cancel(1025, 0, longer));
  EXPECT_TRUE(snapshot_on_cancel(900, 0, longer));
}

}  // namespace
}  // namespace perigee
