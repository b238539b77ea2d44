// Whole servers with the scripted engine: what a client sees on the wire. The official clients are in tests/e2e.
#include "server/server.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/json.h"
#include "raw_client.h"
#include "scripted_engine.h"
#include "server/auth.h"
#include "server/metrics.h"
#include "server/stop_text.h"

namespace perigee::server {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr const char* kScript = R"([
  {"role": "tool", "think": "Done.", "content": "Report: {last}"},
  {"role": "user", "last": "weather", "declares": "get_weather", "think": "Need it.",
   "calls": [{"name": "get_weather", "arguments": {"city": "Paris"}}]},
  {"role": "user", "last": "long", "think": "Long.", "content": "{words:2000}"},
  {"role": "user", "last": "Hello", "think": "A greeting.", "content": "Hello there!"}
])";

class ServerTest : public testing::Test {
 protected:
  void Start(milliseconds step = milliseconds(0)) {
    scripted_.rules = *parse_script(kScript);
    scripted_.step = step;
    engine_ = std::make_unique<ScriptedEngine>(tokenizer_, scripted_);
    auto started = Server::start(options_);
    ASSERT_TRUE(started.ok()) << started.status().message();
    server_ = std::move(*started);
  }
  void Serve() { server_->serve({engine_.get(), tokenizer_, &kDialectK3, "kimi-k3", 0}); }
  std::string Get(const std::string& path, const std::string& headers = "", const std::string& method = "GET") {
    RawClient client(server_->port());
    return client.exchange(fmt::format("{} {} HTTP/1.1\r\nHost: h\r\n{}\r\n", method, path, headers));
  }
  static std::string PostText(const std::string& path, const std::string& body, const std::string& headers = "") {
    return fmt::format("POST {} HTTP/1.1\r\nHost: h\r\n{}Content-Length: {}\r\n\r\n{}", path, headers, body.size(),
                       body);
  }
  std::string Post(const std::string& path, const std::string& body, const std::string& headers = "") {
    RawClient client(server_->port());
    return client.exchange(PostText(path, body, headers));
  }
  static std::string Chat(const std::string& text, const std::string& more = "") {
    return R"({"model":"kimi-k3","messages":[{"role":"user","content":")" + text + "\"}]" + more + "}";
  }
  static Json Parsed(const std::string& response) {
    auto parsed = parse_json(body_of(response));
    EXPECT_TRUE(parsed.ok()) << response;
    return parsed.ok() ? *parsed : Json();
  }
  bool WaitFor(const std::function<bool()>& condition, int limit_ms = 5000) {
    for (int i = 0; i < limit_ms / 5; ++i) {
      if (condition()) return true;
      std::this_thread::sleep_for(milliseconds(5));
    }
    return condition();
  }

  // Bytes as tokens: nothing here depends on the vocabulary, and the released one takes a second to set up.
  const Tokenizer tokenizer_ = Tokenizer::plain_bytes(SpecialTable::kK3);
  ServerOptions options_;
  ScriptedOptions scripted_;
  std::unique_ptr<ScriptedEngine> engine_;
  std::unique_ptr<Server> server_;  // destroyed before the engine
};

TEST_F(ServerTest, HealthTellsLoadingFromReadyFromStopping) {
  Start();
  EXPECT_EQ(status_of(Get("/health/live")), 200);
  EXPECT_EQ(status_of(Get("/health")), 503);
  EXPECT_EQ(status_of(Get("/v1/models")), 503);
  EXPECT_EQ(status_of(Get("/metrics")), 200);
  const std::string early = Post("/v1/chat/completions", Chat("Hello"));
  EXPECT_EQ(status_of(early), 503);
  EXPECT_NE(early.find("Retry-After"), std::string::npos);
  Serve();
  EXPECT_EQ(status_of(Get("/health")), 200);
  EXPECT_EQ(status_of(Get("/health/ready")), 200);
  EXPECT_EQ(Parsed(Get("/v1/models"))["data"][0]["id"], "kimi-k3");
  EXPECT_EQ(status_of(Get("/v1/models/kimi-k3")), 200);
  EXPECT_EQ(status_of(Get("/v1/models/other")), 404);
}

TEST_F(ServerTest, ChatAnswersWithUsageAndCacheReport) {
  Start();
  Serve();
  const std::string response = Post("/v1/chat/completions", Chat("Hello"));
  ASSERT_EQ(status_of(response), 200) << response;
  const Json body = Parsed(response);
  // The stub that opens the first channel is computed and not counted.
  const std::int64_t prompt = body["usage"]["prompt_tokens"].get<std::int64_t>() + 3;
  EXPECT_NE(response.find(fmt::format("X-Perigee-Cache: hit=0; prompt={0}; common=0; blocks=0; compute={0}; "
                                      "reason=nothing_stored",
                                      prompt)),
            std::string::npos)
      << response;
  EXPECT_EQ(body["choices"][0]["message"]["content"], "Hello there!");
  EXPECT_EQ(body["choices"][0]["message"]["reasoning_content"], "A greeting.");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(Parsed(Get("/debug/cache"))["recent"][0]["reason"], "nothing_stored");
}

TEST_F(ServerTest, StreamGivesTheSameAsNoStream) {
  Start();
  Serve();
  for (const std::string path : {"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"}) {
    std::string body = Chat("Hello", R"(,"max_tokens":64)");
    if (path == "/v1/completions")
      body = R"({"model":"kimi-k3","prompt":"Hello","max_tokens":64)"
             "}";
    if (path == "/v1/responses") body = R"({"model":"kimi-k3","input":"Hello","max_output_tokens":64})";
    EXPECT_EQ(status_of(Post(path, body)), 200) << path;
    body.insert(body.size() - 1, R"(,"stream":true)");
    RawClient client(server_->port());
    ASSERT_TRUE(client.send(PostText(path, body)));
    const std::string stream = client.read_until("\r\n0\r\n\r\n");
    EXPECT_EQ(status_of(stream), 200) << path;
    EXPECT_NE(stream.find("Content-Type: text/event-stream"), std::string::npos) << path;
    EXPECT_NE(stream.find("X-Perigee-Cache:"), std::string::npos) << path;
    EXPECT_TRUE(stream.ends_with("\r\n0\r\n\r\n")) << path << stream;
    EXPECT_EQ(stream.find("<|"), std::string::npos);
  }
}

// The next turn of a conversation finds the whole answer as it was sampled.
TEST_F(ServerTest, ReplayKeepsThePrefixExact) {
  Start();
  Serve();
  const std::string tools =
      R"(,"tools":[{"type":"function","function":{"name":"get_weather","parameters":{"type":"object","properties":{"city":{"type":"string"}}}}}])";
  const Json first = Parsed(Post("/v1/chat/completions", Chat("weather", tools)));
  Json message = first["choices"][0]["message"];
  ASSERT_EQ(first["choices"][0]["finish_reason"], "tool_calls") << first.dump();
  for (const bool with_reasoning : {true, false}) {
    if (!with_reasoning) message.erase("reasoning_content");
    Json next = *parse_json(Chat("weather", tools));
    next["messages"].push_back(message);
    next["messages"].push_back(
        {{"role", "tool"}, {"tool_call_id", message["tool_calls"][0]["id"]}, {"content", "mild"}});
    const Json second = Parsed(Post("/v1/chat/completions", next.dump()));
    EXPECT_EQ(second["choices"][0]["message"]["content"], "Report: mild");
    if (!with_reasoning) continue;
    const std::int64_t cached = second["usage"]["prompt_tokens_details"]["cached_tokens"];
    EXPECT_GE(cached, first["usage"]["prompt_tokens"].get<std::int64_t>() +
                          first["usage"]["completion_tokens"].get<std::int64_t>());
  }
}

TEST_F(ServerTest, BadRequestsGet4xxAndTouchNobody) {
  Start(milliseconds(1));
  Serve();
  RawClient neighbour(server_->port());
  ASSERT_TRUE(neighbour.send(PostText("/v1/chat/completions", Chat("Hello", R"(,"stream":true)"))));
  struct Case {
    std::string path;
    std::string body;
    int status;
  };
  const std::vector<Case> cases = {
      {"/v1/chat/completions", "", 400},
      {"/v1/chat/completions", "{", 400},
      {"/v1/chat/completions", "[1]", 400},
      {"/v1/chat/completions", std::string(5000, '['), 400},
      {"/v1/chat/completions", "{\"model\":\"kimi-k3\",\"messages\":\"\xff\"}", 400},
      {"/v1/chat/completions", R"({"model":"kimi-k3"})", 400},
      {"/v1/chat/completions", Chat("x", R"(,"temperature":9)"), 400},
      {"/v1/chat/completions", R"({"model":"nope","messages":[{"role":"user","content":"x"}]})", 404},
      {"/v1/completions", R"({"model":"kimi-k3"})", 400},
      {"/v1/responses", R"({"model":"kimi-k3","input":7})", 400},
      {"/v1/responses", R"({"model":"kimi-k3","input":"x","previous_response_id":"resp_none"})", 400},
      {"/v1/messages", R"({"model":"kimi-k3","messages":[]})", 400},
      {"/tokenize", "{}", 400},
      {"/detokenize", R"({"tokens":[-5]})", 400},
      {"/v1/embeddings", "{}", 404},
      {"/health", "{}", 405},
  };
  for (const auto& [path, body, status] : cases) {
    const std::string response = Post(path, body);
    if (path == "/v1/responses" && body.find("resp_none") != std::string::npos) {
      EXPECT_TRUE(status_of(response) == 400 || status_of(response) == 404) << response;
    } else {
      EXPECT_EQ(status_of(response), status) << path << body.substr(0, 80) << response;
    }
    const Json error = Parsed(response);
    EXPECT_TRUE(error["error"]["message"].is_string()) << response;
  }
  const std::string stream = neighbour.read_until("data: [DONE]");
  EXPECT_NE(stream.find("[DONE]"), std::string::npos);
}

TEST_F(ServerTest, ClientsThatLeaveFreeTheEngine) {
  Start(milliseconds(2));
  Serve();
  for (const std::string more : {R"(,"stream":true)", "", R"(,"stream":true,"n":3)"}) {
    RawClient client(server_->port());
    ASSERT_TRUE(client.send(PostText("/v1/chat/completions", Chat("long", more))));
    ASSERT_TRUE(WaitFor([&] { return engine_->stats().running == 1; }));
    if (!more.empty()) {
      EXPECT_FALSE(client.read_until("data: ").empty());
    }
    client.close();
    const auto left = std::chrono::steady_clock::now();
    EXPECT_TRUE(WaitFor([&] { return engine_->stats().running == 0; })) << more;
    EXPECT_LT(std::chrono::steady_clock::now() - left, milliseconds(1000));
  }
  EXPECT_TRUE(WaitFor([&] {
    return Get("/metrics").find(R"(vllm:request_success_total{finished_reason="abort",model_name="kimi-k3"} 3)") !=
           std::string::npos;
  }));
}

TEST_F(ServerTest, KeysAreTenants) {
  options_.api_keys = {"first-key-1", "second-key-2"};
  options_.cors_origins = {"https://good.example"};
  Start();
  Serve();
  EXPECT_EQ(status_of(Get("/health")), 200);
  for (const std::string path : {"/v1/models", "/metrics", "/debug/cache", "/nowhere"}) {
    EXPECT_EQ(status_of(Get(path)), 401) << path;
    EXPECT_EQ(status_of(Get(path, "Authorization: Bearer first-key-\r\n")), 401) << path;
    EXPECT_EQ(status_of(Get(path, "Authorization: Bearer \r\n")), 401) << path;
  }
  for (const std::string path : {"/tokenize", "/v1/messages"}) EXPECT_EQ(status_of(Post(path, "{}")), 401) << path;
  EXPECT_EQ(status_of(Get("/v1/models", "Authorization: Bearer first-key-1\r\n")), 200);
  EXPECT_EQ(status_of(Get("/v1/models", "authorization: bearer second-key-2\r\n")), 200);
  EXPECT_EQ(status_of(Get("/metrics", "x-api-key: second-key-2\r\n")), 200);
  EXPECT_NE(Get("/v1/messages", "x-api-key: bad\r\n", "POST").find("authentication_error"), std::string::npos);
  // A stored response belongs to the key that made it.
  const Json mine =
      Parsed(Post("/v1/responses", R"({"model":"kimi-k3","input":"Hello"})", "x-api-key: first-key-1\r\n"));
  const std::string path = "/v1/responses/" + mine["id"].get<std::string>();
  EXPECT_EQ(status_of(Get(path, "x-api-key: first-key-1\r\n")), 200);
  EXPECT_EQ(status_of(Get(path, "x-api-key: second-key-2\r\n")), 404);
  EXPECT_EQ(status_of(Get(path, "x-api-key: second-key-2\r\n", "DELETE")), 404);
  EXPECT_EQ(status_of(Get(path, "x-api-key: first-key-1\r\n", "DELETE")), 200);
  EXPECT_EQ(status_of(Get(path, "x-api-key: first-key-1\r\n")), 404);
  EXPECT_TRUE(Parsed(Get("/debug/cache", "x-api-key: second-key-2\r\n"))["recent"].empty());

  const std::string preflight = Get("/v1/models", "Origin: https://good.example\r\n", "OPTIONS");
  EXPECT_EQ(status_of(preflight), 204);
  EXPECT_NE(preflight.find("Access-Control-Allow-Origin: https://good.example"), std::string::npos);
  EXPECT_EQ(Get("/health", "Origin: https://bad.example\r\n").find("Access-Control-Allow-Origin"), std::string::npos);
}

// The whole cache tree is for admin keys, and for a server with one key at most.
TEST_F(ServerTest, CacheTreeIsForAdmins) {
  options_.api_keys = {"first-key-1", "second-key-2"};
  options_.admin_keys = {"admin-key-3"};
  Start();
  Serve();
  EXPECT_TRUE(Parsed(Get("/debug/cache", "x-api-key: first-key-1\r\n"))["tree"].is_null());
  EXPECT_TRUE(Parsed(Get("/debug/cache", "x-api-key: admin-key-3\r\n"))["tree"].is_object());
}

TEST_F(ServerTest, WithoutCorsThereAreNoCorsHeaders) {
  Start();
  Serve();
  EXPECT_EQ(Get("/health", "Origin: https://x.example\r\n").find("Access-Control"), std::string::npos);
  EXPECT_EQ(status_of(Get("/v1/models", "Origin: https://x.example\r\n", "OPTIONS")), 405);
}

TEST_F(ServerTest, ThinkingEndsAtItsBudget) {
  Start();
  Serve();
  // The scripted engine reports a token that the constraint forbids: "A greeting." is 11 tokens (bytes) here.
  for (const auto& [path, budget] : {std::pair("/v1/chat/completions", R"(,"thinking_token_budget":)"),
                                     std::pair("/v1/messages", R"(,"thinking":{"type":"enabled","budget_tokens":)")}) {
    const std::string end = std::string(budget).find('{') == std::string::npos ? "" : "}";
    const std::string more = R"(,"max_tokens":64)" + std::string(budget);
    EXPECT_EQ(status_of(Post(path, Chat("Hello", more + "11" + end))), 200) << path;
    const std::string cut = Post(path, Chat("Hello", more + "10" + end));
    EXPECT_EQ(status_of(cut), 500) << cut;
    EXPECT_NE(cut.find("at 10 is forbidden"), std::string::npos) << cut;
  }
}

TEST_F(ServerTest, RunningResponsesCanBeCancelled) {
  options_.api_keys = {"first-key-1", "second-key-2"};
  Start(milliseconds(2));
  Serve();
  RawClient client(server_->port());
  const std::string key = "x-api-key: first-key-1\r\n";
  ASSERT_TRUE(client.send(PostText("/v1/responses", R"({"model":"kimi-k3","input":"long","stream":true})", key)));
  std::string stream = client.read_until("response.output_text.delta");
  const std::size_t at = stream.find("resp_");
  ASSERT_NE(at, std::string::npos);
  const std::string id = stream.substr(at, stream.find('"', at) - at);
  const std::string path = "/v1/responses/" + id + "/cancel";
  EXPECT_EQ(status_of(Get(path, "x-api-key: second-key-2\r\n", "POST")), 404);
  EXPECT_EQ(Parsed(Get(path, key, "POST"))["status"], "cancelled");
  stream = client.read_until("\r\n0\r\n\r\n");
  EXPECT_NE(stream.find("event: response.incomplete"), std::string::npos);
  EXPECT_NE(stream.find(R"("status":"cancelled")"), std::string::npos);
  EXPECT_TRUE(WaitFor([&] { return engine_->stats().running == 0; }));
  // It is stored as far as it came; cancelling again changes nothing.
  EXPECT_EQ(Parsed(Get("/v1/responses/" + id, key))["status"], "cancelled");
  EXPECT_EQ(Parsed(Get(path, key, "POST"))["status"], "cancelled");
  EXPECT_EQ(status_of(Get("/v1/responses/resp_none/cancel", key, "POST")), 404);
  EXPECT_EQ(status_of(Get(path, key)), 405);
}

TEST_F(ServerTest, ResponsesGiveLogprobs) {
  Start();
  Serve();
  const std::string body =
      R"({"model":"kimi-k3","input":"Hello","top_logprobs":2,"max_tool_calls":3,"include":["message.output_text.logprobs"]})";
  const Json whole = Parsed(Post("/v1/responses", body));
  const Json& part = whole["output"][1]["content"][0];
  EXPECT_EQ(part["text"], "Hello there!");
  std::string spelled;
  for (const Json& token : part["logprobs"]) {
    spelled += token["token"].get<std::string>();
    EXPECT_EQ(token["top_logprobs"].size(), 2U);
  }
  EXPECT_EQ(spelled, "Hello there!");
  EXPECT_EQ(whole["max_tool_calls"], 3);
  RawClient client(server_->port());
  std::string streaming = body;
  streaming.insert(streaming.size() - 1, R"(,"stream":true)");
  ASSERT_TRUE(client.send(PostText("/v1/responses", streaming)));
  const std::string stream = client.read_until("\r\n0\r\n\r\n");
  EXPECT_NE(stream.find(R"("delta":"H","logprobs":[{"token":"H")"), std::string::npos) << stream;
}

TEST_F(ServerTest, TooManyRequestsGet429) {
  options_.max_requests = 2;
  Start(milliseconds(5));
  Serve();
  RawClient one(server_->port());
  RawClient two(server_->port());
  one.send(PostText("/v1/chat/completions", Chat("long")));
  two.send(PostText("/v1/chat/completions", Chat("long")));
  ASSERT_TRUE(WaitFor([&] { return engine_->stats().running == 2; }));
  const std::string third = Post("/v1/chat/completions", Chat("Hello"));
  EXPECT_EQ(status_of(third), 429);
  EXPECT_NE(third.find("Retry-After"), std::string::npos);
  EXPECT_EQ(status_of(Get("/health")), 200);
}

TEST_F(ServerTest, DrainEndsRunningAndRefusesNew) {
  Start(milliseconds(1));
  Serve();
  RawClient busy(server_->port());
  RawClient open(server_->port());
  EXPECT_EQ(status_of(open.exchange("GET /health HTTP/1.1\r\nHost: h\r\n\r\n")), 200);
  busy.send(PostText("/v1/chat/completions", Chat("Hello", R"(,"stream":true)")));
  ASSERT_TRUE(WaitFor([&] { return engine_->stats().running == 1; }));
  server_->drain(5);
  EXPECT_NE(busy.read_all().find("[DONE]"), std::string::npos);
  EXPECT_TRUE(open.closed_within(1000));
}

// As Claude Code sends them.
TEST_F(ServerTest, MessagesTakesSystemTurnsInTheMiddle) {
  Start();
  Serve();
  const std::string body = R"({"model":"kimi-k3","max_tokens":64,"messages":[{"role":"user","content":"Hello"},)"
                           R"({"role":"system","content":[{"type":"text","text":"Agents: none"}]}]})";
  EXPECT_EQ(Parsed(Post("/v1/messages", body))["content"][1]["text"], "Hello there!");
  EXPECT_EQ(status_of(Post("/v1/messages", R"({"model":"kimi-k3","max_tokens":64,"messages":[)"
                                           R"({"role":"system","content":"x"},{"role":"user","content":"Hello"}]})")),
            400);
}

TEST_F(ServerTest, TokenizeRoundTrip) {
  Start();
  Serve();
  const Json tokens = Parsed(Post("/tokenize", R"({"model":"kimi-k3","prompt":"naïve café 🚀"})"));
  EXPECT_EQ(tokens["count"].get<std::size_t>(), tokens["tokens"].size());
  const Json text = Parsed(Post("/detokenize", Json{{"tokens", tokens["tokens"]}}.dump()));
  EXPECT_EQ(text["prompt"], "naïve café 🚀");
  const Json answer = Parsed(Post("/v1/messages", Chat("Hello", R"(,"max_tokens":9)")));
  EXPECT_EQ(Parsed(Post("/v1/messages/count_tokens", Chat("Hello")))["input_tokens"], answer["usage"]["input_tokens"]);
}

TEST_F(ServerTest, LogsHaveNoPrompts) {
  char* text = nullptr;
  std::size_t size = 0;
  options_.access_log = ::open_memstream(&text, &size);
  Start();
  Serve();
  EXPECT_EQ(status_of(Post("/v1/chat/completions", Chat("Hello secret"), "X-Request-Id: id-7\r\n")), 200);
  server_->drain(5);  // the line is written behind the last byte of the reply
  server_.reset();
  std::fclose(options_.access_log);
  const std::string log(text, size);
  std::free(text);
  const auto line = parse_json(log.substr(0, log.find('\n')));
  ASSERT_TRUE(line.ok()) << log;
  EXPECT_EQ((*line)["request_id"], "id-7");
  EXPECT_EQ((*line)["status"], 200);
  EXPECT_EQ((*line)["finish"], "stop");
  EXPECT_GT((*line)["completion_tokens"], 5);
  EXPECT_EQ(log.find("secret"), std::string::npos);
}

TEST(ApiKeys, FilesAreChecked) {
  const auto keys = parse_api_keys("# team\n\n  key-one-1  \r\nkey-two-2\n", "keys.txt");
  ASSERT_TRUE(keys.ok());
  EXPECT_EQ(*keys, (std::vector<std::string>{"key-one-1", "key-two-2"}));
  EXPECT_NE(parse_api_keys("good-key-1\nshort\n", "keys.txt").status().message().find("keys.txt line 2"),
            std::string::npos);
  EXPECT_FALSE(parse_api_keys("# nothing\n", "keys.txt").ok());
}

TEST(StopText, SameAtEverySplit) {
  const std::string text = "abcabd END xyz";
  for (const std::vector<std::string>& stops :
       {std::vector<std::string>{"abd", "END"}, {"nope"}, {"z"}, {"d END", "END"}, {"abcabdx", "cab"}}) {
    std::string expected;
    std::string expected_match;
    for (std::size_t split = 0; split <= text.size(); ++split) {
      for (const bool bytewise : {false, true}) {
        StopText stop(stops, false);
        std::string out;
        if (bytewise) {
          for (const char c : text) out += stop.push(std::string_view(&c, 1));
        } else {
          out = stop.push(text.substr(0, split));  // not one expression: the operands of + have no order
          out += stop.push(text.substr(split));
        }
        out += stop.finish();
        if (split == 0 && !bytewise) {
          expected = out;
          expected_match = stop.match();
        }
        EXPECT_EQ(out, expected);
        EXPECT_EQ(stop.match(), expected_match);
      }
    }
  }
  StopText stop({"END", "d END"}, true);
  EXPECT_EQ(stop.push(text), "abcabd END");
  EXPECT_EQ(stop.match(), "d END");
}

TEST(Metrics, StepSizesAreAHistogram) {
  EngineStats stats;
  for (const std::int64_t size : {1, 1, 8, 9, 16384, 20000}) stats.step_sizes.record(size);
  const std::string text = Metrics("kimi-k3").text(&stats, {});
  const auto has = [&](std::string_view line) { return text.find(line) != std::string::npos; };
  EXPECT_TRUE(has(R"(vllm:iteration_tokens_total_bucket{model_name="kimi-k3",le="1"} 2)"));
  EXPECT_TRUE(has(R"(vllm:iteration_tokens_total_bucket{model_name="kimi-k3",le="8"} 3)"));
  EXPECT_TRUE(has(R"(vllm:iteration_tokens_total_bucket{model_name="kimi-k3",le="16"} 4)"));
  EXPECT_TRUE(has(R"(vllm:iteration_tokens_total_bucket{model_name="kimi-k3",le="16384"} 5)"));
  EXPECT_TRUE(has(R"(vllm:iteration_tokens_total_bucket{model_name="kimi-k3",le="+Inf"} 6)"));
  EXPECT_TRUE(has(R"(vllm:iteration_tokens_total_sum{model_name="kimi-k3"} 36403)"));
}

}  // namespace
}  // namespace perigee::server
