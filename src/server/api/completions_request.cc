#include <nlohmann/json.hpp>

#include "server/api/parse_parts.h"

namespace perigee::api {
namespace {

constexpr std::size_t kMaxPrompts = 128;

bool token_list(const Json& value, std::int64_t vocab, std::vector<TokenId>& out) {
  for (const Json& id : value) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= static_cast<std::uint64_t>(vocab)) return false;
    out.push_back(id.get<TokenId>());
  }
  return true;
}

// A string, a list of strings, a list of ids, or a list of lists of ids.
void parse_prompts(FieldReader& fields, const ApiConfig& config, CompletionRequest& out) {
  const Json* prompt = fields.failed() ? nullptr : fields.find("prompt");
  if (prompt == nullptr) return fields.fail(bad_field("prompt", "is missing"));
  const auto add = [&](const Json& value) {
    CompletionRequest::Prompt one;
    if (value.is_string()) {
      one.text = value.get<std::string>();
    } else if (value.is_array()) {
      one.is_ids = true;
      if (!token_list(value, config.vocab, one.ids)) {
        return fields.fail(bad_field("prompt", "expected token ids below {}", config.vocab));
      }
    } else {
      return fields.fail(bad_field("prompt", "expected text or token ids, found {}", json_type_name(value)));
    }
    if (one.is_ids && one.ids.empty()) return fields.fail(bad_field("prompt", "is empty"));
    out.prompts.push_back(std::move(one));
  };
  if (!prompt->is_array() || (!prompt->empty() && prompt->front().is_number())) return add(*prompt);
  if (prompt->empty() || prompt->size() > kMaxPrompts) {
    return fields.fail(bad_field("prompt", "expected 1 to {} prompts, found {}", kMaxPrompts, prompt->size()));
  }
  for (const Json& value : *prompt) add(value);
}

}  // namespace

ApiResult<CompletionRequest> parse_completions(const Json& body, const ApiConfig& config) {
  CompletionRequest request;
  request.kind = ApiKind::kCompletions;
  MaybeError error;
  FieldReader fields(body, "", error);
  parse_model(fields, config, /*optional=*/false, request.model);
  parse_prompts(fields, config, request);
  if (const Json* suffix = fields.find("suffix"); suffix != nullptr && *suffix != "") {
    fields.fail(bad_field("suffix", "is not supported by this model"));
  }
  std::int64_t max_tokens = 16;
  fields.integer("max_tokens", 0, kMost, max_tokens);
  request.max_tokens = max_tokens;
  parse_sampling(fields, config, request);
  parse_stop(fields, "stop", config, request);
  parse_stream(fields, request);
  std::int32_t top = 0;
  if (fields.integer("logprobs", 0, 5, top)) {
    request.logprobs = true;
    request.sampling.top_logprobs = top;
  }
  fields.boolean("echo", request.echo);
  if (max_tokens == 0 && !request.echo) fields.fail(bad_field("max_tokens", "expected at least 1, found 0"));
  request.best_of = request.n;
  fields.integer("best_of", 1, static_cast<std::int64_t>(config.max_n), request.best_of);
  if (request.best_of < request.n) {
    fields.fail(bad_field("best_of", "expected at least n = {}, found {}", request.n, request.best_of));
  } else if (request.best_of > request.n && request.stream) {
    fields.fail(bad_field("best_of", "cannot be streamed when it exceeds n"));
  }
  fields.boolean("add_special_tokens", request.parse_special);
  fields.boolean("parse_special", request.parse_special);
  request.format = parse_format(fields.find("response_format"), "response_format", /*flat=*/false, error);
  parse_format_extensions(fields, request.format);
  if (error) return *error;
  return request;
}

ApiResult<TokenizeRequest> parse_tokenize(const Json& body, const ApiConfig& config) {
  TokenizeRequest request;
  MaybeError error;
  FieldReader fields(body, "", error);
  parse_model(fields, config, /*optional=*/true, request.model);
  if (fields.find("messages") != nullptr) {
    Json chat = body;
    chat["model"] = request.model;
    auto parsed = parse_chat_completions(chat, config);
    if (!parsed.ok()) return parsed.error();
    request.chat = std::make_shared<ChatRequest>(std::move(parsed).value());
  } else if (fields.find("prompt") != nullptr) {
    fields.string("prompt", request.text);
  } else if (fields.string("content", request.text)) {
    request.llama_shape = true;
  } else {
    fields.fail(bad_field("prompt", "expected prompt, content or messages"));
  }
  for (const std::string_view name : {"add_special_tokens", "add_special", "parse_special"}) {
    bool on = false;
    fields.boolean(name, on);
    request.parse_special = request.parse_special || on;
  }
  fields.boolean("return_token_strs", request.with_strings);
  fields.boolean("with_pieces", request.with_strings);
  if (error) return *error;
  return request;
}

ApiResult<DetokenizeRequest> parse_detokenize(const Json& body, const ApiConfig& config) {
  DetokenizeRequest request;
  MaybeError error;
  FieldReader fields(body, "", error);
  std::string model;
  parse_model(fields, config, /*optional=*/true, model);
  const Json* tokens = fields.array("tokens");
  if (tokens == nullptr) {
    fields.fail(bad_field("tokens", "is missing"));
  } else if (!token_list(*tokens, config.vocab, request.tokens)) {
    fields.fail(bad_field("tokens", "expected token ids below {}", config.vocab));
  }
  if (error) return *error;
  return request;
}

}  // namespace perigee::api
