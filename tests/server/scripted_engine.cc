#include "scripted_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/json.h"

namespace perigee::server {
namespace {

constexpr std::size_t kRememberedPrompts = 64;
constexpr std::int64_t kBlock = 256;

struct LastMessage {
  std::string role;
  std::string text;
};

// The last user or tool message of a rendered K3 prompt.
LastMessage last_message(const std::string& prompt) {
  LastMessage last;
  const std::string open = "<|open|>message role=\"";
  for (std::size_t at = prompt.rfind(open); at != std::string::npos; at = at == 0 ? at : prompt.rfind(open, at - 1)) {
    const std::size_t role_at = at + open.size();
    last.role = prompt.substr(role_at, prompt.find('"', role_at) - role_at);
    if (last.role == "user" || last.role == "tool") {
      const std::size_t begin = prompt.find("<|sep|>", role_at) + 7;
      last.text = prompt.substr(begin, prompt.find("<|close|>message", begin) - begin);
      return last;
    }
    if (at == 0) break;
  }
  last.text = prompt;
  return last;
}

std::string replace_all(std::string text, std::string_view from, const std::string& to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
  return text;
}

std::string expand(std::string text, const LastMessage& last) {
  const std::size_t words = text.find("{words:");
  if (words != std::string::npos) {
    const long count = std::strtol(text.c_str() + words + 7, nullptr, 10);
    std::string list;
    for (long i = 0; i < count; ++i) list += " word";
    text.replace(words, text.find('}', words) + 1 - words, list);
  }
  return replace_all(std::move(text), "{last}", last.text);
}

std::string markup(const ScriptedRule& rule, const LastMessage& last, bool thinking) {
  std::string out;
  if (thinking) out = expand(rule.think, last) + "<|close|>think<|sep|><|open|>response<|sep|>";
  out += expand(rule.content, last) + "<|close|>response<|sep|>";
  if (!rule.calls.empty()) {
    out += "<|open|>tools<|sep|>";
    int index = 0;
    for (const ScriptedCall& call : rule.calls) {
      out += fmt::format("<|open|>call tool=\"{}\" index=\"{}\"<|sep|>", call.name, ++index);
      for (const auto& [key, value] : call.arguments) {
        out += fmt::format("<|open|>argument key=\"{}\" type=\"string\"<|sep|>{}<|close|>argument<|sep|>", key,
                           expand(value, last));
      }
      out += "<|close|>call<|sep|>";
    }
    out += "<|close|>tools<|sep|>";
  }
  return out + "<|close|>message<|sep|><|end_of_msg|>";
}

}  // namespace

Result<std::vector<ScriptedRule>> parse_script(std::string_view json) {
  PERIGEE_ASSIGN_OR_RETURN(const Json document, parse_json(json));
  std::vector<ScriptedRule> rules;
  for (const Json& item : document) {
    ScriptedRule rule;
    rule.role = item.value("role", "");
    rule.last = item.value("last", "");
    rule.declares = item.value("declares", "");
    rule.think = item.value("think", "");
    rule.content = item.value("content", "");
    for (const Json& call : item.value("calls", Json::array())) {
      ScriptedCall scripted{call.at("name"), {}};
      for (const auto& [key, value] : call.at("arguments").items()) scripted.arguments.emplace_back(key, value);
      rule.calls.push_back(std::move(scripted));
    }
    rules.push_back(std::move(rule));
  }
  return rules;
}

struct ScriptedEngine::State {
  struct Branch {
    std::unique_ptr<TokenConstraint> constraint;
    std::size_t next = 0;
    bool ended = false;
  };
  struct Running {
    RequestHandle handle = 0;
    GenerationRequest request;
    EventSink sink;
    std::vector<TokenId> answer;
    std::vector<Branch> branches;
    std::chrono::steady_clock::time_point prefilled;
    bool cancelled = false;
  };

  State(Tokenizer t, ScriptedOptions o) : tokenizer(std::move(t)), options(std::move(o)) {}

  std::vector<TokenId> answer_to(const std::vector<TokenId>& prompt) const {
    const std::string text = tokenizer.decode(prompt, SpecialText::kKeep);
    const LastMessage last = last_message(text);
    ScriptedRule fallback;
    fallback.think = "Let me see.";
    fallback.content = "Scripted answer.";
    const ScriptedRule* chosen = &fallback;
    for (const ScriptedRule& rule : options.rules) {
      if ((rule.role.empty() || rule.role == last.role) && last.text.find(rule.last) != std::string::npos &&
          text.find(rule.declares) != std::string::npos) {
        chosen = &rule;
        break;
      }
    }
    if (!text.ends_with("<|sep|>")) return tokenizer.encode(expand(chosen->content, last));
    return tokenizer.encode_with_specials(markup(*chosen, last, text.ends_with("<|open|>think<|sep|>")));
  }

  CacheReport look_up(const std::vector<TokenId>& prompt) const {
    CacheReport report;
    report.prompt_tokens = static_cast<std::int64_t>(prompt.size());
    for (const std::vector<TokenId>& other : remembered) {
      const auto n = std::min(other.size(), prompt.size());
      const auto equal = std::mismatch(prompt.begin(), prompt.begin() + static_cast<std::ptrdiff_t>(n), other.begin());
      report.common_tokens = std::max<std::int64_t>(report.common_tokens, equal.first - prompt.begin());
    }
    report.whole_blocks = report.common_tokens / kBlock;
    report.restored_tokens = std::min(report.common_tokens, report.prompt_tokens - 1);
    report.reason = report.common_tokens == 0 ? "nothing_stored" : "diverges";
    return report;
  }

  void loop() {
    std::unique_lock lock(mutex);
    while (!stopping) {
      if (running.empty()) {
        changed.wait(lock, [&] { return stopping || !running.empty(); });
        continue;
      }
      const auto now = std::chrono::steady_clock::now();
      const std::size_t batch = std::min(running.size(), options.max_running);
      std::vector<std::shared_ptr<Running>> current(running.begin(),
                                                    running.begin() + static_cast<std::ptrdiff_t>(batch));
      lock.unlock();
      bool any = false;
      std::int64_t tokens = 0;
      for (const auto& entry : current) {
        if (entry->prefilled > now) continue;
        any = true;
        tokens += step(*entry);
      }
      const auto pause =
          any ? std::chrono::duration_cast<std::chrono::nanoseconds>(options.step) : std::chrono::nanoseconds(500000);
      if (pause.count() > 0) std::this_thread::sleep_until(now + pause);
      lock.lock();
      counters.step_sizes.record(tokens);
      counters.generated_tokens += tokens;
      std::erase_if(running, [&](const std::shared_ptr<Running>& entry) {
        if (!entry->cancelled && !std::all_of(entry->branches.begin(), entry->branches.end(),
                                              [](const Branch& branch) { return branch.ended; })) {
          return false;
        }
        if (entry->cancelled) remember(*entry);
        return true;
      });
      changed.notify_all();
    }
  }

  // Under mutex.
  void remember(const Running& entry) {
    std::vector<TokenId> whole = entry.request.prompt;
    if (!entry.branches.empty()) {
      const std::size_t sampled = std::min(entry.branches[0].next, entry.answer.size());
      whole.insert(whole.end(), entry.answer.begin(), entry.answer.begin() + static_cast<std::ptrdiff_t>(sampled));
    }
    remembered.push_front(std::move(whole));
    if (remembered.size() > kRememberedPrompts) remembered.pop_back();
  }

  std::int64_t step(Running& entry) {
    std::int64_t tokens = 0;
    for (std::size_t i = 0; i < entry.branches.size(); ++i) {
      Branch& branch = entry.branches[i];
      if (branch.ended || cancelled(entry)) continue;
      TokenEvent event = next_event(entry, branch);
      event.branch = static_cast<std::int32_t>(i);
      if (event.id >= 0) ++tokens;
      branch.ended = event.finish != FinishReason::kNone;
      if (branch.ended && i == 0) {
        // Before the event: its client may send the next turn at once.
        const std::lock_guard lock(mutex);
        remember(entry);
      }
      if (!entry.sink(std::move(event))) branch.ended = true;
    }
    return tokens;
  }

  bool cancelled(const Running& entry) {
    const std::lock_guard lock(mutex);
    return entry.cancelled;
  }

  TokenEvent next_event(Running& entry, Branch& branch) const {
    TokenEvent event;
    // An answer that has run out goes on with its last words when the client ignores its end.
    event.id = entry.answer[std::min(branch.next, entry.answer.size() - 1)];
    if (branch.constraint) {
      std::vector<std::uint32_t> allowed((static_cast<std::size_t>(tokenizer.vocab()) + 31) / 32, ~0U);
      branch.constraint->mask(allowed);
      if ((allowed[static_cast<std::size_t>(event.id) / 32] >> (event.id % 32) & 1U) == 0) {
        event.finish = FinishReason::kError;
        event.error = make_error(StatusCode::kInternal, "the script's token {} at {} is forbidden by the constraint",
                                 event.id, branch.next);
        event.id = -1;
        return event;
      }
      branch.constraint->accept(event.id);
    }
    ++branch.next;
    event.logprob = -0.25F;
    for (std::int32_t k = 0; k < entry.request.sampling.top_logprobs; ++k) {
      event.top.push_back({k == 0 ? event.id : k, -0.25F - static_cast<float>(k)});
    }
    const auto& stops = entry.request.stop_ids;
    if (std::find(stops.begin(), stops.end(), event.id) != stops.end()) {
      event.finish = FinishReason::kStop;
    } else if (static_cast<std::int64_t>(branch.next) >= entry.request.max_tokens) {
      event.finish = FinishReason::kLength;
    }
    return event;
  }

  const Tokenizer tokenizer;
  const ScriptedOptions options;
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::shared_ptr<Running>> running;
  std::deque<std::vector<TokenId>> remembered;  // prompts with their answers, newest first
  std::map<RequestHandle, CacheReport> reports;
  EngineStats counters;
  RequestHandle next_handle = 1;
  bool stopping = false;
  bool draining = false;
  std::thread thread;
};

ScriptedEngine::ScriptedEngine(Tokenizer tokenizer, ScriptedOptions options)
    : state_(std::make_unique<State>(std::move(tokenizer), std::move(options))) {
  state_->thread = std::thread([state = state_.get()] { state->loop(); });
}

ScriptedEngine::~ScriptedEngine() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
  }
  state_->changed.notify_all();
  state_->thread.join();
}

Result<RequestHandle> ScriptedEngine::submit(GenerationRequest request, EventSink sink) {
  auto entry = std::make_shared<State::Running>();
  entry->answer = state_->answer_to(request.prompt);
  entry->branches.resize(static_cast<std::size_t>(request.n));
  for (State::Branch& branch : entry->branches) {
    if (request.constraint) branch.constraint = request.constraint->clone();
  }
  entry->prefilled = std::chrono::steady_clock::now() +
                     state_->options.prefill_token * static_cast<std::int64_t>(request.prompt.size());
  entry->request = std::move(request);
  entry->sink = std::move(sink);
  const std::lock_guard lock(state_->mutex);
  if (state_->draining) return Status(StatusCode::kUnavailable, "the engine is draining");
  entry->handle = state_->next_handle++;
  const CacheReport report = state_->look_up(entry->request.prompt);
  state_->counters.prompt_tokens += report.prompt_tokens - report.restored_tokens;
  state_->counters.cached_tokens += report.restored_tokens;
  state_->reports[entry->handle] = report;
  if (state_->reports.size() > 4096) state_->reports.erase(state_->reports.begin());
  state_->running.push_back(entry);
  state_->changed.notify_all();
  return entry->handle;
}

void ScriptedEngine::cancel(RequestHandle handle) {
  const std::lock_guard lock(state_->mutex);
  for (const auto& entry : state_->running) {
    if (entry->handle == handle) entry->cancelled = true;
  }
}

CacheReport ScriptedEngine::cache_report(RequestHandle handle) const {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->reports.find(handle);
  return found == state_->reports.end() ? CacheReport() : found->second;
}

EngineLimits ScriptedEngine::limits() const {
  return {.context_tokens = state_->options.context_tokens, .vocab = state_->tokenizer.vocab()};
}

Json ScriptedEngine::debug_cache(std::size_t /*limit*/) const {
  return Json::object();
}

EngineStats ScriptedEngine::stats() const {
  const std::lock_guard lock(state_->mutex);
  EngineStats stats = state_->counters;
  const auto total = static_cast<std::int64_t>(state_->running.size());
  stats.running = std::min(total, static_cast<std::int64_t>(state_->options.max_running));
  stats.waiting = total - stats.running;
  return stats;
}

void ScriptedEngine::drain(double seconds) {
  std::unique_lock lock(state_->mutex);
  state_->draining = true;
  state_->changed.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return state_->running.empty(); });
}

}  // namespace perigee::server
