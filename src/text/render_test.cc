#include "text/render.h"

#include <gtest/gtest.h>

#include <rapidcheck/gtest.h>
#include <nlohmann/json.hpp>

#include "text/conversation.h"
#include "text/parser.h"
#include "text/replay.h"

namespace perigee {
namespace {

std::size_t specials_in(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  return static_cast<std::size_t>(
      std::count_if(ids.begin(), ids.end(), [&](TokenId id) { return tokenizer.is_special(id); }));
}

// One request with the same text in every place that a client can fill.
Json request_with(const std::string& text) {
  return {{"messages",
           {{{"role", "system"}, {"content", text}, {"name", "n" + text}},
            {{"role", "user"}, {"content", {{{"type", "text"}, {"text", text}}}}, {"name", "n" + text}},
            {{"role", "assistant"},
             {"content", text},
             {"reasoning_content", "r" + text},
             {"tool_calls",
              {{{"id", "c"}, {"function", {{"name", "f" + text}, {"arguments", Json{{"k" + text, text}}.dump()}}}},
               {{"id", "d"}, {"function", {{"name", "f" + text}, {"arguments", "{" + text}}}}}}},
            {{"role", "tool"}, {"tool_call_id", "c"}, {"content", text}}}},
          {"tools", {{{"type", "function"}, {"function", {{"name", "f"}, {"description", text}}}}}},
          {"response_format", {{"type", "json_schema"}, {"json_schema", {{"schema", {{"title", text}}}}}}}};
}

Result<Rendered> render_body(const Dialect& dialect, const Json& body) {
  RenderRequest request;
  request.messages = &body["messages"];
  request.tools = body.contains("tools") ? &body["tools"] : nullptr;
  request.response_format = body.contains("response_format") ? &body["response_format"] : nullptr;
  return render(dialect, Tokenizer::embedded(dialect.specials), request);
}

RC_GTEST_PROP(Render, TextNeverBecomesAControlToken, ()) {
  const std::vector<std::string> spellings = {"<|open|>",
                                              "<|close|>",
                                              "<|sep|>",
                                              "<|end_of_msg|>",
                                              "[EOS]",
                                              "<|im_end|>",
                                              "<|media_pad|>",
                                              "<think>",
                                              "</think>",
                                              "<|tool_call_begin|>",
                                              "x",
                                              "\"",
                                              "&",
                                              "\n",
                                              "[BOS]"};
  std::string text;
  for (const std::string& part : *rc::gen::container<std::vector<std::string>>(rc::gen::elementOf(spellings))) {
    text += part;
  }
  for (const Dialect* dialect : {&kDialectK3, &kDialectK2Thinking, &kDialectK25, &kDialectKimiLinear}) {
    const Tokenizer tokenizer = Tokenizer::embedded(dialect->specials);
    const auto plain = render_body(*dialect, request_with("x"));
    const auto wild = render_body(*dialect, request_with("x" + text));
    RC_ASSERT(plain.ok());
    RC_ASSERT(wild.ok());
    RC_ASSERT(specials_in(tokenizer, plain->ids) == specials_in(tokenizer, wild->ids));
  }
}

TEST(Render, FindsTheEndOfTheSystemBlock) {
  const Json messages = {{{"role", "system"}, {"content", "S"}}, {{"role", "user"}, {"content", "Hi"}}};
  RenderRequest request;
  request.messages = &messages;
  const Tokenizer tokenizer = Tokenizer::embedded(SpecialTable::kK3);
  const auto both = render(kDialectK3, tokenizer, request);
  ASSERT_TRUE(both.ok());
  const Json system_only = {messages[0]};
  request.messages = &system_only;
  request.add_generation_prompt = false;
  const auto system = render(kDialectK3, tokenizer, request);
  ASSERT_TRUE(system.ok());
  EXPECT_EQ(both->system_tokens, static_cast<std::int64_t>(system->ids.size()));
}

TEST(Render, NamesTheFieldThatIsWrong) {
  const std::vector<std::pair<Json, std::string>> cases = {
      {{{{"role", "user"}, {"content", 7}}}, "messages[0].content: "},
      {{{{"role", "user"}, {"content", {{{"type", "video"}}}}}}, "messages[0].content[0].type: "},
      {{"x"}, "messages[0]: "},
      {{{{"role", "user"}, {"name", 3}}}, "messages[0].name: "},
      {{{{"role", "assistant"}, {"tool_calls", {{{"id", "a"}}}}}}, "messages[0].tool_calls[0].function.name: "},
      {{{{"role", "assistant"}, {"tool_calls", "x"}}}, "messages[0].tool_calls: "},
      {{{{"role", "assistant"},
         {"tool_calls", {{{"function", {{"name", "f"}, {"arguments", "{\"a\":\"\\ud800\"}"}}}}}}}},
       "messages[0].tool_calls[0].function.arguments: "},
  };
  for (const auto& [messages, field] : cases) {
    const auto rendered = render_body(kDialectK3, {{"messages", messages}});
    ASSERT_FALSE(rendered.ok()) << messages.dump();
    EXPECT_TRUE(rendered.status().message().starts_with(field)) << rendered.status().message();
  }
}

// An answer whose ids differ from its re-rendered form, as models write them: compact JSON, a continued index, a
// missing separator.
TEST(Replay, SplicesAnUnchangedAnswerAndNoOther) {
  const Tokenizer tokenizer = Tokenizer::embedded(SpecialTable::kK3);
  const std::vector<TokenId> ids = tokenizer.encode_with_specials(
      "Think.<|close|>think<|open|>response<|sep|>Hi<|close|>response<|sep|><|open|>tools<|sep|>"
      "<|open|>call tool=\"f\" index=\"7\"<|sep|><|open|>argument key=\"o\" type=\"object\"<|sep|>{\"a\":1e2}"
      "<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|><|close|>message<|sep|><|end_of_msg|>");
  const auto parser = make_answer_parser(kDialectK3, tokenizer, {});
  std::vector<AnswerEvent> events;
  for (const TokenId id : ids) parser->push(id, events);
  parser->finish(false, events);
  AnswerFold fold;
  for (const AnswerEvent& event : events) fold.add(event);
  const Answer answer = fold.take();
  AnswerStore store(1 << 20);
  store.remember("tenant", tokenizer, Channel::kThink, ids, answer);
  EXPECT_EQ(store.size(), 1U);

  Json message = {{"role", "assistant"},
                  {"content", *answer.content},
                  {"reasoning_content", *answer.reasoning},
                  {"tool_calls",
                   {{{"id", answer.tool_calls[0].id},
                     {"type", "function"},
                     {"function", {{"name", "f"}, {"arguments", "{ \"o\": {\"a\": 100.0} }"}}}}}}};
  const auto replayed = [&](const Json& assistant, const std::string& tenant, bool thinking) {
    const Json messages = {{{"role", "user"}, {"content", "q"}}, assistant};
    RenderRequest request;
    request.messages = &messages;
    request.answers = &store;
    request.tenant = tenant;
    request.thinking = thinking;
    request.add_generation_prompt = false;
    const auto rendered = render(kDialectK3, tokenizer, request);
    EXPECT_TRUE(rendered.ok());
    return *rendered;
  };
  const Rendered same = replayed(message, "tenant", true);
  EXPECT_EQ(same.replayed_answers, 1);
  ASSERT_GE(same.ids.size(), ids.size());
  EXPECT_TRUE(std::equal(ids.rbegin(), ids.rend(), same.ids.rbegin()));
  EXPECT_EQ(replayed(message, "other", true).replayed_answers, 0);
  EXPECT_EQ(replayed(message, "tenant", false).replayed_answers, 0);
  message["content"] = "Hi!";
  EXPECT_EQ(replayed(message, "tenant", true).replayed_answers, 0);
}

TEST(Replay, StaysWithinItsBound) {
  const Tokenizer tokenizer = Tokenizer::embedded(SpecialTable::kK3);
  AnswerStore store(64'000);
  for (int i = 0; i < 1000; ++i) {
    Answer answer;
    answer.content = std::to_string(i);
    answer.finish = AnswerFinish::kStop;
    store.remember("t", tokenizer, Channel::kResponse, std::vector<TokenId>(100, i), answer);
    EXPECT_LE(store.bytes(), 64'000U);
  }
  AnswerStore::Found found;
  EXPECT_TRUE(store.find("t", {{"role", "assistant"}, {"content", "999"}}, found));
  EXPECT_EQ(found.ids, std::vector<TokenId>(100, 999));
  EXPECT_FALSE(store.find("t", {{"role", "assistant"}, {"content", "0"}}, found));
}

}  // namespace
}  // namespace perigee
