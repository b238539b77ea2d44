#include "server/http_server.h"

#include <openssl/ssl.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <thread>
#include <vector>

#include "server/http_connection.h"

namespace perigee::server {
namespace {

using boost::system::error_code;

Result<std::unique_ptr<asio::ssl::context>> load_tls(const std::string& certificate, const std::string& key) {
  auto context = std::make_unique<asio::ssl::context>(asio::ssl::context::tls_server);
  SSL_CTX_set_min_proto_version(context->native_handle(), TLS1_2_VERSION);
  SSL_CTX_set_mode(context->native_handle(), SSL_MODE_RELEASE_BUFFERS);
  error_code error;
  context->use_certificate_chain_file(certificate, error);
  if (error) return invalid_argument("TLS certificate {}: {}", certificate, error.message());
  context->use_private_key_file(key, asio::ssl::context::pem, error);
  if (error) return invalid_argument("TLS key {}: {}", key, error.message());
  if (SSL_CTX_check_private_key(context->native_handle()) != 1) {
    return invalid_argument("TLS key {} does not belong to certificate {}", key, certificate);
  }
  return context;
}

class AsioHttpServer final : public HttpServer {
 public:
  explicit AsioHttpServer(HttpServerOptions options) : transport_(std::move(options)) {
    const int threads = std::max(1, transport_.options.threads);
    for (int i = 0; i < threads; ++i) loops_.push_back(std::make_unique<Loop>());
  }

  ~AsioHttpServer() override {
    transport_.draining = true;
    transport_.workers.join();
    for (const auto& loop : loops_) {
      asio::post(loop->context, [this, &loop = *loop] {
        close_acceptor(loop);
        for (Connection* connection : std::vector<Connection*>(loop.open.begin(), loop.open.end())) connection->close();
        loop.context.stop();
      });
    }
    for (std::thread& thread : threads_) thread.join();
    // Coroutines that the loops still hold go first: they refer to the transport.
    acceptor_.reset();
    loops_.clear();
  }

  Status listen() {
    const HttpServerOptions& options = transport_.options;
    if (options.tls_certificate.empty() != options.tls_key.empty()) {
      return invalid_argument("TLS needs both a certificate and a key");
    }
    if (!options.tls_certificate.empty()) {
      PERIGEE_ASSIGN_OR_RETURN(transport_.tls, load_tls(options.tls_certificate, options.tls_key));
    }
    error_code error;
    const std::string name = options.address == "localhost" ? "127.0.0.1" : options.address;
    const auto address = asio::ip::make_address(name, error);
    if (error) return invalid_argument("Listen address {}: expected an IP address", options.address);
    const asio::ip::tcp::endpoint endpoint(address, options.port);
    acceptor_ = std::make_unique<asio::ip::tcp::acceptor>(loops_[0]->context);
    acceptor_->open(endpoint.protocol(), error);
    if (!error) acceptor_->set_option(asio::socket_base::reuse_address(true), error);
    if (!error) acceptor_->bind(endpoint, error);
    if (!error) acceptor_->listen(asio::socket_base::max_listen_connections, error);
    if (error) {
      return make_error(StatusCode::kUnavailable, "Listen on {} port {}: {}", options.address, options.port,
                        error.message());
    }
    port_ = acceptor_->local_endpoint(error).port();
    asio::co_spawn(loops_[0]->context, accept_loop(), asio::detached);
    for (const auto& loop : loops_) asio::co_spawn(loop->context, sweep(*loop), asio::detached);
    for (const auto& loop : loops_) threads_.emplace_back([&context = loop->context] { context.run(); });
    return {};
  }

  std::uint16_t port() const override { return port_; }

  HttpServerStats stats() const override {
    return {
        .connections = transport_.connections, .active_requests = transport_.active, .accepted = transport_.accepted};
  }

  bool drain(std::chrono::milliseconds limit) override {
    transport_.draining = true;
    for (const auto& loop : loops_) {
      asio::post(loop->context, [this, &loop = *loop] {
        close_acceptor(loop);
        for (Connection* connection : std::vector<Connection*>(loop.open.begin(), loop.open.end())) {
          connection->close_if_idle();
        }
      });
    }
    const auto end = Clock::now() + limit;
    while (transport_.connections > 0 && Clock::now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return transport_.connections == 0;
  }

 private:
  asio::awaitable<void> accept_loop() {
    std::size_t next = 0;
    asio::steady_timer pause(loops_[0]->context);
    while (acceptor_->is_open()) {
      Loop& loop = *loops_[next++ % loops_.size()];
      error_code error;
      asio::ip::tcp::socket socket =
          co_await acceptor_->async_accept(loop.context, asio::redirect_error(asio::use_awaitable, error));
      if (error == asio::error::operation_aborted || error == asio::error::bad_descriptor) break;
      if (error) {
        // Out of file descriptors, mostly: wait for one instead of spinning.
        pause.expires_after(std::chrono::milliseconds(100));
        co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, error));
        continue;
      }
      ++transport_.accepted;
      if (transport_.connections >= static_cast<std::int64_t>(transport_.options.max_connections)) continue;
      // The socket belongs to the other loop's context, and so do the connection's books.
      asio::post(loop.context, [this, &loop, moved = std::move(socket)]() mutable {
        std::make_shared<Connection>(transport_, loop, std::move(moved))->start();
      });
    }
  }

  // One timer for all connections of a loop, instead of one each.
  asio::awaitable<void> sweep(Loop& loop) {
    const auto& options = transport_.options;
    const auto shortest =
        std::min({options.header_timeout, options.body_timeout, options.idle_timeout, options.write_timeout});
    const auto period = std::clamp(shortest / 4, std::chrono::milliseconds(10), std::chrono::milliseconds(1000));
    asio::steady_timer timer(loop.context);
    for (;;) {
      error_code error;
      timer.expires_after(period);
      co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, error));
      if (error) co_return;
      const auto now = Clock::now();
      for (Connection* connection : loop.open) connection->check_deadline(now);
    }
  }

  void close_acceptor(const Loop& loop) {
    if (&loop != loops_[0].get() || !acceptor_) return;
    error_code ignored;
    acceptor_->close(ignored);
  }

  // Destroyed last to first: connections inside the loops refer to transport_.
  Transport transport_;
  std::vector<std::unique_ptr<Loop>> loops_;
  std::unique_ptr<asio::ip::tcp::acceptor> acceptor_;
  std::vector<std::thread> threads_;
  std::uint16_t port_ = 0;
};

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::start(HttpServerOptions options) {
  auto server = std::make_unique<AsioHttpServer>(std::move(options));
  if (Status status = server->listen(); !status.ok()) return status;
  return std::unique_ptr<HttpServer>(std::move(server));
}

std::size_t raise_file_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  if (limit.rlim_cur < limit.rlim_max) {
    limit.rlim_cur = limit.rlim_max;
    (void)::setrlimit(RLIMIT_NOFILE, &limit);
    (void)::getrlimit(RLIMIT_NOFILE, &limit);
  }
  return static_cast<std::size_t>(limit.rlim_cur);
}

}  // namespace perigee::server
