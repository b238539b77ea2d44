#include "text/grammar.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "text/grammar_literals.h"
#include "text/grammar_raw_string.h"
#include "text/grammar_schema.h"
#include "text/thinking.h"

namespace perigee {
namespace {

Json parse(std::string_view text) {
  return *parse_json(text);
}

const Tokenizer& k3_bytes() {
  static const Tokenizer kTokenizer = Tokenizer::plain_bytes(SpecialTable::kK3);
  return kTokenizer;
}

const Tokenizer& k2_bytes() {
  static const Tokenizer kTokenizer = Tokenizer::plain_bytes(SpecialTable::kK2);
  return kTokenizer;
}

const GrammarCompiler& k3() {
  static const GrammarCompiler kCompiler(kDialectK3, k3_bytes());
  return kCompiler;
}

GrammarRules format_rules(FormatKind kind, std::string text) {
  GrammarRules rules;
  rules.format.kind = kind;
  rules.format.text = std::move(text);
  rules.format.param = "f";
  rules.start = Channel::kResponse;
  return rules;
}

GrammarRules schema_rules(std::string_view schema) {
  GrammarRules rules = format_rules(FormatKind::kJsonSchema, "");
  rules.format.schema = std::make_shared<const Json>(parse(schema));
  return rules;
}

GrammarRules tool_rules(std::string_view parameters, bool strict) {
  GrammarRules rules;
  Json function = {{"name", "f"}, {"parameters", parse(parameters)}};
  if (strict) function["strict"] = true;
  rules.tools = std::make_shared<const Json>(Json::array({{{"type", "function"}, {"function", function}}}));
  rules.start = Channel::kResponse;
  return rules;
}

// `text` with specials spelled out; the whole must be allowed.
bool allows(TokenConstraint& constraint, const Tokenizer& tokenizer, std::string_view text) {
  for (const TokenId id : tokenizer.encode_with_specials(text)) {
    std::vector<std::uint32_t> mask((static_cast<std::size_t>(tokenizer.vocab()) + 31) / 32, ~0U);
    if (constraint.mask(mask) &&
        (mask[static_cast<std::size_t>(id) / 32] >> (static_cast<unsigned>(id) % 32) & 1U) == 0) {
      return false;
    }
    constraint.accept(id);
  }
  return true;
}

bool allows(const GrammarRules& rules, std::string_view text) {
  auto constraint = k3().compile(rules);
  EXPECT_TRUE(constraint.ok()) << constraint.status().message();
  return constraint.ok() && allows(**constraint, k3_bytes(), text);
}

constexpr std::string_view kEnd = "<|close|>response<|sep|><|close|>message<|sep|><|end_of_msg|>";

std::string reply(std::string_view text) {
  return std::string(text) + std::string(kEnd);
}

std::string call(std::string_view arguments) {
  return fmt::format(
      "<|close|>response<|sep|><|open|>tools<|sep|><|open|>call tool=\"f\" index=\"1\"<|sep|>{}<|close|>call<|sep|>"
      "<|close|>tools<|sep|><|close|>message<|sep|><|end_of_msg|>",
      arguments);
}

std::string argument(std::string_view key, std::string_view type, std::string_view value) {
  return fmt::format("<|open|>argument key=\"{}\" type=\"{}\"<|sep|>{}<|close|>argument<|sep|>", key, type, value);
}

TEST(Grammar, Formats) {
  EXPECT_TRUE(allows(format_rules(FormatKind::kJsonObject, ""), reply(R"({"a":[1,{"b":null}]})")));
  EXPECT_FALSE(allows(format_rules(FormatKind::kJsonObject, ""), reply("[1]")));
  EXPECT_FALSE(allows(format_rules(FormatKind::kJsonObject, ""), reply(R"({"a": 1})")));  // compact only
  EXPECT_TRUE(allows(format_rules(FormatKind::kRegex, "[a-c]{2}x?"), reply("abx")));
  EXPECT_FALSE(allows(format_rules(FormatKind::kRegex, "[a-c]{2}x?"), reply("a")));
  EXPECT_TRUE(allows(format_rules(FormatKind::kGrammar, "start: \"a\" /[0-9]+/"), reply("a12")));
  EXPECT_FALSE(allows(format_rules(FormatKind::kGrammar, "start: \"a\" /[0-9]+/"), reply("12")));
  GrammarRules loose = schema_rules(R"({"type":"object","required":["a"]})");
  loose.format.strict = false;
  EXPECT_TRUE(allows(loose, reply("{}")));
  EXPECT_FALSE(allows(loose, reply("1")));
}

TEST(Grammar, ReasoningIsNotMasked) {
  GrammarRules rules = schema_rules(R"({"type":"integer"})");
  rules.start = Channel::kThink;
  const std::string head = "any { text <|close|>think<|sep|><|open|>response<|sep|>";
  EXPECT_TRUE(allows(rules, head + reply("7")));
  EXPECT_FALSE(allows(rules, head + reply("x")));
}

TEST(Grammar, Ebnf) {
  const auto rules = format_rules(FormatKind::kGrammar,
                                  "# a list\nroot ::= \"[\" item (\",\" item)* \"]\"\n"
                                  "item ::= Num-ber |\n  'x' \"/\"? | \n"
                                  "Num-ber ::= [1-9] [0-9]{0,2} # digits\n");
  EXPECT_TRUE(allows(rules, reply("[12,x/,,x]")));
  EXPECT_FALSE(allows(rules, reply("[012]")));
  EXPECT_FALSE(allows(rules, reply("[1234]")));
  EXPECT_EQ(lark_from_ebnf("root ::= other").status().message(), "the rule \"other\" is used and not defined");
  EXPECT_EQ(lark_from_ebnf("root ::= \"a\nb\"").status().message(), "line 1: a string is not closed");
  EXPECT_FALSE(lark_from_ebnf("a ::= \"b\"").ok());
  EXPECT_FALSE(lark_from_ebnf("root ::= %").ok());
}

TEST(Grammar, ErrorsNameFieldAndKeyword) {
  const auto message = [](std::string_view schema) { return k3().check(schema_rules(schema)).message(); };
  EXPECT_EQ(message(R"({"type":"object","properties":{"a":{"not":{}}}})"),
            "f: /properties/a/not: the keyword \"not\" is not supported");
  EXPECT_NE(message(R"({"$ref":"#/$defs/x"})").find("$ref"), std::string::npos);
  EXPECT_NE(message(R"({"type":"string","pattern":"(["})").find("pattern"), std::string::npos);
  EXPECT_TRUE(k3().check(schema_rules(R"({"uniqueItems":false,"x-any":1,"unknown":{"not":1}})")).ok());
  EXPECT_FALSE(k3().check(format_rules(FormatKind::kRegex, "([")).ok());
  EXPECT_FALSE(k3().check(format_rules(FormatKind::kGrammar, "start: nothing")).ok());
  EXPECT_FALSE(k3().check(format_rules(FormatKind::kRegex, std::string("a\0b", 3))).ok());
}

TEST(Grammar, SchemaLimits) {
  std::string deep = R"({"type":"integer"})";
  for (int i = 0; i < 70; ++i) deep = R"({"type":"array","items":)" + deep + "}";
  EXPECT_FALSE(k3().check(schema_rules(deep)).ok());
  Json wide = {{"type", "object"}, {"description", std::string(300'000, 'x')}};
  EXPECT_FALSE(prepare_schema(wide).ok());
}

TEST(GrammarSchema, ReferencesBecomeLocal) {
  const auto prepared = [](std::string_view schema) { return prepare_schema(parse(schema))->dump(); };
  EXPECT_EQ(prepared(R"({"$id":"https://e.org/a/s.json","properties":{"x":{"$ref":"t.json#/properties/y"}},
                      "$defs":{"t":{"$id":"t.json","properties":{"y":{"type":"null"}}}}})"),
            R"({"properties":{"x":{"$ref":"#/$defs/r0"}},"$defs":{"r0":{"type":"null"}}})");
  EXPECT_EQ(prepared(R"({"items":{"$ref":"#name"},"definitions":{"q":{"$anchor":"name","type":"string"}}})"),
            R"({"items":{"$ref":"#/$defs/r0"},"$defs":{"r0":{"type":"string"}}})");
  EXPECT_EQ(prepared(R"({"properties":{"c":{"$ref":"#"}}})"),
            R"({"properties":{"c":{"$ref":"#/$defs/r0"}},"$defs":{"r0":{"properties":{"c":{"$ref":"#/$defs/r0"}}}}})");
  EXPECT_EQ(prepared(R"({"items":[{"type":"null"}],"additionalItems":false,"minimum":1,"exclusiveMinimum":true})"),
            R"({"prefixItems":[{"type":"null"}],"items":false,"exclusiveMinimum":1})");
  EXPECT_FALSE(prepare_schema(parse(R"({"$ref":"https://e.org/other.json"})")).ok());
}

TEST(Grammar, RawStringsOfTools) {
  const auto rules = tool_rules(R"({"type":"object","additionalProperties":false,"properties":{
    "p":{"type":"string","pattern":"^[a-z/]+\\d$","maxLength":4},"e":{"enum":["a\"b","c",3]},
    "u":{"type":["string","null"]},"l":{"anyOf":[{"const":"x"},{"type":"string","minLength":2}]}}})",
                                true);
  EXPECT_TRUE(allows(rules, call(argument("p", "string", "a/b1"))));
  EXPECT_FALSE(allows(rules, call(argument("p", "string", "abcd1"))));
  EXPECT_TRUE(allows(rules, call(argument("e", "string", "a\"b"))));
  EXPECT_TRUE(allows(rules, call(argument("e", "number", "3"))));
  EXPECT_FALSE(allows(rules, call(argument("e", "string", "3"))));
  EXPECT_TRUE(allows(rules, call(argument("u", "null", "null") + argument("l", "string", "x"))));
  EXPECT_FALSE(allows(rules, call(argument("l", "string", "y"))));
  EXPECT_FALSE(allows(rules, call(argument("u", "boolean", "true"))));
}

TEST(Grammar, UndeclaredKeys) {
  const auto rules = tool_rules(R"({"type":"object","properties":{"a":{"type":"integer"}},"required":["a","z"],
    "additionalProperties":{"type":["integer","string"]}})",
                                true);
  const std::string a = argument("a", "number", "1");
  const std::string z = argument("z", "string", "any");
  EXPECT_TRUE(allows(rules, call(z + a)));
  EXPECT_FALSE(allows(rules, call(a)));
  EXPECT_TRUE(allows(rules, call(a + z + argument("n&quot;w", "number", "2"))));
  EXPECT_FALSE(allows(rules, call(a + z + argument("k", "string", "") + argument("k", "string", ""))));
  EXPECT_FALSE(allows(rules, call(argument("a", "string", "1") + z)));  // only as declared
  EXPECT_FALSE(allows(rules, call(a + z + argument("k", "boolean", "true"))));
}

TEST(Grammar, ToolsThatCannotBeEnforced) {
  const std::string schema = R"({"type":"object","properties":{"a":{"not":{"type":"string"}}},"required":["a"]})";
  const Status strict = k3().check(tool_rules(schema, true));
  EXPECT_TRUE(strict.message().starts_with("tools: tool \"f\"")) << strict.message();
  EXPECT_NE(strict.message().find("not"), std::string::npos);
  EXPECT_TRUE(allows(tool_rules(schema, false), call(argument("a", "string", "x"))));
}

TEST(Grammar, CopiesAreIndependent) {
  auto constraint = *k3().compile(schema_rules(R"({"type":"array","items":{"type":"integer"}})"));
  EXPECT_TRUE(allows(*constraint, k3_bytes(), "[1,"));
  auto copy = constraint->clone();
  EXPECT_TRUE(allows(*copy, k3_bytes(), reply("2]")));
  EXPECT_TRUE(allows(*constraint, k3_bytes(), reply("33,4]")));
}

TEST(Grammar, TurnsOfTheK2Family) {
  const GrammarCompiler compiler(kDialectK2Thinking, k2_bytes());
  GrammarRules rules = tool_rules(R"({"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]})", true);
  const auto check = [&](std::string_view text) { return allows(**compiler.compile(rules), k2_bytes(), text); };
  const std::string section =
      "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"a\":1}"
      "<|tool_call_end|><|tool_calls_section_end|><|im_end|>";
  EXPECT_TRUE(check("<think>x</think>text" + section));
  EXPECT_TRUE(check("plain<|im_end|>"));
  EXPECT_FALSE(check("<|tool_call_begin|>functions.f:0"));
  EXPECT_FALSE(check("<|tool_calls_section_begin|><|tool_call_begin|>functions.g:0"));
  EXPECT_FALSE(check("<|tool_calls_section_begin|><|tool_calls_section_end|>"));
  rules.tool_choice.kind = ToolChoiceKind::kRequired;
  EXPECT_FALSE(check("plain<|im_end|>"));
  rules.tool_choice.kind = ToolChoiceKind::kNone;
  EXPECT_FALSE(check(section));
  rules = schema_rules(R"({"type":"integer"})");
  EXPECT_TRUE(check("12<|im_end|>"));
  EXPECT_FALSE(check("x<|im_end|>"));
}

TEST(LiteralMatcher, NumbersAndPrefixes) {
  const auto texts = std::make_shared<const std::vector<std::string>>(
      std::vector<std::string>{std::string("ab") + LiteralMatcher::kCount + "\"", "abc"});
  LiteralMatcher count(texts);
  EXPECT_TRUE(count.accept("ab1"));
  EXPECT_TRUE(count.accept("07"));
  EXPECT_EQ(count.complete(), -1);
  EXPECT_TRUE(count.accept("\""));
  EXPECT_EQ(count.complete(), 0);
  EXPECT_FALSE(LiteralMatcher(texts).accept("ab0"));
  LiteralMatcher other(texts);
  EXPECT_TRUE(other.accept("abc"));
  EXPECT_EQ(other.complete(), 1);
  EXPECT_FALSE(other.accept("c"));
}

TEST(ThinkingLimit, ClosesTheChannelAtItsBudget) {
  const auto limit = [](std::int64_t budget, Channel start = Channel::kThink) {
    return limit_thinking(kDialectK3, k3_bytes(), start, budget, nullptr);
  };
  // Bytes are tokens: the closing marker is forced once, and nothing is forced after it.
  EXPECT_TRUE(allows(*limit(4), k3_bytes(), "abcd<|close|>think<|sep|><|open|>response<|sep|>long text<|close|>"));
  EXPECT_FALSE(allows(*limit(4), k3_bytes(), "abcde"));
  EXPECT_FALSE(allows(*limit(4), k3_bytes(), "abcd<|open|>"));
  EXPECT_TRUE(allows(*limit(0), k3_bytes(), "<|close|>think<|sep|>x"));
  EXPECT_FALSE(allows(*limit(0), k3_bytes(), "x"));
  // Thinking that ends by itself, and answers without thinking, are left alone.
  EXPECT_TRUE(allows(*limit(4), k3_bytes(), "ab<|close|>think<|sep|><|open|>response<|sep|>long text"));
  EXPECT_TRUE(allows(*limit(4), k3_bytes(), "ab<|open|>response<|sep|>long text"));
  EXPECT_TRUE(allows(*limit(0, Channel::kResponse), k3_bytes(), "long text"));
  const auto k2 = [](Channel start) { return limit_thinking(kDialectK2Thinking, k2_bytes(), start, 2, nullptr); };
  EXPECT_TRUE(allows(*k2(Channel::kResponse), k2_bytes(), "<think>ab</think>long text"));
  EXPECT_FALSE(allows(*k2(Channel::kResponse), k2_bytes(), "<think>abc"));
  EXPECT_TRUE(allows(*k2(Channel::kResponse), k2_bytes(), "long text"));
}

// The grammar beneath goes on where the thinking was cut.
TEST(ThinkingLimit, KeepsTheGrammarBeneath) {
  GrammarRules rules = format_rules(FormatKind::kRegex, "[0-9]+");
  rules.start = Channel::kThink;
  for (const char* answer : {"12", "x"}) {
    auto inner = k3().compile(rules);
    ASSERT_TRUE(inner.ok());
    const auto limited = limit_thinking(kDialectK3, k3_bytes(), Channel::kThink, 2, std::move(*inner));
    const auto copy = limited->clone();
    const std::string text = std::string("ab<|close|>think<|sep|><|open|>response<|sep|>") + answer;
    EXPECT_EQ(allows(*copy, k3_bytes(), text), answer[0] == '1');
  }
}

}  // namespace
}  // namespace perigee
