// Text vectors of structured output and request validation: grammar.json, schema.json, validate.json of a folder in the
// golden layout. `perigee verify text` and the golden tests run the same code.
#pragma once

#include "text/vectors.h"

namespace perigee::cli {

// The two grammar suites put the times of compilations and masks into the report's note.
Result<VectorReport> run_grammar_vectors(const Json& document);
// An extended schema may be refused if the error names its keyword; the note counts those.
Result<VectorReport> run_schema_vectors(const Json& document);
Result<VectorReport> run_validate_vectors(const Json& document);

inline constexpr VectorSuite kStructuredSuites[] = {{"grammar.json", run_grammar_vectors},
                                                    {"schema.json", run_schema_vectors},
                                                    {"validate.json", run_validate_vectors}};

}  // namespace perigee::cli
