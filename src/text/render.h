// A conversation to prompt ids (spec chat.md 2, 4). Control tokens come only from here: whatever stands in a request
// is ordinary text. Pure functions; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "text/dialect.h"
#include "text/tokenizer.h"

namespace perigee {

class AnswerStore;

// What the prompt has opened when the model begins to write; the parser's start state.
enum class Channel : std::uint8_t {
  kThink,
  kResponse,  // K3: the response element. K2 family: plain text, or a <think> that the model opens itself
};

struct ImageSize {
  std::int64_t width = 0;  // pixels of the original, before any resize
  std::int64_t height = 0;
};

// The documents are those of the Chat Completions API; nullptr and JSON null are the same. Only what rendering needs is
// checked here.
struct RenderRequest {
  const Json* messages = nullptr;         // array
  const Json* tools = nullptr;            // array
  const Json* tool_choice = nullptr;      // "auto", "none", "required" or {"type":"function","function":{"name":...}}
  const Json* response_format = nullptr;  // {"type": "text" | "json_object" | "json_schema", ...}
  bool thinking = true;
  std::string effort;  // "low", "high", "max"; empty: say nothing
  bool add_generation_prompt = true;
  std::vector<ImageSize> images;  // of the image parts, in the order in which the request names them

  // Exact replay (text/replay.h): answers that are found here are spliced as they were sampled.
  const AnswerStore* answers = nullptr;
  std::string tenant;  // whose answers may be found
};

struct ImageSlot {
  std::size_t position = 0;  // of the <|media_pad|> in Rendered::ids
  std::size_t image = 0;     // index into RenderRequest::images
  std::int64_t tokens = 0;   // embeddings that take the pad's place
};

struct Rendered {
  std::vector<TokenId> ids;            // one pad an image
  std::vector<ImageSlot> images;       // ascending position
  std::int64_t prompt_tokens = 0;      // as usage reports them: images expanded, without the stub (spec 2.8)
  std::int64_t system_tokens = 0;      // end of the leading system and tools block, images expanded
  std::int64_t replayed_answers = 0;   // assistant messages that were spliced
  Channel start = Channel::kResponse;  // of the answer
  bool thinking = false;               // after tool_choice has had its say
};

// Errors are kInvalidArgument; their message begins with the field and a colon: "messages[3].role: expected ...".
Result<Rendered> render(const Dialect& dialect, const Tokenizer& tokenizer, const RenderRequest& request);

// The ids with every pad repeated for its image's embeddings: what the engine runs.
std::vector<TokenId> expand_images(const Rendered& rendered);

// The embeddings that an image becomes (spec 2.6): 28-pixel cells after the resize to the dialect's patch budget.
// 0 for an image without pixels or a dialect without images.
std::int64_t image_tokens(const Dialect& dialect, const ImageSize& size);

}  // namespace perigee
