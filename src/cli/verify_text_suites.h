// Text vectors of structured output and request validation: grammar.json, schema.json, validate.json of a folder in the
// golden layout. `perigee verify text` and the golden tests run the same code.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "text/tokenizer.h"

namespace perigee::cli {

struct SuiteResult {
  std::string name;
  std::int64_t passed = 0;
  std::int64_t refused = 0;  // schema.json only: extended schemas that were refused by keyword, part of `passed`
  std::vector<std::string> failures;
  std::vector<double> compile_us;  // one a grammar
  std::vector<double> mask_us;     // one a step
};

// `document` is the file's content.
SuiteResult verify_grammar_suite(const Json& document, const Tokenizer& tokenizer);
SuiteResult verify_schema_suite(const Json& document, const Tokenizer& tokenizer);
SuiteResult verify_validate_suite(const Json& document, const Tokenizer& tokenizer);

// "median 12, p90 40, p99 900, max 2000" of microseconds; empty for no values.
std::string quantile_text(std::vector<double> values);

}  // namespace perigee::cli
