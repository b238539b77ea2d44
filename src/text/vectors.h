// Runs reference vectors (the files that `perigee verify text` reads; their formats are described with them) against
// this build. The unit tests run the same code over the copies in tests/data/text.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace perigee {

struct VectorReport {
  std::size_t passed = 0;
  std::size_t total = 0;
  std::vector<std::string> failures;  // "case id: what differs"
  std::string note;                   // figures beside the counts

  void add(const std::string& id, const std::string& difference) {
    ++total;
    if (difference.empty()) {
      ++passed;
    } else {
      failures.push_back(id + ": " + difference);
    }
  }
};

// A file of vectors and what runs it. A malformed document is an error, a case that differs a line in the report.
struct VectorSuite {
  const char* file;
  Result<VectorReport> (*run)(const Json& document);
};

// Runs each item of document[key] and adds it to `report`.
Result<VectorReport> run_vector_cases(const Json& document, const char* key, VectorReport report,
                                      std::string (*run)(const Json& item));

Result<VectorReport> run_tokenizer_vectors(const Json& document);
Result<VectorReport> run_decode_vectors(const Json& document);
Result<VectorReport> run_render_vectors(const Json& document);
// parse.json and parse_k2.json: every case at every grouping of its ids.
Result<VectorReport> run_parse_vectors(const Json& document);
Result<VectorReport> run_parse_k2_vectors(const Json& document);

inline constexpr VectorSuite kTextSuites[] = {
    {"tokenizer.json", run_tokenizer_vectors}, {"decode.json", run_decode_vectors},
    {"render.json", run_render_vectors},       {"parse.json", run_parse_vectors},
    {"parse_k2.json", run_parse_k2_vectors},
};

}  // namespace perigee
