// The HTTP server of one model: routes, keys, limits, health, logs. It listens before the model is loaded and answers
// 503 until serve() is called.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "server/api/request.h"
#include "server/http_server.h"
#include "server/served_model.h"

namespace perigee::server {

struct ServerOptions {
  // Addresses, TLS, threads, limits and timeouts; the callbacks are filled by the server.
  HttpServerOptions http;
  std::vector<std::string> api_keys;      // empty: no key is asked for
  std::vector<std::string> admin_keys;    // further keys, which also see the whole of /debug/cache
  std::vector<std::string> cors_origins;  // "*": any; empty: no CORS headers at all
  bool open_metrics = false;              // /metrics without a key
  std::int64_t max_requests = 1024;       // generations running or queued; further ones get 429
  api::ApiMode mode = api::ApiMode::kNormal;
  std::vector<std::string> aliases;  // further names of the model
  std::FILE* access_log = nullptr;   // JSON lines; null: none
  bool log_bodies = false;           // the log gets whole request bodies, prompts included
};

// Methods are thread-safe.
class Server {
 public:
  static Result<std::unique_ptr<Server>> start(ServerOptions options);
  virtual ~Server() = default;

  virtual std::uint16_t port() const = 0;
  // The model is loaded: /health turns 200. Once.
  virtual void serve(ServedModel model) = 0;
  // /health turns 503; no new connections; running requests end, at most for `seconds`; then the rest is cut.
  virtual void drain(double seconds) = 0;
};

}  // namespace perigee::server
