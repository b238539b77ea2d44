// HTTP as the rest of the server sees it: plain values, and answers that are still being made. Nothing of the
// transport's library shows here.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace perigee::server {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;
  std::string path;   // without the query
  std::string query;  // after '?', still encoded
  Headers headers;    // names in lower case, values as received
  std::string body;
  std::string peer;        // address of the client
  std::string request_id;  // the client's own X-Request-Id where it is usable, else a fresh one
  std::string tenant;      // filled by the application once the key is known, like the next
  bool admin = false;      // may see what belongs to other tenants

  // First header of that (lower-case) name, or "".
  std::string_view header(std::string_view name) const;
};

class PendingResponse;

struct HttpResponse {
  int status = 200;
  Headers headers{};  // beside the ones of the transport (Content-Length, Connection, Date, X-Request-Id)
  std::string content_type = "application/json";
  std::string body{};
  // Set: the body is still being made. A stream goes out piece by piece, anything else once it is complete.
  std::shared_ptr<PendingResponse> pending{};
  bool stream = false;
  std::string heartbeat{};  // what a stream sends when nothing else was sent for a while; "" for nothing
  std::string log{};        // JSON members for the access log, without the outer braces
};

// An answer in the making. start, poll and abandon are called by the connection's thread, one at a time.
class PendingResponse {
 public:
  virtual ~PendingResponse() = default;
  // `wake` asks for another poll. It never blocks and may be called by any thread at any time, also after the
  // answer is complete.
  virtual void start(std::function<void()> wake) = 0;
  // Appends what is ready to `response.body`. True: the answer is complete. Status and headers may be changed as
  // long as nothing was sent; of a stream they go out with the first bytes of the body, or with the first heartbeat.
  // Once `response.body` holds
  // `kStreamPiece` bytes poll should return; it is called again when these are on their way.
  virtual bool poll(HttpResponse& response) = 0;
  // The client has left, or the server gives up on it. Nothing is called afterwards; only `response.log` matters.
  virtual void abandon(HttpResponse& response) = 0;
};

inline constexpr std::size_t kStreamPiece = std::size_t{32} << 10;

// One finished exchange, for logs and counters.
struct AccessRecord {
  std::string request_id;
  std::string method;
  std::string path;
  std::string peer;
  std::string tenant;
  std::string log;
  int status = 0;
  std::uint64_t bytes_in = 0;
  std::uint64_t bytes_out = 0;
  double seconds = 0;
  bool client_left = false;
};

}  // namespace perigee::server
