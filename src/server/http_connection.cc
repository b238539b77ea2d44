#include "server/http_connection.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <ctime>

#include "server/random.h"

namespace perigee::server {
namespace {

constexpr std::size_t kReadSize = std::size_t{16} << 10;
constexpr std::size_t kWriteSize = std::size_t{256} << 10;
constexpr std::size_t kLingerBytes = std::size_t{64} << 20;
constexpr auto kLingerTime = std::chrono::seconds(2);
// How soon a client that left is noticed when unread bytes hide it (pipelining, TLS records).
constexpr auto kPollInterval = std::chrono::milliseconds(250);

auto awaiting(boost::system::error_code& error) {
  return asio::redirect_error(asio::use_awaitable, error);
}

struct ActiveRequest {
  explicit ActiveRequest(Transport& t) : transport(t) { ++transport.active; }
  ~ActiveRequest() { --transport.active; }
  ActiveRequest(const ActiveRequest&) = delete;
  ActiveRequest& operator=(const ActiveRequest&) = delete;
  Transport& transport;
};

class ReadBuffer {
 public:
  explicit ReadBuffer(Loop& loop) : loop_(loop) {
    if (loop_.buffers.empty()) loop_.buffers.push_back(std::make_unique<char[]>(kReadSize));
    data_ = std::move(loop_.buffers.back());
    loop_.buffers.pop_back();
  }
  ~ReadBuffer() { loop_.buffers.push_back(std::move(data_)); }
  ReadBuffer(const ReadBuffer&) = delete;
  ReadBuffer& operator=(const ReadBuffer&) = delete;
  char* data() { return data_.get(); }

 private:
  Loop& loop_;
  std::unique_ptr<char[]> data_;
};

bool peer_closed(int fd) {
  pollfd entry{.fd = fd, .events = POLLRDHUP, .revents = 0};
  return ::poll(&entry, 1, 0) > 0 && (entry.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

// A client's own id is echoed only when it can stand in a log and a header unchanged.
bool usable_id(std::string_view id) {
  return !id.empty() && id.size() <= 128 && std::all_of(id.begin(), id.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_' ||
           c == '.' || c == ':';
  });
}

}  // namespace

std::string_view reason_phrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Content Too Large";
    case 417:
      return "Expectation Failed";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 505:
      return "HTTP Version Not Supported";
    case 529:
      return "Overloaded";
    default:
      return "Status";
  }
}

Connection::Connection(Transport& transport, Loop& loop, asio::ip::tcp::socket socket)
    : transport_(transport), loop_(loop), socket_(std::move(socket)), timer_(loop.context) {
  ++transport_.connections;
  loop_.open.insert(this);
  boost::system::error_code ignored;
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  const auto endpoint = socket_.remote_endpoint(ignored);
  if (!ignored) peer_ = endpoint.address().to_string();
}

Connection::~Connection() {
  loop_.open.erase(this);
  account_body(0);
  --transport_.connections;
}

void Connection::start() {
  asio::co_spawn(
      loop_.context, [self = shared_from_this()]() -> asio::awaitable<void> { co_await self->run(); }, asio::detached);
}

void Connection::check_deadline(Clock::time_point now) {
  if (now < deadline_) return;
  if (!reading_ || timed_out_) return close();
  timed_out_ = true;
  clear_deadline();
  boost::system::error_code ignored;
  socket_.cancel(ignored);
}

void Connection::close_if_idle() {
  if (idle_) close();
}

void Connection::close() {
  gone_ = true;
  boost::system::error_code ignored;
  socket_.close(ignored);
  timer_.cancel();
}

void Connection::account_body(std::size_t now) {
  transport_.body_bytes += static_cast<std::int64_t>(now) - static_cast<std::int64_t>(accounted_);
  accounted_ = now;
}

asio::awaitable<void> Connection::run() {
  if (transport_.tls && !co_await handshake()) co_return;
  for (;;) {
    keep_alive_ = false;
    if (rest_.empty() && !co_await wait_for_request()) break;
    idle_ = false;
    {
      HttpRequestParser parser(transport_.options.limits);
      record_ = AccessRecord();
      record_.peer = peer_;
      began_ = Clock::now();
      const ActiveRequest active(transport_);
      const bool readable = co_await read_request(parser);
      if (readable) keep_alive_ = co_await answer(parser) && keep_alive_;
      account_body(0);
      if (keep_alive_) rest_ = parser.take_rest();
    }
    idle_ = true;
    if (!keep_alive_ || transport_.draining) break;
  }
  if (!gone_) co_await linger();
  close();
}

asio::awaitable<bool> Connection::handshake() {
  boost::system::error_code error;
  tls_ = std::make_unique<asio::ssl::stream<asio::ip::tcp::socket&>>(socket_, *transport_.tls);
  set_deadline(transport_.options.header_timeout);
  co_await tls_->async_handshake(asio::ssl::stream_base::server, awaiting(error));
  if (error) close();
  co_return !error;
}

// No parser and no buffer exist while a connection is idle: this is what makes thousands of them cheap.
asio::awaitable<bool> Connection::wait_for_request() {
  if (tls_ && SSL_pending(tls_->native_handle()) > 0) co_return true;
  boost::system::error_code error;
  set_deadline(transport_.options.idle_timeout);
  rest_.shrink_to_fit();
  co_await socket_.async_wait(asio::ip::tcp::socket::wait_read, awaiting(error));
  co_return !error && !gone_;
}

asio::awaitable<std::size_t> Connection::read_some(char* data, std::size_t size) {
  boost::system::error_code error;
  std::size_t n = 0;
  if (tls_) {
    n = co_await tls_->async_read_some(asio::buffer(data, size), awaiting(error));
  } else {
    n = co_await socket_.async_read_some(asio::buffer(data, size), awaiting(error));
  }
  if (error && !timed_out_) gone_ = true;
  co_return error ? 0 : n;
}

asio::awaitable<bool> Connection::write(std::string_view bytes) {
  while (!bytes.empty() && !gone_) {
    const std::string_view piece = bytes.substr(0, kWriteSize);
    boost::system::error_code error;
    set_deadline(transport_.options.write_timeout);
    if (tls_) {
      co_await asio::async_write(*tls_, asio::buffer(piece.data(), piece.size()), awaiting(error));
    } else {
      co_await asio::async_write(socket_, asio::buffer(piece.data(), piece.size()), awaiting(error));
    }
    if (error) gone_ = true;
    record_.bytes_out += piece.size();
    bytes.remove_prefix(piece.size());
  }
  clear_deadline();
  co_return !gone_;
}

asio::awaitable<bool> Connection::refuse(HttpRequestParser& parser, int status, std::string_view message) {
  HttpRequest& request = parser.request();
  if (request.request_id.empty()) request.request_id = "req_" + random_hex(12);
  record_.request_id = request.request_id;
  record_.method = request.method;
  record_.path = request.path;
  HttpResponse response = transport_.options.error_response(status, message, request);
  keep_alive_ = false;
  chunked_ = false;
  unread_ = !timed_out_;  // who was too slow is not waited for again
  co_await send_whole(response, false);
  finish_record(response);
  co_return false;
}

asio::awaitable<bool> Connection::read_request(HttpRequestParser& parser) {
  const auto& options = transport_.options;
  set_deadline(options.header_timeout);
  ReadBuffer buffer(loop_);
  bool admitted = false;
  bool continued = false;
  if (!rest_.empty()) {
    std::string ahead = std::move(rest_);
    rest_.clear();
    parser.feed(ahead);
  }
  for (;;) {
    if (parser.error_status() != 0) {
      const int status = parser.error_status();
      const std::string message = parser.error();
      co_return co_await refuse(parser, status, message);
    }
    if (parser.header_done() && !admitted) {
      admitted = true;
      HttpRequest& request = parser.request();
      const std::string_view own = request.header("x-request-id");
      request.request_id = usable_id(own) ? std::string(own) : "req_" + random_hex(12);
      request.peer = peer_;
      HttpResponse response = options.admit(request);
      record_.tenant = request.tenant;
      if (response.status != 0) {
        // The body is unread, so the connection cannot serve another request.
        record_.request_id = request.request_id;
        record_.method = request.method;
        record_.path = request.path;
        keep_alive_ = parser.keep_alive() && parser.done();
        unread_ = !parser.done();
        chunked_ = false;
        co_await send_whole(response, request.method == "HEAD");
        finish_record(response);
        co_return false;
      }
      set_deadline(options.body_timeout);
    }
    if (parser.done()) break;
    if (parser.expects_continue() && !continued) {
      continued = true;
      if (!co_await write("HTTP/1.1 100 Continue\r\n\r\n")) co_return false;
      set_deadline(options.body_timeout);
    }
    reading_ = true;
    const std::size_t n = co_await read_some(buffer.data(), kReadSize);
    reading_ = false;
    if (timed_out_) {
      co_return co_await refuse(
          parser, 408,
          parser.header_done() ? "The request's body came too slowly" : "The request's header came too slowly");
    }
    if (n == 0) {
      keep_alive_ = false;
      co_return false;
    }
    record_.bytes_in += n;
    parser.feed(std::string_view(buffer.data(), n));
    if (parser.header_done()) deadline_ += std::chrono::milliseconds(1000 * n / (std::size_t{16} << 10));
    account_body(parser.buffered());
    if (transport_.body_bytes > static_cast<std::int64_t>(options.body_memory)) {
      co_return co_await refuse(parser, 503, "Too many request bodies are being read; try again later");
    }
  }
  clear_deadline();
  co_return true;
}

asio::awaitable<bool> Connection::answer(HttpRequestParser& parser) {
  HttpRequest& request = parser.request();
  record_.request_id = request.request_id;
  record_.method = request.method;
  record_.path = request.path;
  keep_alive_ = parser.keep_alive();
  chunked_ = !parser.http_1_0();
  const bool head_only = request.method == "HEAD";
  HttpResponse response;
  if (request.body.empty()) {
    response = transport_.options.handler(std::move(request));
  } else {
    // Parsing and tokenising a long body must not hold up the streams of this loop.
    response = co_await asio::co_spawn(
        transport_.workers,
        [this, &request]() -> asio::awaitable<HttpResponse> {
          co_return transport_.options.handler(std::move(request));
        },
        asio::use_awaitable);
  }
  bool ok = true;
  if (response.pending) {
    gone_ = gone_ || !socket_.is_open();
    response.pending->start(make_wake());
    watch_for_disconnect();
    if (response.stream) {
      ok = co_await stream(response, head_only);
    } else {
      co_await await_complete(response);
      ++watch_epoch_;
      boost::system::error_code ignored;
      socket_.cancel(ignored);
      ok = !gone_ && co_await send_whole(response, head_only);
    }
    if (!ok) response.pending->abandon(response);
    ++watch_epoch_;
    boost::system::error_code ignored;
    socket_.cancel(ignored);
  } else {
    ok = co_await send_whole(response, head_only);
  }
  finish_record(response);
  co_return ok;
}

asio::awaitable<void> Connection::await_complete(HttpResponse& response) {
  while (!gone_ && !response.pending->poll(response)) {
    if (response.body.size() >= kStreamPiece) continue;
    co_await wait_for_wake(transport_.options.heartbeat);
  }
}

asio::awaitable<bool> Connection::stream(HttpResponse& response, bool head_only) {
  bool complete = false;
  bool head_sent = false;
  std::string out;
  auto last_sent = Clock::now();
  if (!chunked_) keep_alive_ = false;
  while (!complete && !gone_) {
    response.body.clear();
    complete = response.pending->poll(response);
    if (response.body.empty() && !complete && Clock::now() - last_sent >= transport_.options.heartbeat) {
      response.body = response.heartbeat;
    }
    out.clear();
    if (!head_sent && (complete || !response.body.empty())) {
      out = head(response, -1);
      head_sent = true;
      if (head_only) co_return co_await write(out);
    }
    if (!response.body.empty()) {
      if (chunked_) fmt::format_to(std::back_inserter(out), "{:x}\r\n", response.body.size());
      out += response.body;
      if (chunked_) out += "\r\n";
    }
    if (complete && chunked_) out += "0\r\n\r\n";
    if (!out.empty()) {
      if (!co_await write(out)) co_return false;
      last_sent = Clock::now();
    }
    if (complete || response.body.size() >= kStreamPiece) continue;
    co_await wait_for_wake(transport_.options.heartbeat);
  }
  co_return complete && !gone_;
}

asio::awaitable<bool> Connection::send_whole(HttpResponse& response, bool head_only) {
  std::string first = head(response, static_cast<std::int64_t>(response.body.size()));
  if (head_only) co_return co_await write(first);
  const bool small = response.body.size() < kStreamPiece;
  if (small) first += response.body;
  if (!co_await write(first)) co_return false;
  if (!small) co_return co_await write(response.body);
  co_return true;
}

asio::awaitable<void> Connection::wait_for_wake(Clock::duration limit) {
  if (!woken_ && !gone_) {
    if (poll_socket_) limit = std::min<Clock::duration>(limit, kPollInterval);
    boost::system::error_code ignored;
    timer_.expires_after(limit);
    co_await timer_.async_wait(awaiting(ignored));
    if (poll_socket_ && socket_.is_open() && peer_closed(socket_.native_handle())) gone_ = true;
  }
  woken_ = false;
}

std::function<void()> Connection::make_wake() {
  woken_ = false;
  return [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self || self->wake_posted_.exchange(true)) return;
    auto& context = self->loop_.context;
    asio::post(context, [self] {
      self->wake_posted_ = false;
      self->woken_ = true;
      self->timer_.cancel();
    });
  };
}

void Connection::watch_for_disconnect() {
  poll_socket_ = false;
  socket_.async_wait(asio::ip::tcp::socket::wait_read,
                     [self = shared_from_this(), epoch = ++watch_epoch_](const boost::system::error_code& error) {
                       if (error || epoch != self->watch_epoch_ || !self->socket_.is_open()) return;
                       char byte = 0;
                       const ssize_t n = ::recv(self->socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
                       if (n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
                         self->gone_ = true;
                       } else {
                         self->poll_socket_ = true;
                       }
                       self->timer_.cancel();
                     });
}

// After an error the client may still be sending; closing at once would reset the connection and take the answer
// with it. So the rest is read and thrown away, for a bounded time.
asio::awaitable<void> Connection::linger() {
  boost::system::error_code error;
  set_deadline(kLingerTime);
  if (tls_) {
    co_await tls_->async_shutdown(awaiting(error));
    co_return;
  }
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, error);
  if (!unread_) co_return;
  ReadBuffer buffer(loop_);
  for (std::size_t total = 0; total < kLingerBytes && !error;) {
    const std::size_t n = co_await socket_.async_read_some(asio::buffer(buffer.data(), kReadSize), awaiting(error));
    total += n;
  }
}

std::string Connection::head(const HttpResponse& response, std::int64_t content_length) const {
  std::string out;
  out.reserve(512);
  const auto append = std::back_inserter(out);
  fmt::format_to(append, "HTTP/1.1 {} {}\r\nDate: {:%a, %d %b %Y %H:%M:%S} GMT\r\n", response.status,
                 reason_phrase(response.status), fmt::gmtime(std::time(nullptr)));
  if (response.status != 204) {
    if (!response.content_type.empty()) fmt::format_to(append, "Content-Type: {}\r\n", response.content_type);
    if (content_length >= 0) {
      fmt::format_to(append, "Content-Length: {}\r\n", content_length);
    } else if (chunked_) {
      out += "Transfer-Encoding: chunked\r\n";
    }
  }
  for (const auto& [name, value] : response.headers) fmt::format_to(append, "{}: {}\r\n", name, value);
  fmt::format_to(append, "X-Request-Id: {}\r\nConnection: {}\r\n\r\n", record_.request_id,
                 keep_alive_ && !transport_.draining ? "keep-alive" : "close");
  return out;
}

void Connection::finish_record(const HttpResponse& response) {
  record_.status = response.status;
  record_.log = response.log;
  record_.client_left = gone_;
  record_.seconds = std::chrono::duration<double>(Clock::now() - began_).count();
  transport_.options.on_finished(record_);
}

}  // namespace perigee::server
