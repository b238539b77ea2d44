// One endpoint as the suites see it: requests, and answers of both transports in one form. Internal to the suites.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "verify/endpoint/endpoint.h"

namespace perigee::verify {

struct AnswerToken {
  std::string token;
  double logprob = 0;
  std::vector<std::pair<std::string, double>> top;
};

struct AnswerCall {
  std::string id, name, arguments;
};

// An answer of /v1/chat/completions, streamed or not. Numbers are -1 where the endpoint does not say them.
struct ChatAnswer {
  int status = 0;
  std::string error;  // message of a refusal
  std::string content, reasoning, finish;
  std::vector<AnswerCall> calls;
  std::vector<AnswerToken> tokens;  // of the content (and the reasoning, where the endpoint counts it in)
  std::int64_t prompt_tokens = -1, completion_tokens = -1, total_tokens = -1, cached_tokens = -1;
  std::vector<std::string> faults;  // breaches of the protocol: what was expected, what was found

  bool ok() const { return status == 200; }
  bool cut() const { return finish == "length"; }
  std::string refusal() const { return ok() ? "" : fmt::format("status {}: {}", status, error); }
};

class Session {
 public:
  // Reads /v1/models and finds out what the endpoint accepts.
  static Result<std::unique_ptr<Session>> open(const std::string& url, const HttpClientOptions& http,
                                               const std::string& model);

  const std::string& model() const { return model_; }
  bool deterministic() const { return deterministic_; }            // temperature 0 is accepted
  std::int64_t context_tokens() const { return context_tokens_; }  // 0: not said
  std::int64_t requests() const { return requests_; }

  // Transport failures are errors; HTTP statuses are not.
  Result<HttpReply> get(std::string_view path);
  Result<HttpReply> post(std::string_view path, const Json& body);
  Result<HttpReply> post_text(std::string_view path, std::string body);
  // `body` without model; `stream` adds stream and include_usage.
  Result<ChatAnswer> chat(Json body, bool stream = false);

  // A chat body with one user message, temperature 0 where that is accepted, and thinking off where it can be, unless
  // `thinking`.
  Json plain(const std::string& text, std::int64_t max_tokens, bool thinking = false) const;

 private:
  explicit Session(HttpClient client) : client_(std::move(client)) {}
  Status probe(const std::string& model);
  void switch_thinking_off(Json& body) const;

  HttpClient client_;
  std::string model_;
  std::string thinking_off_;  // "kimi", "template" or "": cannot be
  bool deterministic_ = false;
  std::int64_t context_tokens_ = 0;
  std::int64_t requests_ = 0;
};

// Free of the network, for tests.
ChatAnswer read_chat_answer(const HttpReply& reply);
ChatAnswer read_chat_stream(const HttpReply& reply);

// The first 160 bytes of a text, as a JSON string: never raw.
std::string shown_text(std::string_view text);

// Collects the cases of one check; `finish` turns them into a verdict.
class Cases {
 public:
  Cases(std::string suite, std::string name) {
    check_.suite = std::move(suite);
    check_.name = std::move(name);
  }
  void add(const std::string& id, const std::string& difference);  // empty: passed
  void skip(const std::string& why) { skipped_.push_back(why); }
  std::size_t total() const { return check_.total; }
  // Fail with any difference, else pass; without cases inconclusive, with the reasons of those that were skipped.
  EndpointCheck finish(std::string detail = "");
  EndpointCheck not_offered(std::string why);

 private:
  EndpointCheck check_;
  std::vector<std::string> skipped_;
};

// What the suites share.
struct SuiteContext {
  const EndpointOptions* options = nullptr;
  Session* session = nullptr;
  EndpointReport* report = nullptr;

  void add(EndpointCheck check) const { report->checks.push_back(std::move(check)); }
};

// A vector file: of the folder, or built in. Errors name the file.
Result<Json> vector_document(const EndpointOptions& options, std::string_view name);
// At most options.cases of `list` that `keep` accepts, evenly spread.
std::vector<const Json*> spread(const EndpointOptions& options, const Json& list, bool (*keep)(const Json& item));

// suite_*.cc
Status run_models(const SuiteContext& context);
Status run_tokenizer(const SuiteContext& context);
Status run_prompts(const SuiteContext& context);
Status run_parameters(const SuiteContext& context);
Status run_streaming(const SuiteContext& context);
Status run_tools(const SuiteContext& context);
Status run_schemas(const SuiteContext& context);
Status run_cache(const SuiteContext& context);
Status run_logprobs(const SuiteContext& context);
Status run_retrieval(const SuiteContext& context);

// Whether `instance` is one that `schema` allows (2020-12, the keywords of text/grammar.h). Errors: the schema itself.
Result<bool> matches_schema(const Json& schema, const Json& instance);

// Two answers to one prompt: "" when they are equal, or part at tokens that tie within `tolerance`; `note` says that,
// and how far log-probabilities differ.
std::string compare_answers(const ChatAnswer& expected, const ChatAnswer& found, double tolerance, std::string& note);

}  // namespace perigee::verify
