#include <nlohmann/json.hpp>

#include "server/api/request.h"
#include "text/grammar.h"

namespace perigee::api {
namespace {

// Grammars compile the same over any vocabulary; that of single bytes is cheap.
std::optional<ApiError> check_grammar(const GrammarRules& rules) {
  static const GrammarCompiler compiler(kDialectK3, Tokenizer::plain_bytes(SpecialTable::kK3));
  if (!GrammarCompiler::needs_constraint(rules)) return std::nullopt;
  const Status status = compiler.check(rules);
  if (status.ok()) return std::nullopt;
  return from_field_status(status);
}

std::optional<ApiError> check_chat(const ApiResult<ChatRequest>& request) {
  if (!request.ok()) return request.error();
  return check_grammar(grammar_rules(*request, Channel::kResponse));
}

template <typename T>
std::optional<ApiError> error_of(const ApiResult<T>& request) {
  if (!request.ok()) return request.error();
  return std::nullopt;
}

}  // namespace

GrammarRules grammar_rules(const ChatRequest& request, Channel start) {
  return {.format = request.format,
          .tools = request.tools,
          .tool_choice = request.tool_choice,
          .parallel_tool_calls = request.parallel_tool_calls,
          .start = start};
}

GrammarRules grammar_rules(const CompletionRequest& request) {
  GrammarRules rules;
  rules.format = request.format;
  rules.start = Channel::kResponse;
  return rules;
}

std::optional<ApiError> validate(std::string_view path, std::string_view body, const ApiConfig& config) {
  using Check = std::optional<ApiError> (*)(const Json&, const ApiConfig&);
  static constexpr std::pair<std::string_view, Check> kPaths[] = {
      {"/v1/chat/completions",
       [](const Json& json, const ApiConfig& c) { return check_chat(parse_chat_completions(json, c)); }},
      {"/v1/completions",
       [](const Json& json, const ApiConfig& c) -> std::optional<ApiError> {
         const auto request = parse_completions(json, c);
         if (!request.ok()) return request.error();
         return check_grammar(grammar_rules(*request));
       }},
      {"/v1/responses",
       [](const Json& json, const ApiConfig& c) { return check_chat(parse_responses(json, c, nullptr, "")); }},
      {"/v1/messages", [](const Json& json, const ApiConfig& c) { return check_chat(parse_messages(json, c)); }},
      {"/v1/messages/count_tokens",
       [](const Json& json, const ApiConfig& c) { return check_chat(parse_count_tokens(json, c)); }},
      {"/tokenize", [](const Json& json, const ApiConfig& c) { return error_of(parse_tokenize(json, c)); }},
      {"/detokenize", [](const Json& json, const ApiConfig& c) { return error_of(parse_detokenize(json, c)); }},
  };
  for (const auto& [known, check] : kPaths) {
    if (path != known) continue;
    const auto json = parse_body(body);
    return json.ok() ? check(*json, config) : json.error();
  }
  return path_not_found(path);
}

}  // namespace perigee::api
