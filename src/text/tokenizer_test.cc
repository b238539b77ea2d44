#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <rapidcheck/gtest.h>
#include <chrono>

#include "text/python_json.h"
#include "text/splitter.h"
#include "text/vocabulary.h"

namespace perigee {
namespace {

std::string any_bytes() {
  const auto bytes = *rc::gen::container<std::vector<std::uint8_t>>(rc::gen::arbitrary<std::uint8_t>());
  return {bytes.begin(), bytes.end()};
}

RC_GTEST_PROP(Tokenizer, AnyBytesComeBack, ()) {
  const Tokenizer tokenizer = Tokenizer::embedded(SpecialTable::kK3);
  const std::string text = any_bytes();
  const auto ids = tokenizer.encode(text);
  for (const TokenId id : ids) RC_ASSERT(!tokenizer.is_special(id));
  RC_ASSERT(tokenizer.decode_bytes(ids, SpecialText::kDrop) == text);
  RC_ASSERT(tokenizer.decode_bytes(tokenizer.encode_with_specials(text), SpecialText::kKeep) == text);
}

// The quadratic definition of BPE, against both of its implementations.
RC_GTEST_PROP(Vocabulary, MergesTheLowestPairFirst, ()) {
  static const auto vocabulary = std::move(Vocabulary::parse(embedded_vocabulary())).value();
  const auto letters =
      *rc::gen::container<std::vector<char>>(*rc::gen::inRange(1, 80), rc::gen::elementOf(std::string("aabenst ")));
  const std::string piece(letters.begin(), letters.end());
  std::vector<std::string> parts;
  for (const char c : piece) parts.emplace_back(1, c);
  while (vocabulary->find(piece) == Vocabulary::kNone) {
    std::int32_t best = INT32_MAX;
    std::size_t at = 0;
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      const std::int32_t rank = vocabulary->find(parts[i] + parts[i + 1]);
      if (rank != Vocabulary::kNone && rank < best) {
        best = rank;
        at = i;
      }
    }
    if (best == INT32_MAX) break;
    parts[at] += parts[at + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
  if (vocabulary->find(piece) != Vocabulary::kNone) parts = {piece};
  std::vector<std::int32_t> want;
  for (const std::string& part : parts) want.push_back(vocabulary->find(part));
  std::vector<std::int32_t> got;
  vocabulary->encode_piece(piece, got);
  RC_ASSERT(got == want);
}

// A second is ample; an algorithm that is quadratic in the text would need hours. ThreadSanitizer is ten times slower.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr std::chrono::seconds kHostileLimit(60);
#else
constexpr std::chrono::seconds kHostileLimit(5);
#endif

TEST(Tokenizer, IsFastOnHostileText) {
  const Tokenizer tokenizer = Tokenizer::embedded(SpecialTable::kK3);
  for (const char* piece :
       {"a", "A", " ", "\n", " \n", "'", "1", "aA", "<|", "<", "\xE5\xBD\xBC", "\xCC\x81", "\xFF", "!?"}) {
    std::string text;
    while (text.size() < 1'000'000) text += piece;
    const auto began = std::chrono::steady_clock::now();
    const auto ids = tokenizer.encode_with_specials(text);
    EXPECT_LT(std::chrono::steady_clock::now() - began, kHostileLimit) << piece;
    EXPECT_EQ(tokenizer.decode_bytes(ids, SpecialText::kKeep), text);
  }
}

TEST(Tokenizer, GivesBytesTheirOwnIdsInTestModels) {
  const Tokenizer tokenizer = Tokenizer::plain_bytes(SpecialTable::kK3);
  EXPECT_EQ(tokenizer.encode("Look: "), (std::vector<TokenId>{76, 111, 111, 107, 58, 32}));
  EXPECT_EQ(tokenizer.special(Special::kMediaPad), 277);
  EXPECT_EQ(tokenizer.encode_with_specials("<|media_pad|>"), (std::vector<TokenId>{277}));
  EXPECT_EQ(tokenizer.vocab(), 512);
}

TEST(Tokenizer, RefusesDamagedFiles) {
  const std::string model(embedded_vocabulary().substr(0, embedded_vocabulary().find("\n", 20'000) + 1));
  EXPECT_TRUE(Tokenizer::load(model, 163'840, SpecialTable::kK3).ok());
  EXPECT_FALSE(Tokenizer::load(model, 512, SpecialTable::kK3).ok());                   // more tokens than ids
  EXPECT_FALSE(Tokenizer::load("IQ== 0\n", 163'840, SpecialTable::kK3).ok());          // bytes are missing
  EXPECT_FALSE(Tokenizer::load(model + "IQ== 1\n", 163'840, SpecialTable::kK3).ok());  // wrong rank
  EXPECT_FALSE(Tokenizer::load(model + "I=Q= 9999\n", 163'840, SpecialTable::kK3).ok());
  EXPECT_FALSE(Tokenizer::load("", 163'840, SpecialTable::kK3).ok());
}

TEST(PythonJson, SpellsFloatsAsPythonDoes) {
  const std::vector<std::pair<double, std::string>> cases = {{1.0, "1.0"},
                                                             {100.0, "100.0"},
                                                             {1e15, "1000000000000000.0"},
                                                             {1e16, "1e+16"},
                                                             {1e-4, "0.0001"},
                                                             {1.5e-5, "1.5e-05"},
                                                             {-0.0, "-0.0"},
                                                             {0.1 + 0.2, "0.30000000000000004"},
                                                             {5e-324, "5e-324"},
                                                             {123456.789, "123456.789"}};
  for (const auto& [value, text] : cases) EXPECT_EQ(python_float(value), text);
}

TEST(PythonJson, JudgesJsonStrictlyAtAnyDepth) {
  for (const char* good : {"1", " [1, {\"a\": [null, true]}, \"\\u00e9\"] ", "-0.5e+3", "\"\"", "{}", "[]"}) {
    EXPECT_TRUE(is_json(good)) << good;
  }
  for (const char* bad :
       {"",         " ",       "NaN",   "01",    "1.", ".5",  "[1,]", "{\"a\"}", "{\"a\":1,}", "'a'",
        "\"\x01\"", "\"\\x\"", "[1 2]", "{1:2}", "[}", "1 2", "tru",  "\"",      "-",          "{\"a\":}"}) {
    EXPECT_FALSE(is_json(bad)) << bad;
  }
  EXPECT_TRUE(is_json(std::string(1'000'000, '[') + std::string(1'000'000, ']')));
  EXPECT_FALSE(is_json(std::string(1'000'000, '[')));
  EXPECT_FALSE(parse_python_json(std::string(1000, '[') + std::string(1000, ']')).ok());
}

}  // namespace
}  // namespace perigee
