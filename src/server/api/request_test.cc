#include "server/api/request.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "server/api/response_store.h"

namespace perigee::api {
namespace {

ApiConfig config() {
  ApiConfig out;
  out.models = {"m"};
  out.context_tokens = 4096;
  return out;
}

// Members may stand in any order.
nlohmann::json unordered(const Json& value) {
  return nlohmann::json::parse(value.dump());
}

TEST(ChatRequest, MapsBodiesToRendererArguments) {
  const auto vectors = read_json_file(std::string(PERIGEE_SOURCE_DIR) + "/tests/data/text/render.json");
  ASSERT_TRUE(vectors.ok());
  int cases = 0;
  for (const Json& item : (*vectors)["cases"]) {
    if (!item["level"].get_ref<const std::string&>().starts_with("api")) continue;
    ApiConfig mode = config();
    if (item["level"] == "api_lenient") mode.mode = ApiMode::kLenient;
    Json body = item["request"];
    body["model"] = "m";
    const auto request = parse_chat_completions(body, mode);
    ASSERT_TRUE(request.ok()) << item["id"] << request.error().message;
    Json expected = item["renderer_request"];
    EXPECT_EQ(unordered(*request->render), unordered(expected)) << item["id"];
    ++cases;
  }
  EXPECT_EQ(cases, 34);
}

TEST(ChatRequest, ImagesLeaveTheDocument) {
  const Json body = *parse_json(R"({"model":"m","messages":[{"role":"user","content":[
      {"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgoAAA=="}}]}]})");
  const auto request = parse_chat_completions(body, config());
  ASSERT_TRUE(request.ok()) << request.error().message;
  ASSERT_EQ(request->images.size(), 1);
  EXPECT_TRUE(request->images[0].bytes.starts_with("\x89PNG"));
  EXPECT_EQ(request->images[0].param, "messages[0].content[1].image_url.url");
  EXPECT_EQ((*request->render)["messages"][0]["content"][1]["image_url"]["url"], "");
}

TEST(ChatRequest, OutputFormatExtensions) {
  const auto parse = [](const std::string& extra) {
    return parse_chat_completions(
        *parse_json(R"({"model":"m","messages":[{"role":"user","content":"x"}],)" + extra + "}"), config());
  };
  EXPECT_EQ(parse(R"("guided_regex":"[a-z]+")")->format.kind, FormatKind::kRegex);
  EXPECT_EQ(parse(R"("guided_choice":["a.b","c"])")->format.text, R"((a\.b|c))");
  EXPECT_EQ(parse(R"("ebnf":"root ::= \"a\"")")->format.kind, FormatKind::kGrammar);
  EXPECT_EQ(parse(R"("structured_outputs":{"json":{"type":"object"}})")->format.kind, FormatKind::kJsonSchema);
  EXPECT_EQ(parse(R"("guided_json":"{\"type\":\"array\"}")")->format.kind, FormatKind::kJsonSchema);
  EXPECT_EQ(parse(R"("regex":"a","ebnf":"b")").error().param, "ebnf");
  EXPECT_EQ(parse(R"("response_format":{"type":"json_object"},"guided_regex":"a")").error().param, "guided_regex");
}

TEST(Messages, MapsBlocks) {
  const Json body = *parse_json(R"({"model":"m","max_tokens":5,"system":[{"type":"text","text":"S"}],"messages":[
    {"role":"user","content":"hi"},
    {"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"s"},{"type":"text","text":"a"},
      {"type":"tool_use","id":"u1","name":"f","input":{"x":1}}]},
    {"role":"user","content":[{"type":"text","text":"next"},{"type":"tool_result","tool_use_id":"u1","content":"r"}]}],
    "tools":[{"name":"f","input_schema":{"type":"object"}},{"type":"web_search_20250305","name":"web_search"}],
    "tool_choice":{"type":"any","disable_parallel_tool_use":true},"output_config":{"effort":"medium"},
    "stop_sequences":["Z"],"thinking":{"type":"adaptive"}})");
  const auto request = parse_messages(body, config());
  ASSERT_TRUE(request.ok()) << request.error().message;
  const Json expected = *parse_json(R"([{"role":"system","content":[{"type":"text","text":"S"}]},
    {"role":"user","content":"hi"},
    {"role":"assistant","content":"a","reasoning_content":"t",
     "tool_calls":[{"id":"u1","type":"function","function":{"name":"f","arguments":{"x":1}}}]},
    {"role":"tool","tool_call_id":"u1","content":"r"},
    {"role":"user","content":[{"type":"text","text":"next"}]}])");
  EXPECT_EQ((*request->render)["messages"], expected);
  EXPECT_EQ(request->tools->size(), 1);
  EXPECT_EQ(request->tool_choice.kind, ToolChoiceKind::kRequired);
  EXPECT_FALSE(request->parallel_tool_calls);
  EXPECT_EQ((*request->render)["thinking_effort"], "high");
  EXPECT_EQ(request->stop, std::vector<std::string>{"Z"});
}

TEST(Responses, MergesItemsAndContinues) {
  ResponseStore store(1 << 20, 10);
  Json history = *parse_json(R"([{"role":"user","content":"q"},{"role":"assistant","content":"a"}])");
  store.put("key", "resp_1", history, "{}");
  const Json body = *parse_json(R"({"model":"m","previous_response_id":"resp_1","instructions":"I","input":[
    {"role":"user","content":[{"type":"input_text","text":"again"}]},
    {"type":"reasoning","id":"rs","summary":[{"type":"summary_text","text":"t"}]},
    {"type":"message","role":"assistant","content":[{"type":"output_text","text":"x"}]},
    {"type":"function_call","call_id":"c1","name":"f","arguments":"{}"},
    {"type":"function_call","call_id":"c2","name":"g","arguments":"{}"},
    {"type":"function_call_output","call_id":"c1","output":"1"}],
    "tools":[{"type":"function","name":"f","parameters":{"type":"object"}}],"tool_choice":{"type":"function","name":"f"},
    "text":{"format":{"type":"json_schema","name":"n","schema":{"type":"object"}}}})");
  const auto request = parse_responses(body, config(), &store, "key");
  ASSERT_TRUE(request.ok()) << request.error().message;
  const Json& messages = (*request->render)["messages"];
  ASSERT_EQ(messages.size(), 6);
  EXPECT_EQ(messages[0]["content"], "I");
  EXPECT_EQ(messages[4]["reasoning_content"], "t");
  EXPECT_EQ(messages[4]["content"], "x");
  EXPECT_EQ(messages[4]["tool_calls"].size(), 2);
  EXPECT_EQ(messages[5]["role"], "tool");
  EXPECT_EQ(request->history->size(), 5);  // instructions are not carried over
  EXPECT_FALSE(request->thinking);         // a named choice
  EXPECT_EQ((*request->render)["response_format"]["json_schema"]["name"], "n");
  EXPECT_EQ(parse_responses(body, config(), &store, "other").error().param, "previous_response_id");
}

TEST(ResponseStore, IsBounded) {
  ResponseStore store(1 << 20, 2);
  for (const char* id : {"a", "b"}) store.put("t", id, Json::array(), id);
  EXPECT_NE(store.body("t", "a"), nullptr);  // "b" is now the oldest
  store.put("t", "c", Json::array(), "c");
  EXPECT_EQ(store.body("t", "b"), nullptr);
  EXPECT_EQ(*store.body("t", "a"), "a");
  store.put("t", "big", Json::array(), std::string(2 << 20, 'x'));
  EXPECT_EQ(store.body("t", "big"), nullptr);
  EXPECT_TRUE(store.erase("t", "a"));
  EXPECT_FALSE(store.erase("t", "a"));
  EXPECT_TRUE(store.erase("t", "c"));
  EXPECT_EQ(store.bytes(), 0);
}

TEST(Tokenize, BothShapes) {
  EXPECT_TRUE(parse_tokenize(*parse_json(R"({"content":"a","with_pieces":true})"), config())->llama_shape);
  const auto vllm = parse_tokenize(*parse_json(R"({"model":"m","prompt":"a","return_token_strs":true})"), config());
  EXPECT_FALSE(vllm->llama_shape);
  EXPECT_TRUE(vllm->with_strings);
  EXPECT_NE(parse_tokenize(*parse_json(R"({"messages":[{"role":"user","content":"a"}]})"), config())->chat, nullptr);
  EXPECT_EQ(parse_detokenize(*parse_json(R"({"tokens":[1,-2]})"), config()).error().param, "tokens");
}

}  // namespace
}  // namespace perigee::api
