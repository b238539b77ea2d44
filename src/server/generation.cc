#include "server/generation.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/random.h"
#include "text/parser.h"

namespace perigee::server {
namespace {

// About 6 MiB of events without log-probabilities: minutes of decoding that a client has not read.
constexpr std::size_t kQueueLimit = 65536;

double seconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

HttpRequest without_body(const HttpRequest& http) {
  HttpRequest copy;
  copy.method = http.method;
  copy.path = http.path;
  copy.request_id = http.request_id;
  copy.tenant = http.tenant;
  return copy;
}

}  // namespace

void CacheLog::add(Entry entry) {
  const std::lock_guard lock(mutex_);
  entries_.push_front(std::move(entry));
  if (entries_.size() > kEntries) entries_.pop_back();
}

std::vector<CacheLog::Entry> CacheLog::entries(std::string_view tenant) const {
  const std::lock_guard lock(mutex_);
  std::vector<Entry> mine;
  std::copy_if(entries_.begin(), entries_.end(), std::back_inserter(mine),
               [&](const Entry& entry) { return entry.tenant == tenant; });
  return mine;
}

void RunningResponses::add(std::string_view tenant, const std::string& id, std::shared_ptr<TokenQueue> queue) {
  const std::lock_guard lock(mutex_);
  queues_.emplace(std::pair(std::string(tenant), id), std::move(queue));
}

void RunningResponses::remove(std::string_view tenant, const std::string& id) {
  const std::lock_guard lock(mutex_);
  queues_.erase({std::string(tenant), id});
}

bool RunningResponses::cancel(std::string_view tenant, const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto found = queues_.find({std::string(tenant), id});
  if (found == queues_.end()) return false;
  found->second->cancel();
  return true;
}

Generation::Generation(GenerationServices& services, const HttpRequest& http, const api::GenerationOptions& options,
                       std::int32_t branches)
    : services_(services),
      options_(options),
      tenant_(http.tenant),
      http_(without_body(http)),
      branches_(branches),
      queue_(std::make_shared<TokenQueue>(kQueueLimit)),
      arrived_(std::chrono::steady_clock::now()) {
  ++services_.active;
}

Generation::~Generation() {
  if (!complete_) cancel_all();
  --services_.active;
}

std::optional<api::ApiError> Generation::submit(GenerationRequest request, std::string_view prompt_param) {
  Engine& engine = *services_.model.engine;
  const EngineLimits limits = engine.limits();
  const auto prompt_tokens = static_cast<std::int64_t>(request.prompt.size());
  if (prompt_tokens >= limits.context_tokens) {
    return api::context_length_exceeded(prompt_tokens, limits.context_tokens, std::string(prompt_param));
  }
  request.max_tokens = limits.context_tokens - prompt_tokens;
  if (options_.max_tokens) request.max_tokens = std::min(request.max_tokens, *options_.max_tokens);
  request.n = branches_;
  request.sampling = options_.sampling;
  if (!options_.has_seed) request.sampling.seed = random_u64();
  if (!options_.logprobs) request.sampling.top_logprobs = -1;
  request.stop_ids = options_.stop_token_ids;
  if (!options_.ignore_eos) {
    const std::vector<TokenId> own = stop_ids(services_.model.tokenizer);
    request.stop_ids.insert(request.stop_ids.end(), own.begin(), own.end());
  }
  request.tenant = tenant_;
  request.cache_salt = options_.cache_salt;
  request.priority = options_.priority;
  request.request_id = http_.request_id;

  const auto submission = static_cast<std::int32_t>(handles_.size());
  open_ += branches_;
  ended_.resize(ended_.size() + static_cast<std::size_t>(branches_), false);
  last_token_.resize(ended_.size());
  submitted_ = std::chrono::steady_clock::now();
  auto handle = engine.submit(std::move(request), [queue = queue_, submission](TokenEvent&& event) {
    return queue->push(submission, std::move(event));
  });
  if (!handle.ok()) return api::from_status(handle.status(), std::string(prompt_param));
  handles_.push_back(*handle);
  return std::nullopt;
}

void Generation::start(std::function<void()> wake) {
  queue_->set_wake(std::move(wake));
}

bool Generation::poll(HttpResponse& response) {
  if (!complete_ && queue_->cancelled()) {
    cancel_all();
    if (!begun_) begin(std::chrono::steady_clock::now(), response);
    on_cancelled();
    complete("abort", response);
    response.body += encoder().take();
  }
  while (!complete_ && response.body.size() < kStreamPiece) {
    if (next_event_ == events_.size()) {
      queue_->take(events_);
      next_event_ = 0;
      if (events_.empty()) break;
    }
    handle(events_[next_event_++], response);
  }
  if (!complete_ && events_.empty() && queue_->overflowed()) {
    fail({.status = 503,
          .type = "client_too_slow",
          .code = "",
          .param = "",
          .message = "the client reads more slowly than its answer is made"},
         response);
  }
  return complete_;
}

void Generation::abandon(HttpResponse& response) {
  if (complete_) return;
  cancel_all();
  complete("abort", response);
}

void Generation::handle(const QueuedEvent& item, HttpResponse& response) {
  const TokenEvent& event = item.event;
  const std::int32_t slot = item.submission * branches_ + event.branch;
  if (slot < 0 || static_cast<std::size_t>(slot) >= ended_.size() || ended_[static_cast<std::size_t>(slot)]) return;
  if (event.finish == FinishReason::kError || event.finish == FinishReason::kCancelled) {
    const bool cancelled = event.finish == FinishReason::kCancelled;
    return fail(api::from_status(cancelled && event.error.ok()
                                     ? Status(StatusCode::kUnavailable, "the server is stopping; try again later")
                                     : event.error),
                response);
  }
  if (!begun_) begin(item.at, response);
  if (event.id >= 0) {
    ++usage_.completion_tokens;
    Time& last = last_token_[static_cast<std::size_t>(slot)];
    if (last != Time()) services_.metrics.inter_token(seconds(item.at - last));
    last = item.at;
  }
  on_event(slot, event);
  if (event.finish != FinishReason::kNone) end_slot(slot);
  if (open_ == 0) {
    encoder().set_usage(usage_);
    on_complete();
    complete(outcome_, response);
  }
  response.body += encoder().take();
}

void Generation::begin(Time now, HttpResponse& response) {
  begun_ = true;
  first_token_ = now;
  report_ = services_.model.engine->cache_report(handles_.front());
  // The stub that opens the first channel is part of the engine's prompt and not of the reported one.
  usage_.cached_tokens = std::min(report_.restored_tokens, usage_.prompt_tokens);
  response.headers.emplace_back(
      "X-Perigee-Cache",
      fmt::format("hit={}; prompt={}; common={}; blocks={}; compute={}; reason={}", report_.restored_tokens,
                  report_.prompt_tokens, report_.common_tokens, report_.whole_blocks,
                  report_.prompt_tokens - report_.restored_tokens, report_.reason));
  services_.cache_log.add({tenant_, http_.request_id, report_});
  encoder().set_usage(usage_);
  encoder().begin();
}

void Generation::fail(const api::ApiError& error, HttpResponse& response) {
  cancel_all();
  if (begun_ && response.stream) {
    encoder().fail(error);
    response.body += encoder().take();
  } else {
    HttpResponse whole = error_response(error, http_);
    response.status = whole.status;
    response.content_type = whole.content_type;
    response.body = whole.body;
    response.headers.insert(response.headers.end(), whole.headers.begin(), whole.headers.end());
  }
  complete("error", response);
}

void Generation::complete(std::string_view outcome, HttpResponse& response) {
  complete_ = true;
  queue_->close();
  const Time now = std::chrono::steady_clock::now();
  GenerationRecord record;
  record.finish = outcome;
  record.seconds = seconds(now - arrived_);
  if (begun_) {
    record.first_token_seconds = seconds(first_token_ - arrived_);
    record.queue_seconds = report_.queue_seconds;
    record.prefill_seconds = std::max(1e-9, seconds(first_token_ - submitted_) - report_.queue_seconds);
    record.decode_seconds = seconds(now - first_token_);
  }
  record.prompt_tokens = usage_.prompt_tokens;
  record.completion_tokens = usage_.completion_tokens;
  record.cache_reason = report_.reason;
  services_.metrics.generation(record);
  response.log = fmt::format(
      R"("prompt_tokens":{},"cached_tokens":{},"completion_tokens":{},"reasoning_tokens":{},"queue_seconds":{:.6f},"first_token_seconds":{:.6f},"cache":"{}","finish":"{}")",
      usage_.prompt_tokens, usage_.cached_tokens, usage_.completion_tokens, usage_.reasoning_tokens,
      report_.queue_seconds, record.first_token_seconds, report_.reason, outcome);
}

void Generation::cancel_all() {
  queue_->close();
  for (const RequestHandle handle : handles_) services_.model.engine->cancel(handle);
}

void Generation::end_slot(std::int32_t slot) {
  if (ended_[static_cast<std::size_t>(slot)]) return;
  ended_[static_cast<std::size_t>(slot)] = true;
  --open_;
}

void Generation::stop(std::int32_t slot) {
  if (ended_[static_cast<std::size_t>(slot)]) return;
  end_slot(slot);
  const std::int32_t submission = slot / branches_;
  queue_->stop(submission, slot % branches_);
  if (branches_ == 1) services_.model.engine->cancel(handles_[static_cast<std::size_t>(submission)]);
}

api::ApiResult<std::unique_ptr<TokenConstraint>> compile_constraint(const GenerationServices& services,
                                                                    const GrammarRules& rules) {
  if (!GrammarCompiler::needs_constraint(rules)) return std::unique_ptr<TokenConstraint>();
  auto constraint = services.grammar.compile(rules);
  if (!constraint.ok()) return api::from_field_status(constraint.status());
  return std::move(*constraint);
}

HttpResponse error_response(const api::ApiError& error, const HttpRequest& http) {
  HttpResponse response;
  response.status = error.status;
  response.body = http.path.starts_with("/v1/messages") ? api::anthropic_error_body(error, http.request_id)
                                                        : api::openai_error_body(error);
  if (error.status == 429 || error.status == 503) response.headers.emplace_back("Retry-After", "1");
  if (error.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

}  // namespace perigee::server
