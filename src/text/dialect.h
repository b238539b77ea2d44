// How a model family writes prompts and answers, as data (spec chat.md 2, 4). The renderer and the parsers read these
// fields and never ask for a model's name.
#pragma once

#include <cstdint>
#include <string_view>

#include "text/special.h"

namespace perigee {

enum class PromptFormat : std::uint8_t {
  kXtml,     // K3: every piece of text is a segment of its own
  kImTurns,  // K2 family: all ordinary text between two specials is one segment
};

enum class ToolText : std::uint8_t { kSortedJson, kPythonJson, kTypeScript };

enum class ThinkStyle : std::uint8_t {
  kElement,         // K3: a think element in every assistant message while thinking is on
  kAfterLastReply,  // K2-Thinking: <think> blocks, kept only after the last assistant message without calls
  kPrefilled,       // K2.5: the same, and the generation prompt opens or closes the block
  kNone,
};

struct Dialect {
  std::string_view name;
  SpecialTable specials = SpecialTable::kK3;
  PromptFormat format = PromptFormat::kXtml;
  ToolText tools = ToolText::kSortedJson;
  ThinkStyle think = ThinkStyle::kElement;
  std::string_view default_system;        // of conversations that begin with another role
  std::string_view after_default_system;  // text after that turn
  std::string_view after_image;           // text after every image block
  bool image_size = false;                // the image block names width and height
  bool control_messages = false;          // effort, tool_choice and response_format are system messages
  std::int64_t image_patches = 0;         // budget of 14x14 patches an image
  std::string_view default_effort;        // of the API, while thinking is on
  double temperature = 1.0;               // defaults of the API
  double top_p = 0.95;
};

extern const Dialect kDialectK3;
extern const Dialect kDialectK2Instruct;
extern const Dialect kDialectK2Thinking;
extern const Dialect kDialectK25;
extern const Dialect kDialectKimiLinear;

// By the names "k3", "k2_instruct", "k2_thinking", "k25", "kimi_linear"; nullptr for any other.
const Dialect* find_dialect(std::string_view name);

// The dialect of ModelConfig::family ("kimi_linear"; "kimi_k3" and "kimi_k31", and whatever follows them: K3).
const Dialect& dialect_of_family(std::string_view family);

}  // namespace perigee
