// A blocking socket on loopback that sends exactly the bytes it is told, for tests of what clients get wrong.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace perigee::server {

class RawClient {
 public:
  explicit RawClient(std::uint16_t port);
  ~RawClient();
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  bool send(std::string_view bytes);  // false: the server has closed
  // Reads until `text` has come, the server closes or the time is over; returns all that was read so far and not yet
  // returned.
  std::string read_until(std::string_view text, int milliseconds = 5000);
  std::string read_all(int milliseconds = 5000);  // until the server closes
  bool closed_within(int milliseconds);           // the server closes; what it sends before is dropped
  void close();
  int fd() const { return fd_; }
  void shutdown_send();

  // Sends a request and returns the whole response of a server that keeps the connection open (Content-Length only).
  std::string exchange(std::string_view request);

 private:
  int fd_ = -1;
};

int status_of(std::string_view response);
std::string body_of(std::string_view response);

}  // namespace perigee::server
