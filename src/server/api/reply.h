// From parsed output to bytes for the client: Chat Completions, Completions, Responses and Messages, streamed or not
// (spec chat.md 3.4, 3.5, 5.2, 5.5, 5.6). A non-streamed reply folds the same calls. One object a reply; not
// thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "server/api/request.h"

namespace perigee::api {

struct ReplyIdentity {
  std::string id;            // random, without prefix; also the root of call ids
  std::int64_t created = 0;  // Unix seconds
  std::string fingerprint;   // system_fingerprint; empty: left out
};

struct ReplyUsage {
  std::int64_t prompt_tokens = 0;      // without the stub that opens the first channel (spec chat.md 2.8)
  std::int64_t cached_tokens = 0;      // part of prompt_tokens
  std::int64_t completion_tokens = 0;  // all sampled ids of all choices
  std::int64_t reasoning_tokens = 0;   // part of completion_tokens
};

struct TokenText {
  TokenId id = 0;
  float logprob = 0;
  std::string bytes;
};

struct TokenLogprobs {
  TokenText token;
  std::vector<TokenText> top;
};

enum class ReplyFinish : std::uint8_t { kStop, kToolCalls, kLength, kCancelled };

// Calls come in this order: begin, then per choice deltas and one finish, then end or fail. After each call, take()
// gives the bytes to send: server-sent events where the request streams, else nothing until end().
class ReplyEncoder {
 public:
  virtual ~ReplyEncoder() = default;

  // Kept up to date by the caller; what the next call needs of it is sent.
  void set_usage(const ReplyUsage& usage) { usage_ = usage; }

  virtual void begin() = 0;
  virtual void reasoning(int choice, std::string_view text) = 0;
  // The reasoning so far was the reply (AnswerEvent::was_reasoning): it comes again as content. A document then has no
  // reasoning; a stream has sent it.
  virtual void reasoning_was_content(int choice) = 0;
  virtual void content(int choice, std::string_view text) = 0;
  // `id` is the model's own (K2) or empty: then call_id() makes it.
  virtual void call_begin(int choice, std::string_view id, std::string_view name) = 0;
  virtual void call_arguments(int choice, std::string_view text) = 0;
  virtual void call_end(int choice) = 0;
  // Tokens whose text is content, in order; where the request asked for log-probabilities.
  virtual void logprobs(int choice, std::vector<TokenLogprobs> tokens) = 0;
  virtual void token_ids(int choice, const std::vector<TokenId>& ids) = 0;
  // `stop_string`: the one that ended the choice, or empty.
  virtual void finish(int choice, ReplyFinish reason, std::string_view stop_string) = 0;
  virtual void end() = 0;
  // An error after begin(): an error event, or the error body.
  virtual void fail(const ApiError& error) = 0;

  // The folded message of a choice in the Chat form, as later requests bring it back: role, content,
  // reasoning_content, tool_calls.
  virtual Json message(int choice) const = 0;
  // The reply as one JSON document, also after a stream: what GET /v1/responses/{id} answers.
  virtual std::string document() const = 0;

  std::string take() { return std::exchange(pending_, {}); }

 protected:
  std::string pending_;
  ReplyUsage usage_;
};

std::unique_ptr<ReplyEncoder> make_encoder(const ChatRequest& request, ReplyIdentity identity);
std::unique_ptr<ReplyEncoder> make_encoder(const CompletionRequest& request, ReplyIdentity identity);

// The id of the index-th call of a choice: "call_" + identity + counters; stays within [A-Za-z0-9_-]{1,64}.
std::string call_id(const ReplyIdentity& identity, int choice, int index);

// A comment line for long prefills, and Anthropic's ping event.
std::string keep_alive(ApiKind kind);

// --- small documents ---

struct ModelInfo {
  std::string id;
  std::int64_t created = 0;
  std::int64_t context_tokens = 0;
  std::int64_t vocab = 0;
  std::int64_t parameters = 0;  // 0: unknown
};
std::string models_body(const std::vector<ModelInfo>& models);
std::string model_body(const ModelInfo& model);

std::string tokenize_body(const TokenizeRequest& request, const std::vector<TokenId>& ids,
                          const std::vector<std::string>& strings, std::int64_t context_tokens);
std::string detokenize_body(std::string_view text);  // {"prompt"} as vLLM and {"content"} as llama-server have it
std::string count_tokens_body(std::int64_t tokens);  // {"input_tokens"}

}  // namespace perigee::api
