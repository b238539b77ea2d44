#include "server/api/reply.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace perigee::api {
namespace {

struct SentEvent {
  std::string name;
  Json data;
};

std::vector<SentEvent> events_of(const std::string& stream) {
  std::vector<SentEvent> out;
  SentEvent current;
  std::size_t at = 0;
  while (at < stream.size()) {
    const std::size_t end = stream.find('\n', at);
    const std::string line = stream.substr(at, end - at);
    at = end + 1;
    if (line.starts_with("event: ")) current.name = line.substr(7);
    if (line.starts_with("data: ") && line != "data: [DONE]") current.data = *parse_json(line.substr(6));
    if (line.empty()) out.push_back(std::exchange(current, {}));
  }
  return out;
}

// Reasoning, text, one call; in several pieces.
void play(ReplyEncoder& encoder) {
  encoder.set_usage({.prompt_tokens = 10, .cached_tokens = 4, .completion_tokens = 0, .reasoning_tokens = 0});
  encoder.begin();
  encoder.reasoning(0, "think ");
  encoder.reasoning(0, "more");
  encoder.content(0, "Hel");
  encoder.content(0, "lo");
  encoder.call_begin(0, "", "f");
  encoder.call_arguments(0, "{\"a\":");
  encoder.call_arguments(0, "1}");
  encoder.call_end(0);
  encoder.set_usage({.prompt_tokens = 10, .cached_tokens = 4, .completion_tokens = 20, .reasoning_tokens = 5});
  encoder.finish(0, ReplyFinish::kToolCalls, "");
  encoder.end();
}

ChatRequest request_of(ApiKind kind, bool stream) {
  ChatRequest request;
  request.kind = kind;
  request.model = "m";
  request.stream = stream;
  request.include_usage = true;
  return request;
}

const ReplyIdentity kIdentity = {.id = "0a1b", .created = 1, .fingerprint = ""};

TEST(ChatEncoder, StreamSumsUpToTheDocument) {
  const auto encoder = make_encoder(request_of(ApiKind::kChat, true), kIdentity);
  play(*encoder);
  const std::string stream = encoder->take();
  EXPECT_TRUE(stream.ends_with("data: [DONE]\n\n"));
  const auto events = events_of(stream);
  std::string reasoning;
  std::string content;
  std::string arguments;
  std::string finish;
  Json usage;
  for (const SentEvent& event : events) {
    if (event.data.is_null()) continue;
    EXPECT_EQ(event.data["object"], "chat.completion.chunk");
    if (event.data["choices"].empty()) {
      usage = event.data["usage"];
      continue;
    }
    EXPECT_TRUE(event.data["usage"].is_null());
    const Json& choice = event.data["choices"][0];
    const Json& delta = choice["delta"];
    reasoning += delta.value("reasoning_content", std::string());
    content += delta.value("content", std::string());
    if (delta.contains("tool_calls")) {
      const Json& call = delta["tool_calls"][0];
      EXPECT_EQ(call["index"], 0);
      arguments += call["function"].value("arguments", std::string());
    }
    if (!choice["finish_reason"].is_null()) {
      EXPECT_TRUE(delta.empty());
      finish = choice["finish_reason"];
      EXPECT_EQ(choice["usage"]["cached_tokens"], 4);
    }
  }
  EXPECT_EQ(events.front().data["choices"][0]["delta"]["role"], "assistant");
  const Json document = *parse_json(encoder->document());
  const Json& message = document["choices"][0]["message"];
  EXPECT_EQ(message["reasoning_content"], reasoning);
  EXPECT_EQ(message["content"], content);
  EXPECT_EQ(message["tool_calls"][0]["function"]["arguments"], arguments);
  EXPECT_EQ(message["tool_calls"][0]["id"], "call_0a1b_0_0");
  EXPECT_EQ(document["choices"][0]["finish_reason"], finish);
  EXPECT_EQ(finish, "tool_calls");
  EXPECT_EQ(document["usage"], usage);
  EXPECT_EQ(usage["total_tokens"], 30);
  EXPECT_EQ(usage["completion_tokens_details"]["reasoning_tokens"], 5);
}

TEST(ChatEncoder, ReasoningThatWasTheReply) {
  const auto encoder = make_encoder(request_of(ApiKind::kChat, false), kIdentity);
  encoder->begin();
  encoder->reasoning(0, "42");
  encoder->reasoning_was_content(0);
  encoder->content(0, "42");
  encoder->finish(0, ReplyFinish::kStop, "");
  encoder->end();
  const Json message = (*parse_json(encoder->take()))["choices"][0]["message"];
  EXPECT_EQ(message["content"], "42");
  EXPECT_FALSE(message.contains("reasoning_content"));
}

TEST(ChatEncoder, ContentIsNullOnlyWhereTheBudgetEndedInReasoning) {
  for (const auto finish : {ReplyFinish::kStop, ReplyFinish::kLength}) {
    const auto encoder = make_encoder(request_of(ApiKind::kChat, false), kIdentity);
    encoder->begin();
    encoder->finish(0, finish, "");
    EXPECT_EQ(encoder->message(0)["content"].is_null(), finish == ReplyFinish::kLength);
  }
}

TEST(ChatEncoder, LogprobsGoWithContentAndKeepBytes) {
  ChatRequest request = request_of(ApiKind::kChat, true);
  request.logprobs = true;
  const auto encoder = make_encoder(request, kIdentity);
  encoder->begin();
  encoder->logprobs(0, {{{7, -0.5F, "\xF0\x9F"}, {}}});
  encoder->logprobs(0, {{{8, -0.25F, "\x9A\x80"}, {}}});
  encoder->content(0, "🚀");
  const auto events = events_of(encoder->take());
  const Json& tokens = events.back().data["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(tokens.size(), 2);
  EXPECT_EQ(tokens[0]["bytes"], Json({0xF0, 0x9F}));
  EXPECT_EQ(tokens[1]["bytes"], Json({0x9A, 0x80}));
}

TEST(ResponsesEncoder, EventOrder) {
  const auto encoder = make_encoder(request_of(ApiKind::kResponses, true), kIdentity);
  play(*encoder);
  std::vector<std::string> names;
  std::int64_t sequence = 0;
  const auto events = events_of(encoder->take());
  for (const SentEvent& event : events) {
    EXPECT_EQ(event.data["type"], event.name);
    EXPECT_EQ(event.data["sequence_number"], sequence++);
    names.push_back(event.name.substr(std::string("response.").size()));
  }
  const std::vector<std::string> expected = {
      "created", "in_progress",
      // reasoning
      "output_item.added", "reasoning_summary_part.added", "reasoning_summary_text.delta",
      "reasoning_summary_text.delta", "reasoning_summary_text.done", "reasoning_summary_part.done", "output_item.done",
      // message
      "output_item.added", "content_part.added", "output_text.delta", "output_text.delta", "output_text.done",
      "content_part.done", "output_item.done",
      // call
      "output_item.added", "function_call_arguments.delta", "function_call_arguments.delta",
      "function_call_arguments.done", "output_item.done", "completed"};
  EXPECT_EQ(names, expected);
  const Json& response = events.back().data["response"];
  EXPECT_EQ(response["output"].size(), 3);
  EXPECT_EQ(response["output"][1]["content"][0]["text"], "Hello");
  EXPECT_EQ(response["output"][2]["arguments"], "{\"a\":1}");
  EXPECT_EQ(response["usage"]["input_tokens_details"]["cached_tokens"], 4);
  EXPECT_EQ(response, *parse_json(encoder->document()));
}

TEST(ResponsesEncoder, BudgetMakesItIncomplete) {
  const auto encoder = make_encoder(request_of(ApiKind::kResponses, false), kIdentity);
  encoder->begin();
  encoder->content(0, "x");
  encoder->finish(0, ReplyFinish::kLength, "");
  encoder->end();
  const Json response = *parse_json(encoder->take());
  EXPECT_EQ(response["status"], "incomplete");
  EXPECT_EQ(response["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(response["output"][0]["content"][0]["text"], "x");
}

TEST(MessagesEncoder, EventOrder) {
  const auto encoder = make_encoder(request_of(ApiKind::kMessages, true), kIdentity);
  play(*encoder);
  std::vector<std::string> names;
  const auto events = events_of(encoder->take());
  for (const SentEvent& event : events) {
    std::string name = event.name;
    if (event.data.contains("delta") && event.data["delta"].contains("type")) {
      name += " " + event.data["delta"]["type"].get<std::string>();
    }
    names.push_back(name);
  }
  const std::vector<std::string> expected = {"message_start",
                                             "ping",
                                             "content_block_start",
                                             "content_block_delta thinking_delta",
                                             "content_block_delta thinking_delta",
                                             "content_block_delta signature_delta",
                                             "content_block_stop",
                                             "content_block_start",
                                             "content_block_delta text_delta",
                                             "content_block_delta text_delta",
                                             "content_block_stop",
                                             "content_block_start",
                                             "content_block_delta input_json_delta",
                                             "content_block_delta input_json_delta",
                                             "content_block_stop",
                                             "message_delta",
                                             "message_stop"};
  EXPECT_EQ(names, expected);
  EXPECT_EQ(events[0].data["message"]["usage"]["input_tokens"], 6);
  EXPECT_EQ(events[11].data["content_block"]["input"], Json::object());
  EXPECT_EQ(events[15].data["delta"]["stop_reason"], "tool_use");
  const Json document = *parse_json(encoder->document());
  EXPECT_EQ(document["content"][2]["input"], Json({{"a", 1}}));
  EXPECT_EQ(document["usage"]["cache_read_input_tokens"], 4);
}

TEST(MessagesEncoder, ArgumentsThatAreNoObject) {
  const auto encoder = make_encoder(request_of(ApiKind::kMessages, false), kIdentity);
  encoder->begin();
  encoder->call_begin(0, "functions.f:0", "f");
  encoder->call_arguments(0, "{\"city\": Paris");
  encoder->call_end(0);
  encoder->finish(0, ReplyFinish::kToolCalls, "");
  encoder->end();
  const Json document = *parse_json(encoder->take());
  EXPECT_EQ(document["content"][0]["id"], "functions.f:0");
  EXPECT_TRUE(document["content"][0]["input"].is_object());
}

TEST(CompletionsEncoder, StreamAndDocumentAgree) {
  CompletionRequest request;
  request.model = "m";
  request.stream = true;
  request.prompts.resize(2);
  const auto encoder = make_encoder(request, kIdentity);
  encoder->begin();
  encoder->content(1, "b");
  encoder->content(0, "a");
  encoder->finish(0, ReplyFinish::kLength, "");
  encoder->finish(1, ReplyFinish::kStop, "##");
  encoder->end();
  const Json document = *parse_json(encoder->document());
  EXPECT_EQ(document["choices"][0]["text"], "a");
  EXPECT_EQ(document["choices"][1]["text"], "b");
  EXPECT_EQ(document["choices"][1]["stop_reason"], "##");
  std::string second;
  for (const SentEvent& event : events_of(encoder->take())) {
    if (!event.data.is_null() && event.data["choices"][0]["index"] == 1) second += event.data["choices"][0]["text"];
  }
  EXPECT_EQ(second, "b");
}

TEST(Encoder, ErrorsInEachDialect) {
  const ApiError error = from_status(Status(StatusCode::kInternal, "NaN in logits"));
  for (const auto kind : {ApiKind::kChat, ApiKind::kResponses, ApiKind::kMessages}) {
    const auto encoder = make_encoder(request_of(kind, true), kIdentity);
    encoder->begin();
    encoder->take();
    encoder->fail(error);
    const std::string sent = encoder->take();
    EXPECT_NE(sent.find("NaN in logits"), std::string::npos);
    EXPECT_EQ(sent.find("[DONE]"), std::string::npos);
    EXPECT_EQ(sent.starts_with("data: "), kind == ApiKind::kChat) << sent;
  }
}

}  // namespace
}  // namespace perigee::api
