#include "verify/endpoint/session.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "text/utf8.h"

namespace perigee::verify {
namespace {

constexpr std::size_t kShownBytes = 160;
constexpr std::size_t kMostFaults = 8;
constexpr std::size_t kMostCalls = 256;

const Json& member(const Json& object, const char* name) {
  static const Json kNull;
  if (!object.is_object()) return kNull;
  const auto found = object.find(name);
  return found == object.end() ? kNull : *found;
}

std::string text_of(const Json& value) {
  return value.is_string() ? value.get<std::string>() : std::string();
}

std::int64_t number_of(const Json& value) {
  return value.is_number_integer() ? value.get<std::int64_t>() : -1;
}

void add_fault(ChatAnswer& answer, std::string fault) {
  if (answer.faults.size() < kMostFaults) answer.faults.push_back(std::move(fault));
}

// vLLM, llama-server and SGLang word refusals differently.
std::string error_message(const std::string& body) {
  const auto json = parse_json(body);
  if (!json.ok()) return shown_text(body);
  const Json& error = member(*json, "error");
  if (error.is_string()) return shown_text(text_of(error));
  const std::string nested = text_of(member(error, "message"));
  return shown_text(nested.empty() ? text_of(member(*json, "message")) : nested);
}

void read_usage(const Json& usage, ChatAnswer& answer) {
  if (!usage.is_object()) return;
  answer.prompt_tokens = number_of(member(usage, "prompt_tokens"));
  answer.completion_tokens = number_of(member(usage, "completion_tokens"));
  answer.total_tokens = number_of(member(usage, "total_tokens"));
  answer.cached_tokens = number_of(member(member(usage, "prompt_tokens_details"), "cached_tokens"));
  if (answer.cached_tokens < 0) answer.cached_tokens = number_of(member(usage, "cached_tokens"));
}

void read_logprobs(const Json& logprobs, ChatAnswer& answer) {
  const Json& content = member(logprobs, "content");
  if (!content.is_array()) return;
  for (const Json& item : content) {
    AnswerToken token;
    token.token = text_of(member(item, "token"));
    const Json& value = member(item, "logprob");
    if (!value.is_number()) {
      add_fault(answer, "logprobs: an entry has no number");
      continue;
    }
    token.logprob = value.get<double>();
    const Json& top = member(item, "top_logprobs");
    for (const Json& entry : top.is_array() ? top : Json::array()) {
      const Json& other = member(entry, "logprob");
      if (other.is_number()) token.top.emplace_back(text_of(member(entry, "token")), other.get<double>());
    }
    answer.tokens.push_back(std::move(token));
  }
}

std::string reasoning_of(const Json& message) {
  const std::string content = text_of(member(message, "reasoning_content"));
  return content.empty() ? text_of(member(message, "reasoning")) : content;
}

// One SSE event's data lines, joined.
std::vector<std::string> event_data(const std::string& body) {
  std::vector<std::string> events;
  std::string data;
  std::size_t at = 0;
  while (at < body.size()) {
    std::size_t end = body.find('\n', at);
    if (end == std::string::npos) end = body.size();
    std::string_view line(body.data() + at, end - at);
    at = end + 1;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) {
      if (!data.empty()) events.push_back(std::move(data));
      data.clear();
    } else if (line.starts_with("data:")) {
      line.remove_prefix(5);
      if (line.starts_with(' ')) line.remove_prefix(1);
      if (!data.empty()) data += '\n';
      data += line;
    }
  }
  if (!data.empty()) events.push_back(std::move(data));
  return events;
}

void read_call_delta(const Json& delta, ChatAnswer& answer) {
  const std::int64_t index = number_of(member(delta, "index"));
  const auto count = std::ssize(answer.calls);
  if (index < 0 || index > count || index >= static_cast<std::int64_t>(kMostCalls)) {
    return add_fault(answer, fmt::format("stream: a call delta has index {} after {} calls", index, count));
  }
  if (index == count) answer.calls.emplace_back();
  AnswerCall& call = answer.calls[static_cast<std::size_t>(index)];
  const Json& function = member(delta, "function");
  if (call.id.empty()) call.id = text_of(member(delta, "id"));
  if (call.name.empty()) call.name = text_of(member(function, "name"));
  call.arguments += text_of(member(function, "arguments"));
}

void read_chunk(const Json& chunk, std::string& id, bool& role, ChatAnswer& answer) {
  if (text_of(member(chunk, "object")) != "chat.completion.chunk") {
    add_fault(answer, fmt::format("stream: object is {}", member(chunk, "object").dump()));
  }
  const std::string own = text_of(member(chunk, "id"));
  if (id.empty()) id = own;
  if (own != id) add_fault(answer, "stream: the id changes");
  read_usage(member(chunk, "usage"), answer);
  const Json& choices = member(chunk, "choices");
  if (!choices.is_array()) return add_fault(answer, "stream: a chunk has no choices");
  for (const Json& choice : choices) {
    if (number_of(member(choice, "index")) != 0)
      add_fault(answer, "stream: a choice of an index that was not asked for");
    const Json& delta = member(choice, "delta");
    if (!answer.finish.empty() && !delta.empty()) add_fault(answer, "stream: a delta after finish_reason");
    if (!role && text_of(member(delta, "role")) != "assistant") {
      add_fault(answer, "stream: the first delta has no role assistant");
    }
    role = true;
    answer.content += text_of(member(delta, "content"));
    answer.reasoning += reasoning_of(delta);
    const Json& calls = member(delta, "tool_calls");
    for (const Json& call : calls.is_array() ? calls : Json::array()) read_call_delta(call, answer);
    read_logprobs(member(choice, "logprobs"), answer);
    const std::string finish = text_of(member(choice, "finish_reason"));
    if (!finish.empty()) answer.finish = finish;
  }
}

}  // namespace

std::string shown_text(std::string_view text) {
  const std::string shown = valid_utf8(text.substr(0, kShownBytes)) + (text.size() > kShownBytes ? " ..." : "");
  return Json(shown).dump(-1, ' ', false, Json::error_handler_t::replace);
}

ChatAnswer read_chat_answer(const HttpReply& reply) {
  ChatAnswer answer;
  answer.status = reply.status;
  if (reply.status != 200) {
    answer.error = error_message(reply.body);
    return answer;
  }
  const auto json = parse_json(reply.body);
  if (!json.ok() || !json->is_object()) {
    add_fault(answer, "the body is no JSON object");
    return answer;
  }
  if (text_of(member(*json, "object")) != "chat.completion") add_fault(answer, "object is not chat.completion");
  const Json& choices = member(*json, "choices");
  if (!choices.is_array() || choices.size() != 1) {
    add_fault(answer, "expected one choice");
    return answer;
  }
  const Json& message = member(choices[0], "message");
  if (text_of(member(message, "role")) != "assistant") add_fault(answer, "message.role is not assistant");
  answer.content = text_of(member(message, "content"));
  answer.reasoning = reasoning_of(message);
  const Json& calls = member(message, "tool_calls");
  for (const Json& call : calls.is_array() ? calls : Json::array()) {
    const Json& function = member(call, "function");
    answer.calls.push_back(
        {text_of(member(call, "id")), text_of(member(function, "name")), text_of(member(function, "arguments"))});
    if (answer.calls.size() == kMostCalls) break;
  }
  read_logprobs(member(choices[0], "logprobs"), answer);
  answer.finish = text_of(member(choices[0], "finish_reason"));
  if (answer.finish.empty()) add_fault(answer, "finish_reason is missing");
  read_usage(member(*json, "usage"), answer);
  return answer;
}

ChatAnswer read_chat_stream(const HttpReply& reply) {
  ChatAnswer answer;
  answer.status = reply.status;
  if (reply.status != 200) {
    answer.error = error_message(reply.body);
    return answer;
  }
  if (reply.content_type != "text/event-stream") {
    add_fault(answer, "stream: Content-Type is " + shown_text(reply.content_type));
  }
  std::string id;
  bool role = false;
  bool done = false;
  for (const std::string& data : event_data(reply.body)) {
    if (done) add_fault(answer, "stream: an event after [DONE]");
    if (data == "[DONE]") {
      done = true;
      continue;
    }
    const auto chunk = parse_json(data);
    if (!chunk.ok() || !chunk->is_object()) {
      add_fault(answer, "stream: an event is no JSON object: " + shown_text(data));
      continue;
    }
    if (chunk->contains("error")) {
      answer.error = error_message(data);
      add_fault(answer, "stream: error " + answer.error);
      continue;
    }
    read_chunk(*chunk, id, role, answer);
  }
  if (!done) add_fault(answer, "stream: data: [DONE] is missing");
  if (answer.finish.empty()) add_fault(answer, "stream: finish_reason is missing");
  return answer;
}

Result<std::unique_ptr<Session>> Session::open(const std::string& url, const HttpClientOptions& http,
                                               const std::string& model) {
  PERIGEE_ASSIGN_OR_RETURN(Url parsed, parse_url(url));
  // Both the root and the /v1 base, as clients write it, name the endpoint.
  if (parsed.target.ends_with("/v1")) parsed.target.resize(parsed.target.size() - 3);
  PERIGEE_ASSIGN_OR_RETURN(HttpClient client, HttpClient::create(std::move(parsed), http));
  std::unique_ptr<Session> session(new Session(std::move(client)));
  PERIGEE_RETURN_IF_ERROR(session->probe(model));
  return session;
}

Status Session::probe(const std::string& model) {
  PERIGEE_ASSIGN_OR_RETURN(const HttpReply reply, get("/v1/models"));
  if (reply.status == 401 || reply.status == 403) {
    return make_error(StatusCode::kUnavailable, "/v1/models: status {}: the endpoint wants another API key",
                      reply.status);
  }
  model_ = model;
  if (const auto json = parse_json(reply.body); reply.status == 200 && json.ok()) {
    const Json& data = member(*json, "data");
    for (const Json& entry : data.is_array() ? data : Json::array()) {
      const std::string id = text_of(member(entry, "id"));
      if (id.empty() || (!model.empty() && id != model)) continue;
      if (model_.empty()) model_ = id;
      context_tokens_ = std::max<std::int64_t>(0, number_of(member(entry, "max_model_len")));
      break;
    }
  }
  if (model_.empty()) {
    return make_error(StatusCode::kUnavailable, "/v1/models: status {} and no model in it: give --model", reply.status);
  }
  Json body = {{"messages", {{{"role", "user"}, {"content", "Hi"}}}}, {"max_tokens", 1}};
  PERIGEE_ASSIGN_OR_RETURN(const ChatAnswer first, chat(body));
  if (!first.ok()) {
    return make_error(StatusCode::kUnavailable, "/v1/chat/completions refuses a plain request: status {}: {}",
                      first.status, first.error);
  }
  Json greedy = body;
  greedy["temperature"] = 0;
  PERIGEE_ASSIGN_OR_RETURN(const ChatAnswer cold, chat(greedy));
  deterministic_ = cold.ok();
  for (const char* way : {"kimi", "template"}) {
    thinking_off_ = way;
    Json off = body;
    switch_thinking_off(off);
    PERIGEE_ASSIGN_OR_RETURN(const ChatAnswer answer, chat(off));
    if (answer.ok()) return {};
  }
  thinking_off_.clear();
  return {};
}

void Session::switch_thinking_off(Json& body) const {
  if (thinking_off_ == "kimi") body["thinking"] = {{"type", "disabled"}};
  if (thinking_off_ == "template") body["chat_template_kwargs"] = {{"thinking", false}};
}

Json Session::plain(const std::string& text, std::int64_t max_tokens, bool thinking) const {
  Json body = {{"messages", {{{"role", "user"}, {"content", text}}}}, {"max_tokens", max_tokens}};
  if (deterministic_) body["temperature"] = 0;
  if (!thinking) switch_thinking_off(body);
  return body;
}

Result<HttpReply> Session::get(std::string_view path) {
  ++requests_;
  return client_.get(path);
}

Result<HttpReply> Session::post_text(std::string_view path, std::string body) {
  ++requests_;
  auto reply = client_.post(path, std::move(body));
  if (!reply.ok()) return reply.status().with_context(path);
  return reply;
}

Result<HttpReply> Session::post(std::string_view path, const Json& body) {
  return post_text(path, body.dump(-1, ' ', false, Json::error_handler_t::replace));
}

Result<ChatAnswer> Session::chat(Json body, bool stream) {
  body["model"] = model_;
  if (stream) {
    body["stream"] = true;
    body["stream_options"] = {{"include_usage", true}};
  }
  PERIGEE_ASSIGN_OR_RETURN(const HttpReply reply, post("/v1/chat/completions", body));
  return stream ? read_chat_stream(reply) : read_chat_answer(reply);
}

void Cases::add(const std::string& id, const std::string& difference) {
  ++check_.total;
  if (difference.empty()) {
    ++check_.passed;
  } else {
    check_.failures.push_back(id + ": " + difference);
  }
}

EndpointCheck Cases::finish(std::string detail) {
  check_.detail = std::move(detail);
  const auto say = [this](const std::string& text) {
    if (!check_.detail.empty()) check_.detail += "; ";
    check_.detail += text;
  };
  if (check_.total > 0) {
    check_.verdict = check_.passed == check_.total ? Verdict::kPass : Verdict::kFail;
    if (!skipped_.empty()) say(fmt::format("{} without a result, such as: {}", skipped_.size(), skipped_.front()));
  } else {
    check_.verdict = Verdict::kInconclusive;
    say(skipped_.empty() ? "no cases" : skipped_.front());
  }
  return std::move(check_);
}

EndpointCheck Cases::not_offered(std::string why) {
  check_.verdict = Verdict::kNotOffered;
  check_.detail = std::move(why);
  check_.total = check_.passed = 0;
  check_.failures.clear();
  return std::move(check_);
}

}  // namespace perigee::verify
