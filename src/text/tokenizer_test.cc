#include "text/tokenizer.h"

#include <gtest/gtest.h>

namespace perigee {
namespace {

TEST(Tokenizer, SpellsTheWordsOfTheGrammar) {
  const Tokenizer tokenizer = Tokenizer::embedded(SpecialTable::kK3);
  EXPECT_EQ(tokenizer.encode("you"), tokenizer.encode("you"));
  EXPECT_EQ(tokenizer.encode("<|sep|>"), (std::vector<TokenId>{27, 91, 40433, 91, 29}));
  EXPECT_EQ(tokenizer.encode_with_specials("a<|sep|>"), (std::vector<TokenId>{64, 163589}));
}

}  // namespace
}  // namespace perigee
