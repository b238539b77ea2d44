// What a request wants of the form of its answer (spec chat.md 6): the shape of the response text and the tools that
// may be called. Input of grammar.h.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/json.h"
#include "text/render.h"

namespace perigee {

enum class FormatKind : std::uint8_t { kText, kJsonObject, kJsonSchema, kRegex, kGrammar };

struct ResponseFormat {
  FormatKind kind = FormatKind::kText;
  std::shared_ptr<const Json> schema;  // kJsonSchema
  bool strict = true;                  // kJsonSchema; false: any JSON object
  std::string text;                    // kRegex: the expression; kGrammar: Lark, or EBNF with `::=`
  std::string param;                   // the request field that it came from; begins the compiler's error messages
};

enum class ToolChoiceKind : std::uint8_t { kAuto, kNone, kRequired, kNamed };

struct ToolChoice {
  ToolChoiceKind kind = ToolChoiceKind::kAuto;
  std::string name;  // kNamed
};

struct GrammarRules {
  ResponseFormat format;
  std::shared_ptr<const Json> tools;  // [{"type":"function","function":{"name","parameters","strict"}}] or null
  ToolChoice tool_choice;
  bool parallel_tool_calls = true;
  Channel start = Channel::kThink;  // Rendered::start
};

}  // namespace perigee
