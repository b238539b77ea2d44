// Structured output against the vectors of tests/data/text.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/verify_text_suites.h"

namespace perigee {
namespace {

Json load(const std::string& name) {
  auto document = read_json_file(std::string(PERIGEE_SOURCE_DIR) + "/tests/data/text/" + name);
  EXPECT_TRUE(document.ok()) << document.status().message();
  return document.ok() ? *document : Json();
}

const Tokenizer& tokenizer() {
  static const Tokenizer kTokenizer = Tokenizer::embedded(SpecialTable::kK3);
  return kTokenizer;
}

void expect_all(const cli::SuiteResult& result, std::int64_t cases) {
  EXPECT_EQ(result.passed, cases);
  for (const std::string& failure : result.failures) ADD_FAILURE() << failure;
}

TEST(StructuredOutput, GrammarVectors) {
  expect_all(cli::verify_grammar_suite(load("grammar.json"), tokenizer()), 59);
}

TEST(StructuredOutput, SchemaVectors) {
  const cli::SuiteResult result = cli::verify_schema_suite(load("schema.json"), tokenizer());
  expect_all(result, 106 + 189);
  EXPECT_EQ(result.refused, 7);  // uniqueItems, contains, overlapping oneOf, not, if, propertyNames, dependentRequired
}

}  // namespace
}  // namespace perigee
