#include "server/api/reply_state.h"

#include <nlohmann/json.hpp>

#include "text/python_json.h"
#include "text/utf8.h"

namespace perigee::api {

FoldingEncoder::FoldingEncoder(const GenerationOptions& options, ReplyIdentity identity, std::size_t choices)
    : options_(options), identity_(std::move(identity)), choices_(choices) {}

FoldingEncoder::~FoldingEncoder() = default;

void FoldingEncoder::reasoning(int choice, std::string_view text) {
  at(choice).reasoning += text;
}

void FoldingEncoder::reasoning_was_content(int choice) {
  at(choice).reasoning.clear();
}

void FoldingEncoder::content(int choice, std::string_view text) {
  at(choice).content += text;
  at(choice).has_content = true;
}

void FoldingEncoder::call_begin(int choice, std::string_view id, std::string_view name) {
  ReplyCall call;
  const int index = static_cast<int>(at(choice).calls.size());
  call.id = id.empty() ? call_id(identity_, choice, index) : std::string(id);
  call.name = name;
  at(choice).calls.push_back(std::move(call));
}

void FoldingEncoder::call_arguments(int choice, std::string_view text) {
  at(choice).calls.back().arguments += text;
}

void FoldingEncoder::call_end(int choice) {
  at(choice).calls.back().complete = true;
}

void FoldingEncoder::logprobs(int choice, std::vector<TokenLogprobs> tokens) {
  auto& all = at(choice).logprobs;
  all.insert(all.end(), std::make_move_iterator(tokens.begin()), std::make_move_iterator(tokens.end()));
}

void FoldingEncoder::token_ids(int choice, const std::vector<TokenId>& ids) {
  at(choice).token_ids.insert(at(choice).token_ids.end(), ids.begin(), ids.end());
}

void FoldingEncoder::finish(int choice, ReplyFinish reason, std::string_view stop_string) {
  at(choice).finish = reason;
  at(choice).stop_string = stop_string;
}

Json FoldingEncoder::message(int choice) const {
  const ReplyChoice& state = at(choice);
  Json calls = Json::array();
  for (const ReplyCall& call : state.calls) {
    if (!call.complete) continue;
    calls.push_back(
        {{"id", call.id}, {"type", "function"}, {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  }
  // Content is null beside calls and where the budget ended inside the reasoning (spec chat.md 3.5).
  const bool no_content = state.content.empty() && (!calls.empty() || state.finish == ReplyFinish::kLength);
  Json out = {{"role", "assistant"}, {"content", no_content ? Json(nullptr) : Json(state.content)}};
  if (!state.reasoning.empty()) out["reasoning_content"] = state.reasoning;
  if (!calls.empty()) out["tool_calls"] = std::move(calls);
  return out;
}

void FoldingEncoder::send(std::string_view event, const Json& data) {
  if (!event.empty()) pending_ += fmt::format("event: {}\n", event);
  pending_ += fmt::format("data: {}\n\n", json_text(data));
}

std::string json_text(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string json_member_text(std::string_view key, std::string_view text) {
  std::string out;
  out.reserve(key.size() + text.size() + 8);
  out += '"';
  out += key;
  out += "\":\"";
  append_json_escaped(text, out);
  out += '"';
  return out;
}

std::string_view finish_name(ReplyFinish finish) {
  switch (finish) {
    case ReplyFinish::kToolCalls:
      return "tool_calls";
    case ReplyFinish::kLength:
      return "length";
    default:
      return "stop";
  }
}

Json chat_usage(const ReplyUsage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"cached_tokens", usage.cached_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
          {"completion_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}}};
}

namespace {

Json token_object(const TokenText& token) {
  Json bytes = Json::array();
  for (const char c : token.bytes) bytes.push_back(static_cast<unsigned char>(c));
  return {{"token", valid_utf8(token.bytes)}, {"logprob", token.logprob}, {"bytes", std::move(bytes)}};
}

}  // namespace

Json chat_logprobs(const std::vector<TokenLogprobs>& tokens) {
  Json out = Json::array();
  for (const TokenLogprobs& entry : tokens) {
    Json item = token_object(entry.token);
    item["top_logprobs"] = Json::array();
    for (const TokenText& other : entry.top) item["top_logprobs"].push_back(token_object(other));
    out.push_back(std::move(item));
  }
  return out;
}

std::string call_id(const ReplyIdentity& identity, int choice, int index) {
  return fmt::format("call_{}_{}_{}", identity.id, choice, index);
}

std::string keep_alive(ApiKind kind) {
  return kind == ApiKind::kMessages ? "event: ping\ndata: {\"type\":\"ping\"}\n\n" : ": ping\n\n";
}

std::unique_ptr<ReplyEncoder> make_encoder(const ChatRequest& request, ReplyIdentity identity) {
  switch (request.kind) {
    case ApiKind::kResponses:
      return make_responses_encoder(request, std::move(identity));
    case ApiKind::kMessages:
      return make_messages_encoder(request, std::move(identity));
    default:
      return make_chat_encoder(request, std::move(identity));
  }
}

}  // namespace perigee::api
