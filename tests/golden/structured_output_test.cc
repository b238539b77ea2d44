// Structured output and request validation against the vectors of tests/data/text.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/verify_text_suites.h"

namespace perigee {
namespace {

void expect_all(const char* file, Result<VectorReport> (*run)(const Json&), std::size_t cases) {
  const auto document = read_json_file(std::string(PERIGEE_SOURCE_DIR) + "/tests/data/text/" + file);
  ASSERT_TRUE(document.ok()) << document.status().message();
  const auto report = run(*document);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->passed, cases);
  for (const std::string& failure : report->failures) ADD_FAILURE() << failure;
  std::cout << file << ": " << report->note << "\n";
}

TEST(StructuredOutput, GrammarVectors) {
  expect_all("grammar.json", cli::run_grammar_vectors, 59);
}
TEST(StructuredOutput, SchemaVectors) {
  expect_all("schema.json", cli::run_schema_vectors, 106 + 189);
}
TEST(StructuredOutput, ValidateVectors) {
  expect_all("validate.json", cli::run_validate_vectors, 253);
}

TEST(StructuredOutput, MalformedVectorsAreAnError) {
  EXPECT_FALSE(cli::run_schema_vectors(Json::object()).ok());
}

}  // namespace
}  // namespace perigee
