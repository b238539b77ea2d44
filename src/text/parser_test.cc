#include "text/parser.h"

#include <gtest/gtest.h>

#include <rapidcheck/gtest.h>
#include <chrono>
#include <nlohmann/json.hpp>

#include "text/answer_invariants_testing.h"

namespace perigee {
namespace {

// Ids that come near the grammar: markers, tag words, header pieces, text, broken UTF-8, any other special.
rc::Gen<std::vector<TokenId>> ids_near_grammar(const Tokenizer& tokenizer, bool json_element) {
  std::vector<std::vector<TokenId>> pieces;
  for (std::int32_t offset = 0; offset < 24; ++offset) pieces.push_back({tokenizer.first_special() + offset});
  for (const char* text : {"message",
                           "think",
                           "response",
                           "tools",
                           "call",
                           "argument",
                           "call tool=\"f\" index=\"1\"",
                           "call index=\"1\"",
                           "argument key=\"a\" type=\"string\"",
                           "argument key=\"b\" type=\"number\"",
                           "argument key=\"c\"",
                           "argument type=\"object\"",
                           "argument key=d type=boolean",
                           "bogus x=\"1\"",
                           "functions.f:0",
                           "functions.",
                           ":0",
                           "{\"a\": 1}",
                           "1e2",
                           "true",
                           " ",
                           "\n",
                           "STOP",
                           "ST",
                           "hello",
                           "ca",
                           "argu",
                           "\xF0\x9F",
                           "\x9A\x80",
                           "\xE6",
                           "\"",
                           "\\",
                           "\x01"}) {
    pieces.push_back(tokenizer.encode(text));
  }
  if (json_element) pieces.push_back(tokenizer.encode("json type=\"object\""));
  const auto piece = rc::gen::elementOf(pieces);
  return rc::gen::map(rc::gen::container<std::vector<std::vector<TokenId>>>(piece), [](auto parts) {
    std::vector<TokenId> ids;
    for (const auto& part : parts) ids.insert(ids.end(), part.begin(), part.end());
    return ids;
  });
}

void check_dialect(const Dialect& dialect) {
  const Tokenizer tokenizer = Tokenizer::embedded(dialect.specials);
  const bool json_element = *rc::gen::arbitrary<bool>();
  const auto ids = *ids_near_grammar(tokenizer, json_element);
  ParserOptions options;
  options.start = *rc::gen::element(Channel::kThink, Channel::kResponse);
  options.drop_calls = *rc::gen::weightedElement<bool>({{4, false}, {1, true}});
  if (*rc::gen::arbitrary<bool>()) options.stop = {"STOP", "lo"};
  options.include_stop = *rc::gen::arbitrary<bool>();
  const bool length = *rc::gen::arbitrary<bool>();
  // K2 passes arguments on as they are, so only K3's are always JSON.
  const bool json = dialect.format == PromptFormat::kXtml && !json_element;
  const std::size_t step = *rc::gen::inRange<std::size_t>(1, 9);
  RC_ASSERT(broken_invariant(dialect, tokenizer, options, ids, step, length, json) == "");
}

RC_GTEST_PROP(AnswerParser, KeepsItsPromisesForAnyK3Ids, ()) {
  check_dialect(kDialectK3);
}
RC_GTEST_PROP(AnswerParser, KeepsItsPromisesForAnyK2Ids, ()) {
  check_dialect(kDialectK2Thinking);
}

RC_GTEST_PROP(AnswerParser, TakesAnyIdAtAll, ()) {
  const Tokenizer tokenizer = Tokenizer::embedded(SpecialTable::kK3);
  const auto ids = *rc::gen::container<std::vector<TokenId>>(rc::gen::inRange<TokenId>(-2, 163'842));
  RC_ASSERT(broken_invariant(kDialectK3, tokenizer, {}, ids, 1, false, false) == "");
}

// Found by fuzzing: an id of nothing but its frame gave a call with an empty name.
TEST(AnswerParser, DropsAK2CallWithoutAName) {
  const Tokenizer tokenizer = Tokenizer::embedded(kDialectK2Thinking.specials);
  const auto ids = tokenizer.encode_with_specials(
      "<|tool_calls_section_begin|><|tool_call_begin|>functions.:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
      "<|tool_call_begin|>functions.f:1<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>");
  ParserOptions options;
  options.start = Channel::kResponse;
  const auto parser = make_answer_parser(kDialectK2Thinking, tokenizer, options);
  std::vector<AnswerEvent> events;
  for (const TokenId id : ids) parser->push(id, events);
  std::vector<std::string> names;
  for (const AnswerEvent& event : events) {
    if (event.kind == AnswerEvent::Kind::kCallBegin) names.emplace_back(event.text);
  }
  EXPECT_EQ(names, std::vector<std::string>{"f"});
}

std::vector<TokenId> spelled(const char* text) {
  return Tokenizer::embedded(SpecialTable::kK3).encode_with_specials(text);
}

TEST(AnswerParser, SaysWhereEachIdWent) {
  const Tokenizer tokenizer = Tokenizer::embedded(SpecialTable::kK3);
  const auto parser = make_answer_parser(kDialectK3, tokenizer, {});
  std::vector<AnswerEvent> events;
  std::string parts;
  for (const TokenId id : spelled("r<|close|>think<|sep|><|open|>response<|sep|>hi<|close|>response<|sep|>"
                                  "<|open|>tools<|sep|><|open|>call tool=\"f\"<|sep|>"
                                  "<|open|>argument key=\"a\" type=\"string\"<|sep|>v<|close|>argument<|sep|>")) {
    parser->push(id, events);
    parts += "rca-"[static_cast<int>(parser->last_part())];
  }
  EXPECT_EQ(parts.substr(0, 8), "r------c");
  EXPECT_EQ(std::count(parts.begin(), parts.end(), 'a'), 1);
  EXPECT_EQ(std::count(parts.begin(), parts.end(), 'c'), 1);
}

TEST(AnswerParser, StreamsAStringArgumentAsItComes) {
  const Tokenizer tokenizer = Tokenizer::embedded(SpecialTable::kK3);
  ParserOptions options;
  options.start = Channel::kResponse;
  const auto parser = make_answer_parser(kDialectK3, tokenizer, options);
  std::vector<AnswerEvent> events;
  for (const TokenId id : spelled("<|open|>call tool=\"f\"<|sep|><|open|>argument key=\"a\" type=\"string\"<|sep|>x")) {
    parser->push(id, events);
  }
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].id, "call_0");
  EXPECT_EQ(events[1].text, "{\"a\":\"x");
}

// 100,000 ids of the kinds that make a careless parser quadratic.
TEST(AnswerParser, IsLinear) {
  const Tokenizer tokenizer = Tokenizer::embedded(SpecialTable::kK3);
  const auto began = std::chrono::steady_clock::now();
  for (const char* text : {"<|open|>", "<|close|>response", "<|open|>argument key=\"a\" type=\"object\"<|sep|>{",
                           "<|open|>call tool=\"f\"<|sep|>", "aaaaaaaaaaaaaaab", "\xF0\x9F"}) {
    ParserOptions options;
    options.stop = {"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaac", "aaaaaaaab!"};
    const std::vector<TokenId> piece = spelled(text);
    const auto parser = make_answer_parser(kDialectK3, tokenizer, options);
    std::vector<AnswerEvent> events;
    for (int i = 0; i < 100'000; ++i) {
      parser->push(piece[static_cast<std::size_t>(i) % piece.size()], events);
      if (i % 16 == 0) events.clear();
    }
    parser->finish(true, events);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(10));
}

}  // namespace
}  // namespace perigee
