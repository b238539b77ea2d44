// A small HTTP/1.1 client for acceptance tests of servers: one connection that is kept open, http and https, a time
// limit for each exchange, bounded answers. It follows no redirects and reads no proxy variables: what is measured is
// the endpoint that was named. Not thread-safe.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace perigee::verify {

struct Url {
  bool tls = false;
  std::string host;    // an IPv6 literal without its brackets
  std::string port;    // "80" and "443" where none is given
  std::string target;  // begins with "/"; no trailing slash: "" for the root

  std::string authority() const;  // as in a Host header
};

// http://host[:port][/base] or https://...; no user, query or fragment. The error says what is wrong.
Result<Url> parse_url(std::string_view text);

struct HttpClientOptions {
  double timeout_seconds = 600;  // of one exchange, connecting included
  std::size_t body_bytes = std::size_t{64} << 20;
  std::string api_key;     // sent as a bearer token; never shown
  std::string ca_file;     // PEM; empty: the system's certificates
  bool verify_tls = true;  // false: any certificate will do
};

struct HttpReply {
  int status = 0;
  std::string content_type;  // without parameters, lower case
  std::string body;
  double seconds = 0;
};

class HttpClient {
 public:
  // The certificate file is read here.
  static Result<HttpClient> create(Url url, HttpClientOptions options);
  HttpClient(HttpClient&&) noexcept;
  HttpClient& operator=(HttpClient&&) noexcept;
  ~HttpClient();

  // `path` begins with "/" and is appended to the base. A kept connection that the server has closed is opened anew.
  Result<HttpReply> get(std::string_view path);
  Result<HttpReply> post(std::string_view path, std::string body);

 private:
  struct State;
  explicit HttpClient(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace perigee::verify
