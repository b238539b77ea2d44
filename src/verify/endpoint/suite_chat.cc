// The model list, and the two transports of an answer against each other.
#include <nlohmann/json.hpp>

#include "verify/endpoint/session.h"

namespace perigee::verify {
namespace {

struct ChatPrompt {
  const char* id;
  const char* text;
};

constexpr ChatPrompt kChatPrompts[] = {
    {"greeting", "Hello"},
    {"chinese", "用一句话介绍北京。"},
    {"emoji", "Repeat exactly: naïve 🚀🔥 日本語"},
    {"code", "Write a C function that reverses a string in place."},
};

std::string faults_of(const ChatAnswer& answer) {
  if (!answer.ok()) return answer.refusal();
  return fmt::format("{}", fmt::join(answer.faults, "; "));
}

std::string usage_difference(const ChatAnswer& answer, std::int64_t limit) {
  if (answer.prompt_tokens < 0 || answer.completion_tokens < 0 || answer.total_tokens < 0)
    return "usage is not complete";
  if (answer.prompt_tokens + answer.completion_tokens != answer.total_tokens) {
    return fmt::format("usage: {} + {} is not {}", answer.prompt_tokens, answer.completion_tokens, answer.total_tokens);
  }
  if (answer.completion_tokens > limit) {
    return fmt::format("{} completion tokens, max_tokens was {}", answer.completion_tokens, limit);
  }
  return "";
}

std::string first_difference(std::string_view name, std::string_view a, std::string_view b) {
  if (a == b) return "";
  std::size_t at = 0;
  while (at < a.size() && at < b.size() && a[at] == b[at]) ++at;
  return fmt::format("{} differs at byte {}: {} streamed {}", name, at, shown_text(a.substr(at)),
                     shown_text(b.substr(at)));
}

std::string transports_differ(const ChatAnswer& whole, const ChatAnswer& stream) {
  for (const std::string& difference : {first_difference("content", whole.content, stream.content),
                                        first_difference("reasoning", whole.reasoning, stream.reasoning),
                                        first_difference("finish_reason", whole.finish, stream.finish)}) {
    if (!difference.empty()) return difference;
  }
  if (stream.completion_tokens >= 0 && whole.completion_tokens != stream.completion_tokens) {
    return fmt::format("completion_tokens: {}, streamed {}", whole.completion_tokens, stream.completion_tokens);
  }
  return "";
}

}  // namespace

Status run_models(const SuiteContext& context) {
  Cases cases("api", "model list");
  PERIGEE_ASSIGN_OR_RETURN(const HttpReply list, context.session->get("/v1/models"));
  const auto json = parse_json(list.body);
  const bool array = json.ok() && json->is_object() && json->contains("data") && (*json)["data"].is_array();
  cases.add("/v1/models", list.status != 200 ? fmt::format("status {}", list.status) : array ? "" : "no data array");
  bool listed = false;
  if (array) {
    for (const Json& entry : (*json)["data"]) {
      listed = listed || (entry.is_object() && entry.value("id", Json()) == context.session->model());
    }
  }
  cases.add("served name", listed ? "" : "the model is not in the list");
  context.add(cases.finish());

  Cases unknown("api", "unknown model is refused");
  Json body = context.session->plain("Hi", 1);
  body["model"] = "no-such-model-" + context.session->model();
  PERIGEE_ASSIGN_OR_RETURN(const HttpReply reply, context.session->post("/v1/chat/completions", body));
  unknown.add("404", reply.status == 404 || reply.status == 400 ? "" : fmt::format("status {}", reply.status));
  context.add(unknown.finish());
  return {};
}

Status run_streaming(const SuiteContext& context) {
  constexpr std::int64_t kChatTokens = 48;
  Session& session = *context.session;
  Cases shape("answers", "shape and usage");
  Cases protocol("answers", "stream protocol");
  Cases equal("answers", "streamed equals whole");
  Cases repeat("answers", "repeats at temperature 0");
  for (const ChatPrompt& prompt : kChatPrompts) {
    for (const bool thinking : {false, true}) {
      const std::string id = std::string(prompt.id) + (thinking ? ".thinking" : "");
      const Json body = session.plain(prompt.text, kChatTokens, thinking);
      PERIGEE_ASSIGN_OR_RETURN(const ChatAnswer whole, session.chat(body));
      PERIGEE_ASSIGN_OR_RETURN(const ChatAnswer stream, session.chat(body, true));
      const std::string faults = faults_of(whole);
      shape.add(id, faults.empty() ? usage_difference(whole, kChatTokens) : faults);
      const std::string stream_faults = faults_of(stream);
      protocol.add(id, stream_faults.empty() ? usage_difference(stream, kChatTokens) : stream_faults);
      if (!session.deterministic()) {
        equal.skip("temperature 0 is refused");
        continue;
      }
      PERIGEE_ASSIGN_OR_RETURN(const ChatAnswer again, session.chat(body));
      const std::string unrepeatable = transports_differ(whole, again);
      repeat.add(id, unrepeatable);
      // Where the same request gives two answers, a difference of the stream says nothing.
      if (unrepeatable.empty()) equal.add(id, transports_differ(whole, stream));
      if (!unrepeatable.empty()) equal.skip(id + ": the answer itself does not repeat");
    }
  }
  context.add(shape.finish());
  context.add(protocol.finish());
  context.add(equal.finish());
  if (session.deterministic()) {
    context.add(repeat.finish());
  } else {
    context.add(repeat.not_offered("temperature 0 is refused"));
  }

  Cases limits("answers", "limits");
  PERIGEE_ASSIGN_OR_RETURN(const ChatAnswer one, session.chat(session.plain("Count from one to fifty.", 1)));
  limits.add("max_tokens 1", !one.ok()                   ? faults_of(one)
                             : one.completion_tokens > 1 ? "more than one token"
                             : one.completion_tokens == 1 && one.finish != "length"
                                 ? "finish_reason is " + shown_text(one.finish)
                                 : "");
  Json stopping = session.plain("Count from one to fifty in words.", kChatTokens);
  PERIGEE_ASSIGN_OR_RETURN(const ChatAnswer free, session.chat(stopping));
  // Stop at a piece of the answer itself, so that any model reaches it.
  if (session.deterministic() && free.ok() && free.content.size() >= 4) {
    std::size_t begin = free.content.size() / 2;
    while (begin > 0 && (static_cast<unsigned char>(free.content[begin]) & 0xC0U) == 0x80U) --begin;
    std::size_t end = std::min(free.content.size(), begin + 3);
    while (end < free.content.size() && (static_cast<unsigned char>(free.content[end]) & 0xC0U) == 0x80U) ++end;
    const std::string stop = free.content.substr(begin, end - begin);
    stopping["stop"] = {stop};
    PERIGEE_ASSIGN_OR_RETURN(const ChatAnswer stopped, session.chat(stopping));
    const std::string expected = free.content.substr(0, free.content.find(stop));
    limits.add("stop string", !stopped.ok()                 ? faults_of(stopped)
                              : stopped.content != expected ? first_difference("content", expected, stopped.content)
                              : stopped.finish != "stop"    ? "finish_reason is " + shown_text(stopped.finish)
                                                            : "");
  }
  context.add(limits.finish());
  return {};
}

}  // namespace perigee::verify
