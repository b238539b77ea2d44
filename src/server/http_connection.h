// One client connection. Internal to the transport: the only header that shows Asio.
#pragma once

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "server/http_server.h"

namespace perigee::server {

namespace asio = boost::asio;
using Clock = std::chrono::steady_clock;

class Connection;

// What all connections share. Counters are atomic; the rest is constant after start.
struct Transport {
  explicit Transport(HttpServerOptions o) : options(std::move(o)), workers(static_cast<std::size_t>(options.threads)) {}

  HttpServerOptions options;
  std::unique_ptr<asio::ssl::context> tls;
  asio::thread_pool workers;
  std::atomic<std::int64_t> connections{0};
  std::atomic<std::int64_t> active{0};
  std::atomic<std::int64_t> accepted{0};
  std::atomic<std::int64_t> body_bytes{0};
  std::atomic<bool> draining{false};
};

// One thread's event loop and the connections that live on it; `open` is touched by that thread only. The context
// is destroyed first: with it go the coroutines, and with them the connections, which strike themselves off.
struct Loop {
  std::unordered_set<Connection*> open;
  // Read buffers that no request uses now. Were each request to allocate its own, the small objects of idle
  // connections would come to lie between them and hold the heap open.
  std::vector<std::unique_ptr<char[]>> buffers;
  asio::io_context context{1};
};

// Everything here runs on the connection's loop, except wake().
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Transport& transport, Loop& loop, asio::ip::tcp::socket socket);
  ~Connection();

  void start();
  // Closes the connection when its deadline has passed.
  void check_deadline(Clock::time_point now);
  // Between two requests a drained connection is closed at once.
  void close_if_idle();
  void close();

 private:
  asio::awaitable<void> run();
  asio::awaitable<bool> handshake();
  asio::awaitable<bool> wait_for_request();
  // False: the connection is over. A request that is refused was answered already.
  asio::awaitable<bool> read_request(HttpRequestParser& parser);
  asio::awaitable<bool> refuse(HttpRequestParser& parser, int status, std::string_view message);
  asio::awaitable<bool> answer(HttpRequestParser& parser);
  asio::awaitable<void> await_complete(HttpResponse& response);
  asio::awaitable<bool> stream(HttpResponse& response, bool head_only);
  asio::awaitable<bool> send_whole(HttpResponse& response, bool head_only);
  asio::awaitable<void> wait_for_wake(Clock::duration limit);
  asio::awaitable<bool> write(std::string_view bytes);
  asio::awaitable<std::size_t> read_some(char* data, std::size_t size);  // 0: closed or failed
  asio::awaitable<void> linger();

  std::string head(const HttpResponse& response, std::int64_t content_length) const;
  std::function<void()> make_wake();
  void watch_for_disconnect();
  void set_deadline(Clock::duration limit) { deadline_ = Clock::now() + limit; }
  void clear_deadline() { deadline_ = Clock::time_point::max(); }
  void account_body(std::size_t now);
  void finish_record(const HttpResponse& response);

  Transport& transport_;
  Loop& loop_;
  asio::ip::tcp::socket socket_;
  std::unique_ptr<asio::ssl::stream<asio::ip::tcp::socket&>> tls_;
  asio::steady_timer timer_;
  Clock::time_point deadline_ = Clock::time_point::max();
  Clock::time_point began_;
  AccessRecord record_;
  std::string rest_;  // bytes of the next request, when a client sends ahead
  std::string peer_;
  std::size_t accounted_ = 0;  // of Transport::body_bytes
  std::uint32_t watch_epoch_ = 0;
  bool idle_ = true;
  bool keep_alive_ = false;
  bool chunked_ = true;
  bool gone_ = false;     // the client has closed, or an operation failed
  bool reading_ = false;  // in the middle of a request: a passed deadline is answered before the end
  bool timed_out_ = false;
  bool poll_socket_ = false;  // unread bytes hide the end of the stream from the watch
  bool woken_ = false;
  bool unread_ = false;  // the request was refused before all of it was read
  std::atomic<bool> wake_posted_{false};
};

std::string_view reason_phrase(int status);

}  // namespace perigee::server
