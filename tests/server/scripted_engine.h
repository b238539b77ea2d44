// An engine without a model, for tests: answers come from a script, token by token, through the same interface, threads
// and timing as real ones.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "text/tokenizer.h"

namespace perigee::server {

struct ScriptedCall {
  std::string name;
  std::vector<std::pair<std::string, std::string>> arguments;  // string values
};

// The first rule that fits a prompt gives its answer. Empty conditions always fit.
struct ScriptedRule {
  std::string role;      // of the last message: "user" or "tool"
  std::string last;      // a part of the last message
  std::string declares;  // a part of the prompt, such as the name of a tool
  std::string think;
  std::string content;  // "{last}" becomes the last message; "{words:N}" N words
  std::vector<ScriptedCall> calls;
};

// [{"role","last","declares","think","content","calls":[{"name","arguments":{}}]}]
Result<std::vector<ScriptedRule>> parse_script(std::string_view json);

struct ScriptedOptions {
  std::vector<ScriptedRule> rules;
  std::chrono::microseconds step{0};          // time of one decode step of the whole batch
  std::chrono::nanoseconds prefill_token{0};  // time per prompt token
  std::int64_t context_tokens = 131072;
  std::size_t max_running = 256;
};

// Answers prompts of the K3 dialect. A token that the request's constraint forbids ends the request with an error.
class ScriptedEngine final : public Engine {
 public:
  ScriptedEngine(Tokenizer tokenizer, ScriptedOptions options);
  ~ScriptedEngine() override;

  Result<RequestHandle> submit(GenerationRequest request, EventSink sink) override;
  void cancel(RequestHandle handle) override;
  CacheReport cache_report(RequestHandle handle) const override;
  EngineLimits limits() const override;
  EngineStats stats() const override;
  Json debug_cache(std::size_t limit) const override;
  void drain(double seconds) override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace perigee::server
