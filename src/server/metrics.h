// What /metrics shows: the names of vLLM, so that its dashboards work, and ours beside them.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "engine/engine.h"
#include "server/http_server.h"
#include "server/served_model.h"

namespace perigee::server {

// One finished generation.
struct GenerationRecord {
  std::string_view finish;  // "stop", "length", "tool_calls", "abort", "error"
  double seconds = 0;       // since the request arrived
  double first_token_seconds = 0;
  double queue_seconds = 0;
  double prefill_seconds = 0;  // from the end of the queue to the first token; 0: there was none
  double decode_seconds = 0;
  std::int64_t prompt_tokens = 0;
  std::int64_t completion_tokens = 0;
  std::string_view cache_reason;
};

// Thread-safe.
class Metrics {
 public:
  explicit Metrics(const std::string& model, const MachineLimits& limits = {});
  ~Metrics();

  void inter_token(double seconds);
  void generation(const GenerationRecord& record);
  void http_request(std::string_view route, int status, bool client_left);

  // Prometheus text format 0.0.4. `engine` may be null while a model loads.
  std::string text(const EngineStats* engine, const HttpServerStats& http) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace perigee::server
