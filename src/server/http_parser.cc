#include "server/http_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

namespace perigee::server {

namespace http = boost::beast::http;

struct HttpRequestParser::Impl {
  http::request_parser<http::string_body> parser;
};

std::string_view HttpRequest::header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (key == name) return value;
  }
  return {};
}

HttpRequestParser::HttpRequestParser(const HttpLimits& limits) : impl_(std::make_unique<Impl>()), limits_(limits) {
  impl_->parser.header_limit(static_cast<std::uint32_t>(limits.header_bytes));
  impl_->parser.body_limit(limits.body_bytes);
}

HttpRequestParser::~HttpRequestParser() = default;

bool HttpRequestParser::started() const {
  return impl_->parser.got_some() || !input_.empty();
}
bool HttpRequestParser::header_done() const {
  return header_done_;
}
bool HttpRequestParser::done() const {
  return done_;
}

bool HttpRequestParser::expects_continue() const {
  return header_done_ && !done_ && error_status_ == 0 && !http_1_0_ && !request_.header("expect").empty();
}

std::size_t HttpRequestParser::buffered() const {
  return input_.capacity() + impl_->parser.get().body().capacity() + request_.body.capacity();
}

std::string HttpRequestParser::take_rest() {
  return std::move(input_);
}

void HttpRequestParser::fail(int status, std::string message) {
  error_status_ = status;
  error_ = std::move(message);
  keep_alive_ = false;
  input_.clear();
}

void HttpRequestParser::feed(std::string_view bytes) {
  if (error_status_ != 0) return;
  input_.append(bytes);
  if (done_) return;
  // A blank line before a request line is allowed (RFC 9112 2.2); the parser below does not take it.
  if (!impl_->parser.got_some()) {
    const std::size_t start = input_.find_first_not_of("\r\n");
    input_.erase(0, std::min(start, input_.size()));
  }
  std::size_t used = 0;
  while (used < input_.size() && !impl_->parser.is_done()) {
    // Beast (Boost 1.81) aborts on a last chunk of which it has seen "0\r\n" and gets one byte more. Two more must
    // come.
    const std::string_view left = std::string_view(input_).substr(used);
    if (header_done_ && impl_->parser.chunked() && left.size() < 5 && left.starts_with("0\r\n")) break;
    boost::system::error_code error;
    const std::size_t n =
        impl_->parser.put(boost::asio::const_buffer(input_.data() + used, input_.size() - used), error);
    used += n;
    if (impl_->parser.is_header_done() && !header_done_) {
      finish_header();
      if (error_status_ != 0) return;
      // Not sooner: the fields of a chunked body's trailer, which Beast adds to those of the header, would be among
      // them.
      impl_->parser.eager(true);
    }
    if (error == http::error::need_more) break;
    if (error == http::error::header_limit) {
      return fail(431, fmt::format("The request header is larger than {} bytes", limits_.header_bytes));
    }
    if (error == http::error::body_limit) {
      return fail(413, fmt::format("The request body is larger than {} bytes", limits_.body_bytes));
    }
    if (error == http::error::bad_version) return fail(505, "Only HTTP/1.0 and HTTP/1.1 are spoken here");
    if (error == http::error::bad_transfer_encoding) {
      return fail(400, "Transfer-Encoding must be chunked, alone and without Content-Length");
    }
    if (error) return fail(400, fmt::format("Malformed HTTP request: {}", error.message()));
    if (n == 0) break;
  }
  input_.erase(0, used);
  if (impl_->parser.is_done() && error_status_ == 0) {
    request_.body = std::move(impl_->parser.get().body());
    done_ = true;
  }
}

void HttpRequestParser::finish_header() {
  header_done_ = true;
  const auto& message = impl_->parser.get();
  http_1_0_ = message.version() == 10;
  keep_alive_ = message.keep_alive();
  request_.method = std::string(message.method_string());
  const std::string_view target(message.target().data(), message.target().size());
  const std::size_t question = target.find('?');
  request_.path = std::string(target.substr(0, question));
  if (question != std::string_view::npos) request_.query = std::string(target.substr(question + 1));
  int hosts = 0;
  for (const auto& field : message) {
    std::string name(field.name_string());
    std::transform(name.begin(), name.end(), name.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
    if (name == "host") ++hosts;
    request_.headers.emplace_back(std::move(name), std::string(field.value()));
  }
  if (message.version() != 10 && message.version() != 11) {
    return fail(505, "Only HTTP/1.0 and HTTP/1.1 are spoken here");
  }
  if (message.version() == 11 && hosts != 1) return fail(400, "An HTTP/1.1 request needs exactly one Host header");
  if (!request_.path.starts_with('/') && request_.path != "*") return fail(400, "The request target must be a path");
  if (request_.method == "CONNECT" || request_.method == "TRACE") return fail(405, "This method is not supported");
  if (message.has_content_length() && !request_.header("transfer-encoding").empty()) {
    return fail(400, "Transfer-Encoding must be chunked, alone and without Content-Length");
  }
  const std::string_view expect = request_.header("expect");
  if (!expect.empty() && expect != "100-continue" && expect != "100-Continue") {
    return fail(417, "Only the expectation 100-continue is supported");
  }
}

}  // namespace perigee::server
