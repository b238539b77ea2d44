// A healthy server passes; a server with one fault fails where the fault is, and only there.
#include "verify/endpoint/endpoint.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "scripted_engine.h"
#include "server/server.h"
#include "verify/endpoint/http_client.h"

namespace perigee::verify {
namespace {

using server::HttpRequest;
using server::HttpResponse;

constexpr const char* kScript = R"([
  {"role": "user", "last": "北京", "content": "{\"capital\":true}"},
  {"role": "user", "declares": "get_weather", "think": "A call.", "calls": [{"name": "get_weather", "arguments": {"city": "Paris"}}]},
  {"role": "user", "last": "vault is 21000", "content": "21000"},
  {"role": "user", "last": "vault is 27800", "content": "27800"},
  {"role": "user", "last": "vault is 34600", "content": "34600"},
  {"role": "user", "last": "fifty", "think": "Counting.", "content": "one two three four five six seven eight"},
  {"role": "user", "last": "naïve", "think": "Emoji.", "content": "naïve 🚀🔥 日本語"},
  {"role": "user", "last": "Hello", "think": "A greeting.", "content": "Hello! How can I help?"}
])";

// One healthy server for all tests: the released vocabulary takes a second to set up.
class Healthy {
 public:
  Healthy() : engine_(tokenizer_, options()) {
    auto started = server::Server::start({});
    EXPECT_TRUE(started.ok()) << started.status().message();
    server_ = std::move(*started);
    server_->serve({&engine_, tokenizer_, &kDialectK3, "kimi-k3", 0});
  }
  std::string url() const { return fmt::format("http://127.0.0.1:{}", server_->port()); }

 private:
  static server::ScriptedOptions options() {
    server::ScriptedOptions options;
    options.rules = *server::parse_script(kScript);
    options.context_tokens = 8192;
    return options;
  }
  const Tokenizer tokenizer_ = Tokenizer::embedded(SpecialTable::kK3);
  server::ScriptedEngine engine_;
  std::unique_ptr<server::Server> server_;
};

const Healthy& healthy() {
  static const Healthy kHealthy;
  return kHealthy;
}

// Changes answers of the healthy server on their way.
using Fault = std::function<void(const HttpRequest& request, HttpReply& reply)>;

class Proxy {
 public:
  explicit Proxy(Fault fault) : fault_(std::move(fault)) {
    server::HttpServerOptions options;
    options.error_response = [](int status, std::string_view message, const HttpRequest&) {
      return HttpResponse{.status = status, .body = std::string(message)};
    };
    options.admit = [](HttpRequest&) { return HttpResponse{.status = 0}; };
    options.on_finished = [](const server::AccessRecord&) {};
    options.handler = [this](HttpRequest&& request) { return handle(request); };
    auto started = server::HttpServer::start(std::move(options));
    EXPECT_TRUE(started.ok()) << started.status().message();
    server_ = std::move(*started);
  }
  std::string url() const { return fmt::format("http://127.0.0.1:{}/v1/", server_->port()); }

 private:
  HttpResponse handle(const HttpRequest& request) const {
    auto client = HttpClient::create(*parse_url(healthy().url()), {});
    auto reply = request.method == "GET" ? client->get(request.path) : client->post(request.path, request.body);
    EXPECT_TRUE(reply.ok()) << reply.status().message();
    fault_(request, *reply);
    HttpResponse response;
    response.status = reply->status;
    response.content_type = reply->content_type;
    response.body = std::move(reply->body);
    return response;
  }

  Fault fault_;
  std::unique_ptr<server::HttpServer> server_;
};

EndpointReport verify(const std::string& url, const std::vector<std::string>& suites, double tolerance = 0) {
  EndpointOptions options;
  options.url = url;
  options.suites = suites;
  options.cases = 60;
  options.tolerance = tolerance;
  options.needle_lengths = {300};
  options.http.timeout_seconds = 20;
  auto report = verify_endpoint(options);
  EXPECT_TRUE(report.ok()) << report.status().message();
  return report.ok() ? std::move(*report) : EndpointReport();
}

// The scripted engine ends a request with status 500 where its script breaks the constraint that was asked for; all
// else passes.
void expect_healthy(const EndpointReport& report) {
  for (const EndpointCheck& check : report.checks) {
    for (const std::string& failure : check.failures) {
      EXPECT_NE(failure.find("500"), std::string::npos) << check.suite << ": " << check.name << ": " << failure;
    }
  }
}

Verdict verdict_of(const EndpointReport& report, std::string_view suite, std::string_view name) {
  for (const EndpointCheck& check : report.checks) {
    if (check.suite == suite && check.name == name) return check.verdict;
  }
  ADD_FAILURE() << "no check " << suite << ": " << name << "\n" << to_text(report);
  return Verdict::kInconclusive;
}

// A JSON answer with one change; other answers stay.
Fault change_json(std::string path, std::function<void(Json& body)> change) {
  return [path = std::move(path), change = std::move(change)](const HttpRequest& request, HttpReply& reply) {
    if (request.path != path || reply.status != 200 || reply.content_type != "application/json") return;
    auto body = parse_json(reply.body);
    ASSERT_TRUE(body.ok());
    change(*body);
    reply.body = body->dump();
  };
}
Fault change_chat(std::function<void(Json& body)> change) {
  return change_json("/v1/chat/completions", std::move(change));
}
void cut_out(std::string& text, const std::string& part) {
  const std::size_t at = text.find(part);
  if (at != std::string::npos) text.erase(at, part.size());
}

TEST(VerifyEndpoint, AHealthyServerPasses) {
  const EndpointReport report =
      verify(healthy().url(), {"api", "tokenizer", "prompt", "parameters", "answers", "cache", "retrieval"});
  expect_healthy(report);
  EXPECT_EQ(report.model, "kimi-k3");
  EXPECT_EQ(verdict_of(report, "tokenizer", "text to ids"), Verdict::kPass);
  EXPECT_EQ(verdict_of(report, "prompt", "rendered ids"), Verdict::kPass);
  EXPECT_EQ(verdict_of(report, "cache", "a warm prompt is found"), Verdict::kPass);
  EXPECT_EQ(verdict_of(report, "retrieval", "a number in 300 tokens"), Verdict::kPass);
  EXPECT_EQ(verdict_of(report, "parameters", "/v1/responses refuses"), Verdict::kPass);
}

struct FaultCase {
  const char* name;
  const char* suite;
  const char* check;
  Fault fault;
};

std::vector<FaultCase> fault_cases() {
  std::vector<FaultCase> cases;
  cases.push_back({"another vocabulary", "tokenizer", "text to ids", change_json("/tokenize", [](Json& body) {
                     if (!body["tokens"].empty()) body["tokens"][0] = body["tokens"][0].get<int>() + 1;
                   })});
  cases.push_back({"lossy detokenizer", "tokenizer", "ids to text", change_json("/detokenize", [](Json& body) {
                     for (const char* key : {"prompt", "content"}) {
                       std::string text = body[key];
                       std::replace(text.begin(), text.end(), ' ', '_');
                       body[key] = text;
                     }
                   })});
  cases.push_back({"a prompt template of another model", "prompt", "prompt tokens of usage",
                   change_chat([](Json& body) { body["usage"]["prompt_tokens"] = 12; })});
  cases.push_back({"validation off", "parameters", "/v1/chat/completions refuses",
                   [](const HttpRequest& request, HttpReply& reply) {
                     if (request.path == "/v1/chat/completions" && reply.status == 400) reply.status = 200;
                   }});
  cases.push_back({"a field is refused that must not be", "parameters", "/v1/chat/completions accepts",
                   [](const HttpRequest& request, HttpReply& reply) {
                     if (request.body.find("chat_template_kwargs") != std::string::npos) reply.status = 400;
                   }});
  cases.push_back(
      {"any model name will do", "api", "unknown model is refused", [](const HttpRequest& request, HttpReply& reply) {
         if (request.path == "/v1/chat/completions") reply.status = 200;
       }});
  cases.push_back(
      {"the stream loses a piece", "answers", "streamed equals whole", [](const HttpRequest&, HttpReply& reply) {
         if (reply.content_type == "text/event-stream") cut_out(reply.body, " can");
       }});
  cases.push_back({"the stream has no end", "answers", "stream protocol", [](const HttpRequest&, HttpReply& reply) {
                     if (reply.content_type == "text/event-stream") cut_out(reply.body, "data: [DONE]");
                   }});
  cases.push_back({"usage does not add up", "answers", "shape and usage",
                   change_chat([](Json& body) { body["usage"]["total_tokens"] = 1; })});
  cases.push_back({"the stop string is sent", "answers", "limits", [](const HttpRequest& request, HttpReply& reply) {
                     if (request.body.find("\"stop\":") == std::string::npos) return;
                     auto body = parse_json(reply.body);
                     body->at("choices")[0]["message"]["content"] = "one two three four five six seven eight";
                     reply.body = body->dump();
                   }});
  cases.push_back({"the prefix cache is off", "cache", "a warm prompt is found", change_chat([](Json& body) {
                     body["usage"]["prompt_tokens_details"]["cached_tokens"] = 0;
                     body["usage"]["cached_tokens"] = 0;
                   })});
  cases.push_back({"a warm state is damaged", "cache", "a warm answer equals the cold one", change_chat([](Json& body) {
                     const Json& details = body["usage"]["prompt_tokens_details"];
                     if (details.value("cached_tokens", 0) < 500) return;
                     Json& choice = body["choices"][0];
                     choice["message"]["content"] = "Another answer.";
                     for (Json& token : choice["logprobs"]["content"]) token["logprob"] = -1.5;
                   })});
  cases.push_back({"far text is lost", "retrieval", "a number in 300 tokens",
                   change_chat([](Json& body) { body["choices"][0]["message"]["content"] = "I do not know."; })});
  return cases;
}

TEST(VerifyEndpoint, EveryFaultIsCaughtWhereItIs) {
  for (FaultCase& entry : fault_cases()) {
    const Proxy proxy(entry.fault);
    const EndpointReport report = verify(proxy.url(), {entry.suite});
    EXPECT_EQ(verdict_of(report, entry.suite, entry.check), Verdict::kFail) << entry.name << "\n" << to_text(report);
    EXPECT_FALSE(report.passed());
  }
}

TEST(VerifyEndpoint, WhatIsNotOfferedIsNoFailure) {
  const Proxy proxy([](const HttpRequest& request, HttpReply& reply) {
    if (request.path == "/tokenize" || request.path == "/detokenize" || request.path == "/v1/responses") {
      reply.status = 404;
    }
  });
  const EndpointReport report = verify(proxy.url(), {"tokenizer", "prompt", "parameters"});
  expect_healthy(report);
  EXPECT_EQ(verdict_of(report, "tokenizer", "text to ids"), Verdict::kNotOffered);
  EXPECT_EQ(verdict_of(report, "prompt", "rendered ids"), Verdict::kNotOffered);
  EXPECT_EQ(verdict_of(report, "parameters", "/v1/responses refuses"), Verdict::kNotOffered);
  EXPECT_NE(verdict_of(report, "prompt", "prompt tokens of usage"), Verdict::kNotOffered);
}

// The scripted engine cannot follow a schema, so the answers of this one are written here.
TEST(VerifyEndpoint, ToolArgumentsAreCheckedAgainstTheirSchema) {
  const auto answer_with = [](const char* arguments) {
    return [arguments](const HttpRequest& request, HttpReply& reply) {
      if (request.path != "/v1/chat/completions" || request.body.find("look_up") == std::string::npos) return;
      if (request.body.find("\"stream\":true") != std::string::npos) return;
      const Json call = {
          {"id", "look_up:0"}, {"type", "function"}, {"function", {{"name", "look_up"}, {"arguments", arguments}}}};
      const Json body = {
          {"object", "chat.completion"},
          {"choices",
           {{{"index", 0},
             {"finish_reason", "tool_calls"},
             {"message", {{"role", "assistant"}, {"content", nullptr}, {"tool_calls", Json::array({call})}}}}}}};
      reply.status = 200;
      reply.content_type = "application/json";
      reply.body = body.dump();
    };
  };
  const auto failures = [&](const char* arguments) {
    const Proxy proxy(answer_with(arguments));
    const EndpointReport report = verify(proxy.url(), {"tools"});
    for (const EndpointCheck& check : report.checks) {
      if (check.name == "named call matches its schema") return fmt::format("{}", fmt::join(check.failures, "\n"));
    }
    return std::string("no check");
  };
  const std::string right = failures(R"({"unit": "celsius"})");
  EXPECT_EQ(right.find("enum:"), std::string::npos) << right;
  EXPECT_NE(right.find("boolean: does not match"), std::string::npos) << right;
  EXPECT_NE(failures(R"({"unit": "kelvin"})").find("enum: does not match"), std::string::npos);
  EXPECT_NE(failures(R"({"unit": "celsius")").find("enum: is no JSON"), std::string::npos);
}

TEST(VerifyEndpoint, LogprobsAgainstAStoredReferenceAndAnotherEndpoint) {
  const std::string path =
      (std::filesystem::temp_directory_path() / fmt::format("perigee_reference_{}.json", ::getpid())).string();
  EndpointOptions options;
  options.url = healthy().url();
  options.suites = {"logprobs"};
  options.save_reference = path;
  ASSERT_TRUE(verify_endpoint(options).ok());
  options.save_reference.clear();
  options.reference = path;
  options.tolerance = 0;
  auto report = verify_endpoint(options);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(verdict_of(*report, "logprobs", "greedy answers against the reference"), Verdict::kPass)
      << to_text(*report);

  const Proxy proxy(change_chat([](Json& body) {
    for (Json& token : body["choices"][0]["logprobs"]["content"])
      token["logprob"] = token["logprob"].get<double>() - 0.3;
  }));
  options.url = proxy.url();
  report = verify_endpoint(options);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(verdict_of(*report, "logprobs", "greedy answers against the reference"), Verdict::kFail);
  options.reference = healthy().url();
  report = verify_endpoint(options);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(verdict_of(*report, "logprobs", "greedy answers against the reference"), Verdict::kFail);
  options.tolerance = 0.5;
  report = verify_endpoint(options);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(verdict_of(*report, "logprobs", "greedy answers against the reference"), Verdict::kPass);
  options.reference = PERIGEE_SOURCE_DIR "/tests/data/text/schema.json";
  EXPECT_FALSE(verify_endpoint(options).ok());
  std::filesystem::remove(path);
}

TEST(VerifyEndpoint, HostileAnswersAreBoundedAndEscaped) {
  EndpointOptions options;
  options.suites = {"answers"};
  {
    const Proxy slow([](const HttpRequest& request, HttpReply&) {
      if (request.method == "POST") std::this_thread::sleep_for(std::chrono::milliseconds(700));
    });
    options.url = slow.url();
    options.http.timeout_seconds = 0.3;
    const auto report = verify_endpoint(options);
    ASSERT_FALSE(report.ok());
    EXPECT_NE(report.status().message().find("no end within"), std::string::npos) << report.status().message();
  }
  options.http.timeout_seconds = 20;
  {
    const Proxy huge([](const HttpRequest& request, HttpReply& reply) {
      if (request.method == "POST") reply.body.assign(std::size_t{3} << 20, ' ');
    });
    options.url = huge.url();
    options.http.body_bytes = 1 << 20;
    const auto report = verify_endpoint(options);
    ASSERT_FALSE(report.ok());
    EXPECT_NE(report.status().message().find("body limit"), std::string::npos) << report.status().message();
  }
  options.http.body_bytes = 1 << 20;
  const Proxy markup([](const HttpRequest& request, HttpReply& reply) {
    if (request.body.find("\"stream\":true") == std::string::npos) return;
    reply.status = 500;
    reply.body = R"({"error":{"message":"<script>alert(1)</script> | \u001b[31m"}})";
  });
  options.url = markup.url();
  const auto report = verify_endpoint(options);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(to_html(*report).find("<script>"), std::string::npos);
  EXPECT_EQ(to_markdown(*report).find("<script>"), std::string::npos);
  EXPECT_EQ(to_text(*report).find('\x1b'), std::string::npos);
  EXPECT_NE(to_html(*report).find("&lt;script&gt;"), std::string::npos);
  EXPECT_TRUE(parse_json(to_json(*report).dump()).ok());
}

TEST(VerifyEndpoint, UrlsAndOptions) {
  const auto url = parse_url("https://[::1]:8443/base/v1/");
  ASSERT_TRUE(url.ok()) << url.status().message();
  EXPECT_EQ(url->authority(), "[::1]:8443");
  EXPECT_EQ(url->target, "/base/v1");
  EXPECT_EQ(parse_url("http://h")->port, "80");
  for (const char* wrong : {"h:1", "ftp://h", "http://", "http://h:99999999", "http://h:x", "http://u@h", "http://h/?q",
                            "http://[::1", "http://a b"}) {
    EXPECT_FALSE(parse_url(wrong).ok()) << wrong;
  }
  EndpointOptions options;
  options.url = "http://127.0.0.1:1";
  options.http.timeout_seconds = 5;
  EXPECT_FALSE(verify_endpoint(options).ok());
  options.url = healthy().url();
  options.suites = {"nothing"};
  EXPECT_FALSE(verify_endpoint(options).ok());
  options.suites = {"tokenizer"};
  options.vectors = PERIGEE_SOURCE_DIR "/tests/data";  // no tokenizer.json there
  EXPECT_FALSE(verify_endpoint(options).ok());
}

}  // namespace
}  // namespace perigee::verify
