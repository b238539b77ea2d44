// Request bodies of validate.json with their placeholders filled in.
#pragma once

#include <cstdint>
#include <string>

namespace perigee::verify {

// "MODEL" becomes the served name; @REPEAT('text',CONTEXT) the text as often as the context has tokens (16 MiB at
// most).
std::string case_body(std::string body, const std::string& model, std::int64_t context_tokens);

}  // namespace perigee::verify
