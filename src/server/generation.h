// One request of any dialect on its way through the engine: typed request -> renderer -> engine -> answer parser ->
// encoder -> bytes. The engine's thread only fills a queue; everything else happens on the connection's thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/api/reply.h"
#include "server/api/request.h"
#include "server/api/response_store.h"
#include "server/http.h"
#include "server/metrics.h"
#include "server/served_model.h"
#include "server/token_queue.h"
#include "text/grammar.h"
#include "text/render.h"
#include "text/replay.h"

namespace perigee::server {

// The last cache reports, for /debug/cache. Thread-safe.
class CacheLog {
 public:
  struct Entry {
    std::string tenant;
    std::string request_id;
    CacheReport report;
  };
  void add(Entry entry);
  std::vector<Entry> entries(std::string_view tenant) const;  // newest first, one tenant's only

 private:
  static constexpr std::size_t kEntries = 256;
  mutable std::mutex mutex_;
  std::deque<Entry> entries_;
};

// Responses that are being made, so that another request can end them. Thread-safe.
class RunningResponses {
 public:
  void add(std::string_view tenant, const std::string& id, std::shared_ptr<TokenQueue> queue);
  void remove(std::string_view tenant, const std::string& id);
  bool cancel(std::string_view tenant, const std::string& id);  // false: no such response is running

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, std::string>, std::shared_ptr<TokenQueue>> queues_;
};

// Shared by all requests for one model.
struct GenerationServices {
  explicit GenerationServices(ServedModel served)
      : model(std::move(served)),
        metrics(model.name, model.limits),
        grammar(*model.dialect, model.tokenizer),
        answers(kAnswerBytes),
        responses(kResponseBytes, kResponses) {}

  static constexpr std::size_t kAnswerBytes = std::size_t{64} << 20;
  static constexpr std::size_t kResponseBytes = std::size_t{64} << 20;
  static constexpr std::size_t kResponses = 10000;

  ServedModel model;
  Metrics metrics;
  GrammarCompiler grammar;
  AnswerStore answers;
  api::ResponseStore responses;
  RunningResponses running;
  CacheLog cache_log;
  std::atomic<std::int64_t> active{0};  // requests that have not ended
};

// What both kinds of generation share: submissions, the queue, usage, timing, the end. A slot is one branch of one
// submission: slot = submission * branches + branch.
class Generation : public PendingResponse {
 public:
  ~Generation() override;

  void start(std::function<void()> wake) override;
  bool poll(HttpResponse& response) override;
  void abandon(HttpResponse& response) override;

 protected:
  Generation(GenerationServices& services, const HttpRequest& http, const api::GenerationOptions& options,
             std::int32_t branches);

  // Completes `request` (prompt and constraint are set) by sampling, limits and identity, and hands it to the engine.
  // A prompt that is too long is blamed on `prompt_param`.
  std::optional<api::ApiError> submit(GenerationRequest request, std::string_view prompt_param);

  virtual api::ReplyEncoder& encoder() = 0;
  // One event of a slot that has not ended; its `finish` is kNone, kStop or kLength.
  virtual void on_event(std::int32_t slot, const TokenEvent& event) = 0;
  // All slots have ended: what is to be sent and remembered at the end.
  virtual void on_complete() = 0;
  // Somebody asked through queue() that the answer ends as it is.
  virtual void on_cancelled() {}
  const std::shared_ptr<TokenQueue>& queue() const { return queue_; }

  // Nothing more of this slot is wanted, though the engine may be at it still.
  void stop(std::int32_t slot);

  GenerationServices& services_;
  const api::GenerationOptions options_;
  const std::string tenant_;
  api::ReplyUsage usage_;     // prompt_tokens by the derived class
  std::string_view outcome_;  // of the answer, for logs and metrics: "stop", "length", "tool_calls"

 private:
  using Time = std::chrono::steady_clock::time_point;

  void handle(const QueuedEvent& item, HttpResponse& response);
  void begin(Time now, HttpResponse& response);
  void fail(const api::ApiError& error, HttpResponse& response);
  void complete(std::string_view outcome, HttpResponse& response);
  void cancel_all();
  void end_slot(std::int32_t slot);

  const HttpRequest http_;  // without its body
  const std::int32_t branches_;
  std::shared_ptr<TokenQueue> queue_;
  std::vector<RequestHandle> handles_;
  std::vector<QueuedEvent> events_;
  std::size_t next_event_ = 0;
  std::vector<Time> last_token_;  // by slot
  std::vector<bool> ended_;       // by slot
  std::int32_t open_ = 0;
  bool begun_ = false;
  bool complete_ = false;
  CacheReport report_;
  const Time arrived_;
  Time submitted_;
  Time first_token_;
};

// The answer of a request that was accepted, or the error that it ended in.
HttpResponse generate_chat(GenerationServices& services, const HttpRequest& http, api::ChatRequest request);
HttpResponse generate_completion(GenerationServices& services, const HttpRequest& http, api::CompletionRequest request);

// The constraint that the rules ask for; null where they ask for nothing.
api::ApiResult<std::unique_ptr<TokenConstraint>> compile_constraint(const GenerationServices& services,
                                                                    const GrammarRules& rules);

// Prompt ids of a chat request; answers of this tenant are spliced as they were sampled.
api::ApiResult<Rendered> render_chat(const GenerationServices& services, const api::ChatRequest& request,
                                     const std::string& tenant);

// In the error form of the dialect that the path belongs to.
HttpResponse error_response(const api::ApiError& error, const HttpRequest& http);

}  // namespace perigee::server
