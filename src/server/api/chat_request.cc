#include <nlohmann/json.hpp>

#include "server/api/parse_parts.h"

namespace perigee::api {
namespace {

// vLLM's form of partial mode: continue the last message.
void mark_continuation(FieldReader& fields, Json& messages, bool& partial) {
  bool continues = false;
  fields.boolean("continue_final_message", continues);
  if (!continues || fields.failed()) return;
  Json& last = messages.back();
  bool generates = false;
  fields.boolean("add_generation_prompt", generates);
  if (generates) {
    return fields.fail(bad_field("continue_final_message", "needs add_generation_prompt: false"));
  }
  const auto calls = last.find("tool_calls");
  if (last["role"] != "assistant" || (calls != last.end() && calls->is_array() && !calls->empty())) {
    return fields.fail(bad_field("continue_final_message", "the last message must be an assistant text"));
  }
  last["partial"] = true;
  partial = true;
}

// The hosted API refuses to forget reasoning by any other name.
void require_keep_all(FieldReader& fields, const ThinkingControl& control) {
  const Json* thinking = control.thinking ? fields.object("thinking") : nullptr;
  const auto keep = thinking == nullptr ? Json() : thinking->value("keep", Json());
  if (!keep.is_null() && keep != "all") fields.fail(bad_field("thinking.keep", "expected all, found {}", keep.dump()));
}

}  // namespace

ApiResult<Json> parse_body(std::string_view body) {
  auto parsed = parse_json(body);
  if (!parsed.ok()) {
    ApiError error;
    error.message = fmt::format("the body is no JSON document: {}", parsed.status().message());
    return error;
  }
  if (!parsed->is_object()) {
    ApiError error;
    error.message = fmt::format("the body: expected a JSON object, found {}", json_type_name(*parsed));
    return error;
  }
  return std::move(parsed).value();
}

void fill_render(ChatRequest& request, Json messages, const Json* tools, const Json* tool_choice,
                 const Json* response_format, const ThinkingControl& thinking) {
  auto render = std::make_shared<Json>(Json::object());
  (*render)["messages"] = std::move(messages);
  if (tools != nullptr) (*render)["tools"] = *tools;
  if (tool_choice != nullptr) (*render)["tool_choice"] = *tool_choice;
  if (response_format != nullptr) (*render)["response_format"] = *response_format;
  request.thinking = thinking.thinking && request.tool_choice.kind != ToolChoiceKind::kNamed;
  if (!thinking.thinking) {
    (*render)["thinking"] = false;
  } else if (request.thinking && !thinking.effort.empty()) {
    (*render)["thinking_effort"] = thinking.effort;
  }
  request.render = std::move(render);
}

ApiResult<ChatRequest> parse_chat_completions(const Json& body, const ApiConfig& config) {
  ChatRequest request;
  request.kind = ApiKind::kChat;
  MaybeError error;
  FieldReader fields(body, "", error);
  parse_model(fields, config, /*optional=*/false, request.model);

  ToolSet tools;
  const Json* declared = fields.find("tools");
  if (declared != nullptr) tools.add(*declared, "tools", error);
  const Json* messages = fields.find("messages");
  if (messages == nullptr) fields.fail(bad_field("messages", "is missing"));
  if (error) return *error;
  Json checked = check_messages(*messages, config, tools, request.images, request.partial, error);
  if (error) return *error;
  mark_continuation(fields, checked, request.partial);

  const Json* choice = fields.find("tool_choice");
  request.tool_choice = parse_tool_choice(choice, tools, /*flat=*/false, error);
  fields.boolean("parallel_tool_calls", request.parallel_tool_calls);
  const Json* format = fields.find("response_format");
  request.format = parse_format(format, "response_format", /*flat=*/false, error);
  parse_format_extensions(fields, request.format);
  const auto thinking = thinking_control(config.default_effort, body, config.mode == ApiMode::kLenient);
  if (!thinking.ok()) {
    fields.fail(from_field_status(thinking.status()));
    return *error;
  }
  if (config.mode == ApiMode::kStrict) require_keep_all(fields, *thinking);
  fields.boolean("include_reasoning", request.include_reasoning);
  std::int64_t budget = 0;
  if (fields.integer("thinking_token_budget", 0, config.context_tokens, budget)) {
    request.thinking_token_budget = budget;
  }

  std::int64_t max_tokens = 0;
  request.max_tokens = config.default_max_tokens;
  if (fields.integer("max_tokens", 1, kMost, max_tokens)) request.max_tokens = max_tokens;
  if (fields.integer("max_completion_tokens", 1, kMost, max_tokens)) request.max_tokens = max_tokens;
  parse_sampling(fields, config, request);
  parse_stop(fields, "stop", config, request);
  parse_stream(fields, request);
  fields.boolean("logprobs", request.logprobs);
  std::int32_t top = 0;
  if (fields.integer("top_logprobs", 0, 20, top) && !request.logprobs) {
    fields.fail(bad_field("top_logprobs", "needs logprobs: true"));
  }
  if (request.logprobs) request.sampling.top_logprobs = top;
  if (error) return *error;

  request.tools = tools.all();
  fill_render(request, std::move(checked), declared, choice, format, *thinking);
  bool generates = true;
  if (fields.boolean("add_generation_prompt", generates) && !generates && !request.partial) {
    (*request.render)["add_generation_prompt"] = false;
  }
  return request;
}

}  // namespace perigee::api
