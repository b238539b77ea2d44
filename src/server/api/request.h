// Typed requests of every dialect, and their parsers (spec chat.md 5). Chat Completions, Responses and Messages all
// become one ChatRequest whose `render` is what the prompt renderer takes. Functions are pure and thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "engine/engine.h"
#include "server/api/api_error.h"
#include "text/grammar_rules.h"

namespace perigee::api {

class ResponseStore;

// normal: no flags. strict: refuses what the hosted Kimi API refuses. lenient: normal, and efforts of other vendors
// are mapped (minimal -> low, medium -> high, xhigh -> max), unknown Responses items are skipped.
enum class ApiMode : std::uint8_t { kNormal, kStrict, kLenient };

enum class ApiKind : std::uint8_t { kChat, kCompletions, kResponses, kMessages };

struct ApiConfig {
  ApiMode mode = ApiMode::kNormal;
  std::vector<std::string> models;  // served name first, then aliases
  std::int64_t context_tokens = 0;
  std::int64_t vocab = 163'840;
  std::int64_t default_max_tokens = 131'072;  // Completions keep OpenAI's 16
  float default_temperature = 1.0F;
  float default_top_p = 0.95F;
  std::string default_effort = "max";  // K3; empty for dialects without efforts
  std::int64_t max_image_bytes = std::int64_t{32} << 20;
  std::size_t max_n = 128;
};

// An image part in request order; http(s) URLs are refused.
struct ImageInput {
  std::string bytes;
  std::string param;  // "messages[0].content[1].image_url.url", for errors of the decoder
};

// The forms of an answer are those of the text layer.
using perigee::FormatKind;
using perigee::ResponseFormat;
using perigee::ToolChoice;
using perigee::ToolChoiceKind;

// What every kind of generation has.
struct GenerationOptions {
  ApiKind kind = ApiKind::kChat;
  std::string model;  // as the client spelled it; echoed in replies
  SamplingParams sampling;
  bool has_seed = false;                   // false: the caller draws one
  std::optional<std::int64_t> max_tokens;  // as asked, else the default; the caller clamps it to the context left
  std::int32_t n = 1;
  std::vector<std::string> stop;
  std::vector<TokenId> stop_token_ids;
  bool include_stop_str_in_output = false;
  bool ignore_eos = false;
  bool stream = false;
  bool include_usage = false;     // last chunk with usage
  bool continuous_usage = false;  // usage in every chunk
  bool logprobs = false;          // sampling.top_logprobs says how many
  bool return_token_ids = false;
  std::string prompt_cache_key;  // routing hint
  std::string cache_salt;        // parts the prefix cache
  std::string user;
  std::string request_id;
  std::int32_t priority = 0;
};

struct ChatRequest : GenerationOptions {
  // Renderer arguments: messages, tools, tool_choice, response_format, thinking (bool), thinking_effort,
  // add_generation_prompt. Image parts keep their place; their payload is in `images`.
  std::shared_ptr<Json> render;
  std::vector<ImageInput> images;
  // All declared tools, those of the request and those of system messages, in the OpenAI form
  // [{"type":"function","function":{"name","parameters",...}}]; never null.
  std::shared_ptr<const Json> tools;
  ToolChoice tool_choice;
  bool parallel_tool_calls = true;
  ResponseFormat format;
  bool thinking = true;           // false too where a named tool choice switches it off
  bool partial = false;           // the reply continues a given assistant text: it starts in `response`
  bool include_reasoning = true;  // false: reasoning is parsed and not sent
  std::optional<std::int64_t> thinking_token_budget;
  // Responses only.
  bool store = true;
  std::string previous_response_id;
  std::shared_ptr<const Json> history;  // what the store keeps: messages before the reply
  std::shared_ptr<const Json> echo;     // request fields that the response object repeats
};

struct CompletionRequest : GenerationOptions {
  struct Prompt {
    std::string text;
    std::vector<TokenId> ids;  // used where `is_ids`
    bool is_ids = false;
  };
  std::vector<Prompt> prompts;  // each gives `n` choices; index = prompt * n + branch
  bool parse_special = false;   // special spellings in a text prompt match (add_special_tokens / parse_special)
  bool echo = false;
  std::int32_t best_of = 1;  // >= n; the best by mean log-probability are returned
  ResponseFormat format;
};

struct TokenizeRequest {
  std::string model;
  std::string text;
  std::shared_ptr<ChatRequest> chat;  // messages form; null: `text`
  bool parse_special = false;
  bool with_strings = false;  // return_token_strs or with_pieces
  bool llama_shape = false;   // {"tokens"} as llama-server answers; else vLLM's {"count","max_model_len","tokens"}
};

struct DetokenizeRequest {
  std::vector<TokenId> tokens;
};

// The body as one JSON object, with the limits of base/json.h. 400 on anything else.
ApiResult<Json> parse_body(std::string_view body);

ApiResult<ChatRequest> parse_chat_completions(const Json& body, const ApiConfig& config);
ApiResult<CompletionRequest> parse_completions(const Json& body, const ApiConfig& config);
// `store` may be null: previous_response_id is then refused. `tenant` parts the store.
ApiResult<ChatRequest> parse_responses(const Json& body, const ApiConfig& config, ResponseStore* store,
                                       std::string_view tenant);
ApiResult<ChatRequest> parse_messages(const Json& body, const ApiConfig& config);
ApiResult<ChatRequest> parse_count_tokens(const Json& body, const ApiConfig& config);  // Anthropic; no max_tokens
ApiResult<TokenizeRequest> parse_tokenize(const Json& body, const ApiConfig& config);
ApiResult<DetokenizeRequest> parse_detokenize(const Json& body, const ApiConfig& config);

// The input of GrammarCompiler; `start` is Rendered::start.
GrammarRules grammar_rules(const ChatRequest& request, Channel start);
GrammarRules grammar_rules(const CompletionRequest& request);

// The whole check of one POST without a model: 200 is nullopt. Unknown paths are 404. Compiles schemas and grammars
// against a byte vocabulary, so that everything but the prompt's length and undecodable images is judged here.
std::optional<ApiError> validate(std::string_view path, std::string_view body, const ApiConfig& config);

}  // namespace perigee::api
