// The transport: listens, speaks HTTP/1.1 (and TLS), keeps connections alive, streams answers with bounded memory,
// notices clients that leave. It knows nothing of models or JSON.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "server/http.h"
#include "server/http_parser.h"

namespace perigee::server {

struct HttpServerOptions {
  std::string address = "127.0.0.1";
  std::uint16_t port = 0;       // 0: any free port
  std::string tls_certificate;  // PEM chain; "" together with the key: plain HTTP
  std::string tls_key;
  int threads = 2;  // for sockets; requests are handled by as many others
  HttpLimits limits;
  std::size_t max_connections = 16384;
  std::size_t body_memory = std::size_t{1} << 30;  // all bodies together that are being read or handled
  std::chrono::milliseconds header_timeout{20000};
  std::chrono::milliseconds body_timeout{30000};  // plus one second for each 16 KiB received
  std::chrono::milliseconds idle_timeout{600000};
  std::chrono::milliseconds write_timeout{60000};  // for each piece of at most 256 KiB
  std::chrono::milliseconds heartbeat{10000};

  // Answers a request; must not throw. Requests with a body come on a worker thread, others on a socket thread, so
  // they must be quick. Called concurrently.
  std::function<HttpResponse(HttpRequest&&)> handler;
  // Looks at the header alone, before the body is read; a response other than status 0 is the answer.
  std::function<HttpResponse(HttpRequest&)> admit;
  // Words an error of the transport itself. `request` may be incomplete.
  std::function<HttpResponse(int status, std::string_view message, const HttpRequest& request)> error_response;
  std::function<void(const AccessRecord&)> on_finished;  // called on socket threads
};

struct HttpServerStats {
  std::int64_t connections = 0;
  std::int64_t active_requests = 0;
  std::int64_t accepted = 0;
};

// Methods are thread-safe.
class HttpServer {
 public:
  // Listening has begun when this returns. Errors name the address, or the certificate file.
  static Result<std::unique_ptr<HttpServer>> start(HttpServerOptions options);

  virtual ~HttpServer() = default;  // closes everything at once
  virtual std::uint16_t port() const = 0;
  virtual HttpServerStats stats() const = 0;
  // Takes no new connections, closes idle ones, lets running requests end. Returns when there are none left or the
  // time is over; true: none left.
  virtual bool drain(std::chrono::milliseconds limit) = 0;
};

// Raises the limit of open files to what the system allows; returns it.
std::size_t raise_file_limit();

}  // namespace perigee::server
