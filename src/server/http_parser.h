// Reads one HTTP/1.x request from bytes that arrive in any pieces, within limits. Hostile input ends in a 4xx status.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "server/http.h"

namespace perigee::server {

struct HttpLimits {
  std::size_t header_bytes = std::size_t{32} << 10;
  std::size_t body_bytes = std::size_t{64} << 20;
};

// Not thread-safe; one object per request.
class HttpRequestParser {
 public:
  explicit HttpRequestParser(const HttpLimits& limits);
  ~HttpRequestParser();

  // Takes all of `bytes`. What follows a complete request is kept for the next one (take_rest).
  void feed(std::string_view bytes);

  bool started() const;      // a byte has been seen
  bool header_done() const;  // method, path and headers of request() are final
  bool done() const;
  // 0, or the status to answer with (400, 405, 413, 417, 431, 501, 505); the connection must then be closed.
  int error_status() const { return error_status_; }
  const std::string& error() const { return error_; }
  // The client waits for "100 Continue" before it sends the body.
  bool expects_continue() const;
  bool keep_alive() const { return keep_alive_; }
  bool http_1_0() const { return http_1_0_; }
  std::size_t buffered() const;  // bytes of memory that the request holds now

  HttpRequest& request() { return request_; }
  std::string take_rest();

 private:
  struct Impl;
  void fail(int status, std::string message);
  void finish_header();

  std::unique_ptr<Impl> impl_;
  HttpLimits limits_;
  HttpRequest request_;
  std::string input_;  // bytes that the parser has not consumed yet
  std::string error_;
  int error_status_ = 0;
  bool header_done_ = false;
  bool done_ = false;
  bool keep_alive_ = false;
  bool http_1_0_ = false;
};

}  // namespace perigee::server
