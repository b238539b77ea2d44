// Every way in which a header can lie has a message of its own.
#include "checkpoint/safetensors.h"

#include <gtest/gtest.h>

#include "base/numeric.h"
#include "checkpoint/test_support.h"

namespace perigee {
namespace {

using testing_support::make_tensor;
using testing_support::put_file;
using testing_support::raw;
using testing_support::safetensors_bytes;

std::string file_with(const std::string& header, std::size_t data_bytes) {
  const std::uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header + std::string(data_bytes, '\0');
}

Result<SafetensorsHeader> parse(const std::string& file) {
  return parse_safetensors_header(std::as_bytes(std::span(file.data(), file.size())), file.size());
}

void expect_refused(const std::string& file, const std::string& part) {
  const auto header = parse(file);
  ASSERT_FALSE(header.ok()) << part;
  EXPECT_NE(header.status().message().find(part), std::string::npos) << header.status().message();
}

TEST(Safetensors, ReadsWhatWasWritten) {
  testing_support::TemporaryFolder folder;
  const std::string path = folder / "x.safetensors";
  const std::string bytes = safetensors_bytes({{"f", make_tensor("F32", {2, 2}, raw<float>({1, 2, 3, 4}))},
                                               {"i", make_tensor("I32", {3}, raw<std::int32_t>({7, 8, 9}))},
                                               {"s", make_tensor("BF16", {}, raw<std::uint16_t>({0x3F80}))},
                                               {"z", make_tensor("U8", {0, 5}, "")}});
  ASSERT_TRUE(put_file(path, bytes));
  const auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->tensors().size(), 4U);
  const auto floats = file->elements<float>("f");
  ASSERT_TRUE(floats.ok());
  EXPECT_EQ((*floats)[3], 4.0F);
  EXPECT_EQ(file->find("f")->shape, (Shape{2, 2}));
  EXPECT_EQ((*file->elements<std::int32_t>("i"))[2], 9);
  EXPECT_EQ(to_float((*file->elements<bf16>("s"))[0]), 1.0F);
  EXPECT_EQ(file->elements<std::uint8_t>("z")->size(), 0U);
  EXPECT_EQ(file->elements<float>("i").status().message(), path + ": tensor i: expected dtype F32, found I32");
  EXPECT_EQ(file->elements<float>("nothing").status().code(), StatusCode::kNotFound);
}

TEST(Safetensors, MetadataAndGaps) {
  const auto header = parse(file_with(
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"U8","shape":[2],"data_offsets":[6,8]},"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
      10));
  ASSERT_TRUE(header.ok()) << header.status().message();
  EXPECT_EQ(header->metadata.at("format"), "pt");
  EXPECT_EQ(header->tensors.front().name, "a");
  EXPECT_EQ(header->unused_bytes, 4U);
}

TEST(Safetensors, RefusesBadLengths) {
  expect_refused("", "expected at least 8 bytes, found 0");
  expect_refused("1234567", "expected at least 8 bytes, found 7");
  std::string file = file_with("{}", 0);
  file[0] = 3;
  expect_refused(file, "expected a length of at most 2, found 3");
  file.replace(0, 8, std::string(8, '\xFF'));
  expect_refused(file, "found 18446744073709551615");
}

TEST(Safetensors, RefusesBadJson) {
  expect_refused(file_with("", 0), "expected a JSON object");
  expect_refused(file_with("{", 0), "expected a JSON object");
  expect_refused(file_with("[]", 0), "expected a JSON object");
  expect_refused(file_with("{} {}", 0), "expected a JSON object");
  expect_refused(file_with("{\"a\xFF\":1}", 0), "expected a JSON object");
  expect_refused(file_with(R"({"a":1})", 0), "tensor a: expected an object with dtype");
  expect_refused(file_with(R"({"__metadata__":{"x":1}})", 0), "__metadata__: expected an object of strings");
  expect_refused(file_with(std::string(5000, '[') + std::string(5000, ']'), 0), "expected a JSON object");
}

std::string entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"a":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
}

TEST(Safetensors, RefusesBadEntries) {
  expect_refused(file_with(entry("7", "[1]", "[0,1]"), 1), "dtype: expected a string");
  expect_refused(file_with(entry("\"F4\"", "[1]", "[0,1]"), 1), "dtype: expected a known element type, found F4");
  expect_refused(file_with(entry("\"U8\"", "1", "[0,1]"), 1), "shape: expected a list");
  expect_refused(file_with(entry("\"U8\"", "[-1]", "[0,1]"), 1), "shape: expected integers >= 0");
  expect_refused(file_with(entry("\"U8\"", "[1.5]", "[0,1]"), 1), "shape: expected integers >= 0");
  expect_refused(file_with(entry("\"U8\"", "[1,1,1,1,1,1,1]", "[0,1]"), 1), "expected at most 6 axes, found 7");
  expect_refused(file_with(entry("\"U8\"", "[4294967296,4294967296]", "[0,0]"), 1), "fewer than 2^59");
  // 2^32 * 2^32 wraps to 0 in 64 bits, which would agree with the empty extent; so would a zero beside a giant.
  expect_refused(file_with(entry("\"U8\"", "[0,9223372036854775807,3]", "[0,0]"), 1), "fewer than 2^59");
  expect_refused(file_with(entry("\"U8\"", "[1]", "[0]"), 1), "data_offsets: expected two integers");
  expect_refused(file_with(entry("\"U8\"", "[1]", "[0,-1]"), 1), "data_offsets: expected two integers >= 0");
  expect_refused(file_with(entry("\"U8\"", "[1]", "[1,0]"), 1), "expected begin <= end <= 1");
  expect_refused(file_with(entry("\"U8\"", "[2]", "[0,2]"), 1), "expected begin <= end <= 1");
  expect_refused(file_with(entry("\"F32\"", "[2]", "[0,4]"), 8), "expected 8 bytes for F32 [2], found 4");
  expect_refused(file_with(entry("\"U8\"", "[1]", "[18446744073709551615,18446744073709551615]"), 1),
                 "expected begin <= end <= 1");
}

TEST(Safetensors, RefusesOverlapAndRepeatedNames) {
  expect_refused(file_with(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                           R"("b":{"dtype":"U8","shape":[4],"data_offsets":[3,7]}})",
                           8),
                 "tensor b: data_offsets: expected bytes of its own, found an overlap with tensor a");
  testing_support::TemporaryFolder folder;
  const std::string path = folder / "x.safetensors";
  ASSERT_TRUE(put_file(path, file_with(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                       R"("a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                                       2)));
  EXPECT_EQ(SafetensorsFile::open(path).status().message(), path + ": tensor a: expected once, found twice");
}

TEST(Safetensors, MessagesStayOnOneLine) {
  const auto header = parse(file_with("{\"a\\n\\u0000" + std::string(1000, 'x') + "\":1}", 0));
  ASSERT_FALSE(header.ok());
  EXPECT_EQ(header.status().message().find('\n'), std::string::npos);
  EXPECT_LT(header.status().message().size(), 400U);
}

// Any cut of a good file is refused, never read past its end.
TEST(Safetensors, EveryTruncationIsRefused) {
  const std::string whole = safetensors_bytes({{"a", make_tensor("U8", {64}, std::string(64, 'x'))}});
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(parse(whole.substr(0, size)).ok()) << size;
  }
  EXPECT_TRUE(parse(whole).ok());
}

}  // namespace
}  // namespace perigee
