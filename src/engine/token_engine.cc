#include "engine/token_engine.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "base/checked.h"

namespace perigee {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kRememberedReports = 4096;

// A branch's last event without a token.
TokenEvent end_event(std::int32_t branch, FinishReason finish, Status error = {}) {
  TokenEvent event;
  event.branch = branch;
  event.finish = finish;
  event.error = std::move(error);
  return event;
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

Result<std::unique_ptr<TokenEngine>> TokenEngine::create(const Checkpoint& checkpoint, const EngineOptions& options) {
  PERIGEE_ASSIGN_OR_RETURN(const Kernels* kernels, default_kernels(options.isa));
  const StateLayout layout(checkpoint.config(),
                           options.precision == Precision::kBf16 ? KeyFormat::kBf16 : KeyFormat::kF32);
  PERIGEE_ASSIGN_OR_RETURN(const EngineMemory memory, plan_engine_memory(checkpoint, layout, options));
  std::unique_ptr<TokenEngine> engine(new TokenEngine(checkpoint, options, memory));
  PERIGEE_ASSIGN_OR_RETURN(engine->model_, Model::create(checkpoint, *kernels, engine->pool_, options.precision));
  const StateLayout& live = engine->model_->state_layout();
  const std::int64_t page_bytes = std::max<std::int64_t>(live.page_bytes, 64);
  PERIGEE_ASSIGN_OR_RETURN(engine->pages_,
                           PagePool::create({.page_bytes = page_bytes,
                                             .capacity_pages = std::max<std::int64_t>(memory.pages / page_bytes, 4)}));
  const std::int64_t hidden = checkpoint.config().hidden;
  engine->allocator_ = std::make_unique<PageAllocator>(*engine->pages_, CacheLink::state_bytes(live, hidden));
  if (options.prefix_cache) {
    PrefixCacheOptions cache = options.cache;
    cache.ram_bytes = memory.pages + memory.snapshots;
    PERIGEE_ASSIGN_OR_RETURN(engine->cache_, PrefixCache::open(cache, *engine->allocator_));
  }
  engine->link_ = std::make_unique<CacheLink>(engine->cache_.get(), *engine->pages_, live, hidden);
  engine->model_digest_ = checkpoint.digest();
  engine->numerics_id_ = engine->model_->numerics_id();
  engine->restorer_ = std::thread([raw = engine.get()] { raw->run_restorer(); });
  engine->thread_ = std::thread([raw = engine.get()] { raw->run(); });
  return engine;
}

Result<std::unique_ptr<Engine>> open_engine(const Checkpoint& checkpoint, const EngineOptions& options) {
  PERIGEE_ASSIGN_OR_RETURN(std::unique_ptr<TokenEngine> engine, TokenEngine::create(checkpoint, options));
  return std::unique_ptr<Engine>(std::move(engine));
}

TokenEngine::TokenEngine(const Checkpoint& checkpoint, const EngineOptions& options, const EngineMemory& memory)
    : options_(options),
      memory_(memory),
      pool_(options.threads),
      cost_(checkpoint.config(), checkpoint.weights()),
      budget_(options.scheduler) {}

TokenEngine::~TokenEngine() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    wake_flag_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
  {
    const std::lock_guard lock(restore_mutex_);
    restorer_stopping_ = true;
  }
  restore_wake_.notify_all();
  if (restorer_.joinable()) restorer_.join();
  requests_.clear();
  live_.clear();
  to_restore_.clear();
}

// --- calls from other threads -------------------------------------------------------------------------------------

Status TokenEngine::check(const GenerationRequest& request) const {
  const EngineLimits limit = limits();
  PERIGEE_RETURN_IF_ERROR(check_sampling(request.sampling, limit.vocab));
  const auto prompt = static_cast<std::int64_t>(request.prompt.size());
  if (prompt == 0) return invalid_argument("prompt: expected at least one token");
  for (const TokenId id : request.prompt) {
    if (id < 0 || id >= limit.vocab) {
      return invalid_argument("prompt: expected ids from 0 to {}, found {}", limit.vocab - 1, id);
    }
  }
  if (request.n < 1 || request.n > memory_.branches) {
    return invalid_argument("n: expected 1 to {}, found {}", memory_.branches, request.n);
  }
  if (request.max_tokens < 0) return invalid_argument("max_tokens: expected at least 0, found {}", request.max_tokens);
  if (prompt + std::max<std::int64_t>(request.max_tokens, 1) > limit.context_tokens) {
    return make_error(StatusCode::kResourceExhausted,
                      "the request needs {} prompt tokens + {} new tokens, but the context is {} tokens", prompt,
                      std::max<std::int64_t>(request.max_tokens, 1), limit.context_tokens);
  }
  const std::int64_t pages = request.n * ceil_div(prompt + std::max<std::int64_t>(request.max_tokens, 1), kPageTokens);
  if (request.max_tokens > 0 && pages > pages_->capacity_pages()) {
    return make_error(StatusCode::kResourceExhausted,
                      "the request needs {} pages of {} tokens for its {} branches, but there are {}", pages,
                      kPageTokens, request.n, pages_->capacity_pages());
  }
  return {};
}

Result<RequestHandle> TokenEngine::submit(GenerationRequest ask, EventSink sink) {
  PERIGEE_RETURN_IF_ERROR(check(ask));
  auto request = std::make_shared<Request>();
  request->submitted = Clock::now();
  request->sink = std::move(sink);
  const std::int64_t room = memory_.context_tokens - static_cast<std::int64_t>(ask.prompt.size());
  if (ask.max_tokens == 0) ask.max_tokens = room;
  for (std::int32_t i = 0; i < ask.n; ++i) {
    auto branch = std::make_unique<Branch>();
    branch->index = i;
    branch->tokens = ask.prompt;
    branch->sampler = std::make_unique<Sampler>(ask.sampling, ask.prompt, ask.stop_ids, i);
    if (ask.constraint != nullptr) branch->constraint = ask.constraint->clone();
    request->branches.push_back(std::move(branch));
  }
  request->ask = std::move(ask);
  {
    const std::lock_guard lock(mutex_);
    if (draining_ || stopping_) return make_error(StatusCode::kUnavailable, "the server is shutting down");
    if (static_cast<std::int64_t>(live_.size()) >= options_.max_waiting) {
      return make_error(StatusCode::kResourceExhausted, "the queue is full: {} requests", live_.size());
    }
    request->handle = next_handle_++;
    request->arrival = static_cast<std::int64_t>(request->handle);
    live_[request->handle] = request;
    submitted_.push_back(request);
    wake_flag_ = true;
  }
  wake_.notify_one();
  return request->handle;
}

void TokenEngine::cancel(RequestHandle handle) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = live_.find(handle);
    if (found == live_.end()) return;
    found->second->cancelled = true;
    wake_flag_ = true;
  }
  wake_.notify_one();
}

CacheReport TokenEngine::cache_report(RequestHandle handle) const {
  const std::lock_guard lock(mutex_);
  const auto found = reports_.find(handle);
  return found == reports_.end() ? CacheReport{} : found->second;
}

EngineLimits TokenEngine::limits() const {
  return {.context_tokens = memory_.context_tokens, .vocab = model_->config().vocab};
}

EngineStats TokenEngine::stats() const {
  const std::lock_guard lock(mutex_);
  return published_;
}

Json TokenEngine::debug_cache(std::size_t limit) const {
  return cache_ == nullptr ? Json::object() : cache_->debug_tree(limit);
}

void TokenEngine::drain(double seconds) {
  std::unique_lock lock(mutex_);
  draining_ = true;
  idle_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return live_.empty(); });
}

// --- the restorer thread ------------------------------------------------------------------------------------------

void TokenEngine::run_restorer() {
  std::unique_lock lock(restore_mutex_);
  while (true) {
    restore_wake_.wait(lock, [this] { return restorer_stopping_ || !to_restore_.empty(); });
    if (restorer_stopping_) return;
    const auto [request, audit] = to_restore_.front();
    to_restore_.pop_front();
    lock.unlock();
    link_->restore(*request, root_of(*request), audit);
    request->restored = true;
    {
      const std::lock_guard wake_lock(mutex_);
      wake_flag_ = true;
    }
    wake_.notify_one();
    lock.lock();
  }
}

CacheRoot TokenEngine::root_of(const Request& request) const {
  return {.model_digest = model_digest_,
          .numerics_id = numerics_id_,
          .tenant = options_.share_tenants ? std::string() : request.ask.tenant,
          .cache_salt = request.ask.cache_salt};
}

// --- the engine thread --------------------------------------------------------------------------------------------

// Waiting requests are looked at again whenever something runs or ends; while others are being restored, the restorer
// wakes the loop.
bool TokenEngine::has_work() const {
  bool waiting = false;
  bool restoring = false;
  for (const RequestPtr& request : requests_) {
    if (request->phase == RequestPhase::kRunning) return true;
    waiting = waiting || request->phase == RequestPhase::kWaiting;
    restoring = restoring || request->phase == RequestPhase::kRestoring;
  }
  return waiting && !restoring;
}

void TokenEngine::run() {
  while (true) {
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return wake_flag_ || stopping_ || has_work(); });
      wake_flag_ = false;
      if (stopping_) break;
      for (RequestPtr& request : submitted_) requests_.push_back(std::move(request));
      submitted_.clear();
    }
    stop_cancelled();
    collect_restored();
    start_waiting();
    sample_ready();
    std::vector<Work> work = choose_work();
    if (work.empty()) {
      fail_stuck();
    } else {
      run_step(work);
    }
    end_finished();
    publish_stats();
  }
  // Shutting down: whoever is left is told so.
  for (const RequestPtr& request : requests_) {
    while (request->phase == RequestPhase::kRestoring && !request->restored) std::this_thread::yield();
    request->cancelled = true;
  }
  stop_cancelled();
  end_finished();
  for (const RequestPtr& request : submitted_) {
    for (const auto& branch : request->branches) request->sink(end_event(branch->index, FinishReason::kCancelled));
  }
}

// A cancelled request leaves its live state where it stopped, so that the same request sent again goes on from there.
void TokenEngine::stop_cancelled() {
  for (const RequestPtr& request : requests_) {
    if (!request->cancelled || request->finished()) continue;
    if (request->phase == RequestPhase::kRestoring && !request->restored) continue;  // soon
    for (const auto& branch : request->branches) {
      if (branch->finished) continue;
      if (request->session != nullptr && request->phase == RequestPhase::kRunning && branch->computed > 0 &&
          (branch->index == 0 || request->forked) && request->audit_position == 0 &&
          request->session->wants_state_on_cancel(branch->index, branch->computed)) {
        link_->store_progress(*request, *branch);
        link_->store_state(*request, *branch);
      }
      branch->finished = true;
      branch->drop_state();
      request->sink(end_event(branch->index, FinishReason::kCancelled));
    }
  }
}

void TokenEngine::collect_restored() {
  for (const RequestPtr& request : requests_) {
    if (request->phase != RequestPhase::kRestoring || !request->restored || request->finished()) continue;
    request->phase = RequestPhase::kRunning;
    counters_.cached_tokens += request->branches.front()->computed;
    if (request->reported) continue;
    request->reported = true;
    const std::lock_guard lock(mutex_);
    request->report.queue_seconds = request->queue_seconds;
    reports_[request->handle] = request->report;
    while (reports_.size() > kRememberedReports) reports_.erase(reports_.begin());
  }
}

void TokenEngine::start_waiting() {
  while (true) {
    std::vector<WaitingClaim> claims;
    std::vector<Request*> waiting;
    std::map<std::string, std::int64_t> running;
    std::int64_t branches = 0;
    std::int64_t promised = 0;  // pages that started requests hold or will need for their prompts
    std::int64_t longest = 0;   // pages that they need at their longest
    for (const RequestPtr& request : requests_) {
      if (request->finished()) continue;
      if (request->phase == RequestPhase::kWaiting) {
        claims.push_back({request->ask.tenant, request->ask.priority, request->arrival});
        waiting.push_back(request.get());
        continue;
      }
      running[request->ask.tenant] += request->ask.n;
      branches += request->ask.n;
      for (const auto& branch : request->branches) {
        if (branch->finished) continue;
        // While a prefix is restored its pages belong to the restorer's thread; they are fewer than the prompt needs.
        const bool restoring = request->phase == RequestPhase::kRestoring;
        const std::int64_t held = restoring ? 0 : static_cast<std::int64_t>(branch->pages.size());
        const std::int64_t needs = ceil_div(static_cast<std::int64_t>(branch->tokens.size()), kPageTokens);
        promised += branch->index == 0 || request->forked ? std::max(held, needs) : 1;
        longest += ceil_div(
            static_cast<std::int64_t>(branch->tokens.size()) + request->ask.max_tokens - branch->sampled, kPageTokens);
      }
    }
    const std::int64_t chosen = next_to_start(claims, running, served_);
    if (chosen < 0) return;
    Request& request = *waiting[static_cast<std::size_t>(chosen)];
    const std::int64_t needs =
        ceil_div(static_cast<std::int64_t>(request.branches.front()->tokens.size()) + 1, kPageTokens) + request.ask.n;
    const bool alone = branches == 0;
    // Who was pushed out once comes back when the others leave room for good, or both would thrash.
    const std::int64_t taken = request.preemptions > 0 ? std::max(promised, longest) : promised;
    if (!alone && (branches + request.ask.n > memory_.branches || taken + needs > pages_->capacity_pages())) return;
    if (request.forked) {
      // Preempted after the branches went apart: each recomputes its own tokens, without the cache.
      for (const auto& branch : request.branches) {
        if (!branch->finished) branch->start_state(model_->state_layout());
      }
      request.phase = RequestPhase::kRunning;
      continue;
    }
    audit_credit_ += cache_ != nullptr ? options_.cache_audit : 0;
    const bool audit = audit_credit_ >= 1;
    if (audit) audit_credit_ -= 1;
    request.restored = false;
    request.phase = RequestPhase::kRestoring;
    if (!request.reported) request.queue_seconds = seconds_since(request.submitted);
    const auto owner = std::find_if(requests_.begin(), requests_.end(),
                                    [&](const RequestPtr& candidate) { return candidate.get() == &request; });
    {
      const std::lock_guard lock(restore_mutex_);
      to_restore_.emplace_back(*owner, audit);
    }
    restore_wake_.notify_one();
  }
}

// Tokens of a branch up to the next place where its prefill must stop.
std::int64_t TokenEngine::tokens_to_stop(const Request& request, const Branch& branch) const {
  std::int64_t tokens = branch.pending();
  if (branch.index != 0 || request.session == nullptr) return tokens;
  const std::vector<std::int64_t>& stops = request.session->snapshot_positions();
  if (request.next_snapshot < stops.size()) tokens = std::min(tokens, stops[request.next_snapshot] - branch.computed);
  if (request.audit_position > branch.computed) tokens = std::min(tokens, request.audit_position - branch.computed);
  return tokens;
}

std::vector<TokenEngine::Work> TokenEngine::choose_work() {
  std::vector<Work> work;
  std::vector<Work> prefill;
  std::vector<PrefillClaim> claims;
  std::int64_t decodes = 0;
  for (const RequestPtr& request : requests_) {
    if (request->phase != RequestPhase::kRunning) continue;
    for (const auto& branch : request->branches) {
      if (branch->finished || branch->pending() == 0 || (branch->index > 0 && !request->forked)) continue;
      if (branch->sampled > 0 && branch->pending() == 1) {
        work.push_back({request.get(), branch.get(), 1, true});
        ++decodes;
        continue;
      }
      const std::int64_t pending = tokens_to_stop(*request, *branch);
      prefill.push_back({request.get(), branch.get(), pending, false});
      claims.push_back({request->ask.tenant, request->ask.priority, request->arrival, pending});
    }
  }
  const std::vector<std::int64_t> granted = share_prefill(claims, budget_.prefill_tokens(decodes));
  for (std::size_t i = 0; i < prefill.size(); ++i) {
    if (granted[i] == 0) continue;
    prefill[i].tokens = granted[i];
    work.push_back(prefill[i]);
  }
  // Pages for all of it. Making room may preempt others, so a piece is dropped when its branch lost its state.
  for (Work& piece : work) {
    if (piece.branch->recurrent.data() == nullptr) continue;
    if (!make_room(*piece.request, piece.tokens) || !piece.branch->prepare_pages(*pages_, piece.tokens)) {
      piece.tokens = 0;
    }
  }
  std::erase_if(work, [](const Work& piece) {
    return piece.tokens == 0 || piece.request->phase != RequestPhase::kRunning ||
           piece.branch->recurrent.data() == nullptr;
  });
  return work;
}

// Enough free pages for `tokens` more of one branch: cached blocks go first, then the youngest, least important
// request.
bool TokenEngine::make_room(const Request& needy, std::int64_t tokens) {
  const std::int64_t wanted = ceil_div(tokens, kPageTokens) + 2;
  while (pages_->free_pages() < wanted) {
    if (cache_ != nullptr && cache_->reclaim()) continue;
    Request* victim = nullptr;
    for (const RequestPtr& request : requests_) {
      if (request.get() == &needy || request->phase != RequestPhase::kRunning || request->finished()) continue;
      if (victim == nullptr || request->ask.priority < victim->ask.priority ||
          (request->ask.priority == victim->ask.priority && request->arrival > victim->arrival)) {
        victim = request.get();
      }
    }
    // The oldest and most important keeps its memory; a younger one waits for it.
    if (victim == nullptr) return pages_->free_pages() > 0;
    if (victim->ask.priority > needy.ask.priority ||
        (victim->ask.priority == needy.ask.priority && victim->arrival < needy.arrival)) {
      return false;
    }
    preempt(*victim);
  }
  return true;
}

// A request that is alone and still has no room for its next token can never end.
void TokenEngine::fail_stuck() {
  Request* stuck = nullptr;
  for (const RequestPtr& request : requests_) {
    if (request->finished() || request->phase != RequestPhase::kRunning) continue;
    if (stuck == nullptr || request->arrival > stuck->arrival) stuck = request.get();
  }
  if (stuck == nullptr) return;
  fail_request(*stuck,
               make_error(StatusCode::kResourceExhausted, "no page is left of {} for another token of {} branches",
                          pages_->capacity_pages(), stuck->ask.n));
}

void TokenEngine::preempt(Request& request) {
  for (const auto& branch : request.branches) branch->drop_state();
  request.session.reset();
  request.phase = RequestPhase::kWaiting;
  // A single branch starts again through the cache; several have gone apart and recompute what each of them has.
  if (request.ask.n == 1) request.forked = false;
  ++request.preemptions;
  ++counters_.preemptions;
}

void TokenEngine::run_step(std::vector<Work>& work) {
  const auto start = Clock::now();
  std::vector<Segment> segments;
  std::int64_t decodes = 0;
  std::int64_t prefill = 0;
  for (const Work& piece : work) {
    Branch& branch = *piece.branch;
    segments.push_back(
        {.sequence = {.position = branch.computed, .recurrent = branch.recurrent.data(), .pages = branch.page_pointers},
         .tokens = std::span(branch.tokens)
                       .subspan(static_cast<std::size_t>(branch.computed), static_cast<std::size_t>(piece.tokens)),
         .logits = piece.tokens == branch.pending() ? WantLogits::kLast : WantLogits::kNone});
    (piece.decode ? decodes : prefill) += piece.tokens;
    served_[piece.request->ask.tenant] += piece.tokens;
  }
  const StepOutput output = model_->forward(segments);
  const double seconds = seconds_since(start);
  budget_.record(decodes, prefill, seconds);
  counters_.step_sizes.record(decodes + prefill);
  counters_.prompt_tokens += prefill;
  (prefill > 0 ? counters_.prefill_seconds : counters_.decode_seconds) += seconds;
  record_cost(segments, prefill > 0);

  const auto hidden = static_cast<std::size_t>(model_->config().hidden);
  const auto vocab = static_cast<std::size_t>(model_->config().vocab);
  std::size_t logits_row = 0;
  for (std::size_t i = 0; i < work.size(); ++i) {
    std::span<const float> logits;
    if (segments[i].logits == WantLogits::kLast) logits = output.logits.subspan(logits_row++ * vocab, vocab);
    after_forward(work[i], output.final_rows.subspan(i * hidden, hidden), logits);
  }
  sums_.sample_seconds += seconds_since(start) - seconds;
}

// The work that the step's time is compared with: reads bound decoding, arithmetic bounds prefill.
void TokenEngine::record_cost(std::span<const Segment> segments, bool prefill) {
  std::int64_t depth = 0;
  double flops = 0;
  for (const Segment& segment : segments) {
    const std::int64_t position = segment.sequence.position;
    const auto tokens = static_cast<std::int64_t>(segment.tokens.size());
    depth += position;
    if (prefill) flops += cost_.flops(position, tokens, segment.logits == WantLogits::kLast ? 1 : 0);
  }
  const auto count = static_cast<std::int64_t>(segments.size());
  if (prefill) {
    sums_.prefill_flops += flops;
  } else {
    sums_.decode_read_bytes += cost_.bytes(depth / count, count);
  }
}

void TokenEngine::after_forward(const Work& work, std::span<const float> final_row, std::span<const float> logits) {
  Request& request = *work.request;
  Branch& branch = *work.branch;
  branch.computed += work.tokens;
  branch.final_row.assign(final_row.begin(), final_row.end());
  if (branch.finished) return;  // cancelled by its own sink earlier in this step
  link_->store_progress(request, branch);

  if (branch.index == 0 && request.session != nullptr) {
    if (request.audit_position > 0 && branch.computed == request.audit_position) {
      counters_.extra["cache_audits"] += 1;
      if (!link_->audit_matches(request)) counters_.extra["cache_audit_failures"] += 1;
      request.audit_position = 0;
    }
    const std::vector<std::int64_t>& stops = request.session->snapshot_positions();
    while (request.next_snapshot < stops.size() && stops[request.next_snapshot] <= branch.computed) {
      if (stops[request.next_snapshot] == branch.computed) link_->store_state(request, branch);
      ++request.next_snapshot;
    }
  }
  if (logits.empty()) return;
  if (branch.index == 0 && !request.forked) {
    start_generation(request, logits);
  } else {
    sample(request, branch, logits);
  }
}

// A restored prompt that ends exactly at its snapshot needs the head only.
void TokenEngine::sample_ready() {
  for (const RequestPtr& request : requests_) {
    if (request->phase != RequestPhase::kRunning || request->finished() || request->forked) continue;
    Branch& first = *request->branches.front();
    if (first.finished || first.pending() != 0 || first.final_row.empty()) continue;
    start_generation(*request, model_->logits_of(first.final_row));
  }
}

// The prompt is computed: the other branches start from here, and every branch draws its first token.
void TokenEngine::start_generation(Request& request, std::span<const float> logits) {
  Branch& first = *request.branches.front();
  for (std::size_t i = 1; i < request.branches.size(); ++i) {
    Branch& branch = *request.branches[i];
    branch.fork_from(first, model_->state_layout());
    branch.known = static_cast<std::int64_t>(branch.tokens.size());
    branch.stored = branch.computed / kBlockTokens * kBlockTokens;
  }
  request.forked = true;
  for (const auto& branch : request.branches) {
    if (!branch->finished) sample(request, *branch, logits);
  }
}

void TokenEngine::sample(Request& request, Branch& branch, std::span<const float> logits) {
  auto drawn = branch.sampler->sample(logits, branch.constraint.get());
  sums_.grammar_mask_seconds += branch.sampler->mask_seconds();
  if (!drawn.ok()) {
    fail_request(request, drawn.status());
    return;
  }
  const auto now = Clock::now();
  if (branch.sampled > 0) gaps_.record(std::chrono::duration<double>(now - branch.last_token).count());
  branch.last_token = now;
  branch.tokens.push_back(drawn->id);
  ++branch.sampled;
  ++counters_.generated_tokens;

  TokenEvent event{.branch = branch.index,
                   .id = drawn->id,
                   .logprob = drawn->logprob,
                   .top = std::move(drawn->top),
                   .finish = FinishReason::kNone,
                   .error = {}};
  const std::vector<TokenId>& stops = request.ask.stop_ids;
  if (std::find(stops.begin(), stops.end(), drawn->id) != stops.end()) {
    event.finish = FinishReason::kStop;
  } else if (branch.sampled >= request.ask.max_tokens ||
             static_cast<std::int64_t>(branch.tokens.size()) >= memory_.context_tokens) {
    event.finish = FinishReason::kLength;
  }
  if (event.finish != FinishReason::kNone) {
    finish_branch(request, branch, std::move(event));
  } else if (!request.sink(std::move(event))) {
    request.cancelled = true;
  }
}

void TokenEngine::finish_branch(Request& request, Branch& branch, TokenEvent event) {
  link_->store_end(request, branch);
  branch.finished = true;
  branch.drop_state();
  request.sink(std::move(event));
}

// The guard on NaN and infinity, or a grammar without a way out: this request ends, nothing of it stays in the cache.
void TokenEngine::fail_request(Request& request, const Status& status) {
  if (request.session != nullptr) {
    request.session->discard();
    request.session.reset();
  }
  for (const auto& branch : request.branches) {
    if (branch->finished) continue;
    branch->finished = true;
    branch->drop_state();
    request.sink(end_event(branch->index, FinishReason::kError, status));
  }
}

void TokenEngine::end_finished() {
  std::vector<RequestPtr> ended;
  std::erase_if(requests_, [&](const RequestPtr& request) {
    if (!request->finished()) return false;
    ended.push_back(request);
    return true;
  });
  if (ended.empty()) return;
  for (const RequestPtr& request : ended) {
    if (request->session != nullptr) request->session->finish();
    request->session.reset();
  }
  const std::lock_guard lock(mutex_);
  for (const RequestPtr& request : ended) live_.erase(request->handle);
  if (live_.empty()) idle_.notify_all();
}

void TokenEngine::publish_stats() {
  EngineStats stats = counters_;
  for (const RequestPtr& request : requests_) {
    (request->phase == RequestPhase::kRunning ? stats.running : stats.waiting) += 1;
  }
  const std::int64_t capacity = std::max<std::int64_t>(pages_->capacity_pages(), 1);
  stats.kv_usage = 1.0 - static_cast<double>(pages_->free_pages()) / static_cast<double>(capacity);
  stats.extra["sample_seconds"] = sums_.sample_seconds;
  stats.extra["grammar_mask_seconds"] = sums_.grammar_mask_seconds;
  stats.extra["prefill_flops"] = sums_.prefill_flops;
  stats.extra["decode_read_bytes"] = sums_.decode_read_bytes;
  stats.extra["inter_token_gap_p50_seconds"] = gaps_.percentile(0.5);
  stats.extra["inter_token_gap_p99_seconds"] = gaps_.percentile(0.99);
  if (cache_ != nullptr) {
    const PrefixCacheStats cache = cache_->stats();
    stats.extra["cache_lookups"] = static_cast<double>(cache.lookups);
    stats.extra["cache_restored_tokens"] = static_cast<double>(cache.restored_tokens);
    stats.extra["cache_ram_bytes"] = static_cast<double>(cache.ram_bytes);
    stats.extra["cache_disk_bytes"] = static_cast<double>(cache.disk_bytes);
    stats.extra["cache_corrupt_objects"] = static_cast<double>(cache.corrupt_objects);
    stats.extra["cache_evicted_objects"] = static_cast<double>(cache.evicted_objects);
  }
  const std::lock_guard lock(mutex_);
  published_ = std::move(stats);
}

}  // namespace perigee
