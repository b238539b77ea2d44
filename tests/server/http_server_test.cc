#include "server/http_server.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

#include "raw_client.h"

namespace perigee::server {
namespace {

using std::chrono::milliseconds;

// Gives `pieces` pieces, one for each wake; another thread does the waking, as an engine would.
class Ticker final : public PendingResponse {
 public:
  Ticker(int pieces, std::size_t size, milliseconds pause) : pieces_(pieces), size_(size), pause_(pause) {}
  ~Ticker() override {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  void start(std::function<void()> wake) override {
    thread_ = std::thread([this, wake] {
      while (!stop_ && ready_ < pieces_) {
        const auto until = std::chrono::steady_clock::now() + pause_;
        while (!stop_ && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(milliseconds(1));
        ++ready_;
        wake();
      }
    });
  }
  bool poll(HttpResponse& response) override {
    while (given_ < ready_ && response.body.size() < kStreamPiece) {
      response.body += "data: " + std::string(size_, 'x') + "\n\n";
      ++given_;
    }
    return given_ == pieces_;
  }
  void abandon(HttpResponse&) override { stop_ = abandoned_ = true; }
  void stop() { stop_ = true; }

  std::atomic<bool> abandoned_{false};
  std::atomic<int> given_{0};

 private:
  const int pieces_;
  const std::size_t size_;
  const milliseconds pause_;
  std::atomic<int> ready_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

class HttpServerTest : public testing::Test {
 protected:
  void SetUp() override {
    options_.limits = {.header_bytes = 2048, .body_bytes = 100000};
    options_.error_response = [](int status, std::string_view message, const HttpRequest&) {
      return HttpResponse{.status = status, .body = std::string(message)};
    };
    options_.admit = [](HttpRequest& request) {
      HttpResponse response{.status = request.header("x-deny").empty() ? 0 : 401, .body = "denied"};
      return response;
    };
    options_.on_finished = [this](const AccessRecord& record) {
      const std::lock_guard lock(mutex_);
      records_.push_back(record);
    };
    options_.handler = [this](HttpRequest&& request) {
      HttpResponse response;
      response.body = request.method + " " + request.path + " " + std::to_string(request.body.size());
      if (request.path == "/never" || request.path == "/ticks" || request.path == "/flood") {
        const std::lock_guard lock(mutex_);
        if (request.path == "/never") ticker_ = std::make_shared<Ticker>(1, 1, milliseconds(100000));
        if (request.path == "/ticks") ticker_ = std::make_shared<Ticker>(20, 10, milliseconds(2));
        if (request.path == "/flood") ticker_ = std::make_shared<Ticker>(200000, 1000, milliseconds(0));
        response.body.clear();
        response.content_type = "text/event-stream";
        response.stream = request.query != "whole";
        response.heartbeat = ": wait\n\n";
        response.pending = ticker_;
      }
      return response;
    };
  }
  void Start() {
    auto started = HttpServer::start(options_);
    ASSERT_TRUE(started.ok()) << started.status().message();
    server_ = std::move(*started);
  }
  void TearDown() override {
    if (ticker_) ticker_->stop();
    server_.reset();
  }
  std::shared_ptr<Ticker> ticker() {
    const std::lock_guard lock(mutex_);
    return ticker_;
  }
  bool WaitFor(const std::function<bool()>& condition, int limit_ms = 5000) {
    for (int i = 0; i < limit_ms / 5; ++i) {
      if (condition()) return true;
      std::this_thread::sleep_for(milliseconds(5));
    }
    return condition();
  }

  HttpServerOptions options_;
  std::unique_ptr<HttpServer> server_;
  std::shared_ptr<Ticker> ticker_;
  std::mutex mutex_;
  std::vector<AccessRecord> records_;
};

TEST_F(HttpServerTest, KeepAliveAndPipelining) {
  Start();
  RawClient client(server_->port());
  for (int i = 0; i < 3; ++i) {
    const std::string response = client.exchange("GET /a HTTP/1.1\r\nHost: h\r\nX-Request-Id: me-1\r\n\r\n");
    EXPECT_EQ(status_of(response), 200);
    EXPECT_EQ(body_of(response), "GET /a 0");
    EXPECT_NE(response.find("X-Request-Id: me-1\r\n"), std::string::npos);
  }
  ASSERT_TRUE(
      client.send("POST /b HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabcGET /c HTTP/1.1\r\nHost: h\r\n\r\n"
                  "GET /d HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"));
  const std::string all = client.read_all();
  EXPECT_LT(all.find("POST /b 3"), all.find("GET /c 0"));
  EXPECT_LT(all.find("GET /c 0"), all.find("GET /d 0"));
  EXPECT_NE(all.find("GET /d 0"), std::string::npos);
  EXPECT_EQ(server_->stats().accepted, 1);
}

TEST_F(HttpServerTest, StreamsInPiecesAndKeepsTheConnection) {
  Start();
  RawClient client(server_->port());
  ASSERT_TRUE(client.send("POST /ticks HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx"));
  const std::string response = client.read_until("0\r\n\r\n");
  EXPECT_NE(response.find("Transfer-Encoding: chunked"), std::string::npos);
  std::size_t events = 0;
  for (std::size_t at = 0; (at = response.find("data: ", at)) != std::string::npos; ++at) ++events;
  EXPECT_EQ(events, 20U);
  EXPECT_EQ(status_of(client.exchange("GET /a HTTP/1.1\r\nHost: h\r\n\r\n")), 200);
  // HTTP/1.0 knows no chunks: the end of the connection ends the body.
  RawClient old(server_->port());
  ASSERT_TRUE(old.send("GET /ticks HTTP/1.0\r\n\r\n"));
  const std::string plain = old.read_all();
  EXPECT_EQ(plain.find("chunked"), std::string::npos);
  EXPECT_TRUE(plain.ends_with("\n\n"));
}

TEST_F(HttpServerTest, HeartbeatWhileNothingComes) {
  options_.heartbeat = milliseconds(30);
  Start();
  RawClient client(server_->port());
  ASSERT_TRUE(client.send("GET /never HTTP/1.1\r\nHost: h\r\n\r\n"));
  EXPECT_NE(client.read_until(": wait\n\n").find("200 OK"), std::string::npos);
  EXPECT_FALSE(client.read_until(": wait\n\n").empty());
}

TEST_F(HttpServerTest, DisconnectIsNoticed) {
  Start();
  for (const std::string query : {"", "?whole"}) {
    for (const std::string ahead : {"", "GET /next HTTP/1.1\r\n"}) {
      RawClient client(server_->port());
      ASSERT_TRUE(client.send("GET /never" + query + " HTTP/1.1\r\nHost: h\r\n\r\n" + ahead));
      ASSERT_TRUE(WaitFor([&] { return server_->stats().active_requests == 1; }));
      std::this_thread::sleep_for(milliseconds(20));
      const auto before = std::chrono::steady_clock::now();
      client.close();
      EXPECT_TRUE(WaitFor([&] { return server_->stats().active_requests == 0; })) << query << ahead;
      EXPECT_LT(std::chrono::steady_clock::now() - before, milliseconds(1000));
      EXPECT_TRUE(ticker()->abandoned_);
      ticker()->stop();
    }
  }
  EXPECT_TRUE(WaitFor([&] {
    const std::lock_guard lock(mutex_);
    return records_.size() == 4;
  }));
  const std::lock_guard lock(mutex_);
  for (const AccessRecord& record : records_) EXPECT_TRUE(record.client_left);
}

TEST_F(HttpServerTest, SlowReaderCostsNoMemoryAndTimesOut) {
  options_.write_timeout = milliseconds(600);
  Start();
  RawClient slow(server_->port());
  ASSERT_TRUE(slow.send("GET /flood HTTP/1.1\r\nHost: h\r\n\r\n"));
  std::this_thread::sleep_for(milliseconds(200));
  // 200 MB were ready at once; what left the producer is what fits into the socket buffers.
  EXPECT_LT(ticker()->given_, 20000);
  RawClient other(server_->port());
  EXPECT_EQ(status_of(other.exchange("GET /a HTTP/1.1\r\nHost: h\r\n\r\n")), 200);
  EXPECT_TRUE(WaitFor([&] { return ticker()->abandoned_.load(); }, 3000));
}

TEST_F(HttpServerTest, ErrorsAreAnsweredAndClose) {
  Start();
  struct Case {
    std::string bytes;
    int status;
  };
  const std::vector<Case> cases = {
      {"nonsense\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: h\r\nA: " + std::string(3000, 'a') + "\r\n\r\n", 431},
      {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100001\r\n\r\n" + std::string(100001, 'b'), 413},
      {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: h\r\nX-Deny: 1\r\nContent-Length: 50000\r\n\r\n" + std::string(50000, 'c'), 401},
  };
  for (const auto& [bytes, status] : cases) {
    RawClient client(server_->port());
    client.send(bytes);
    const std::string response = client.read_all();
    EXPECT_EQ(status_of(response), status) << bytes.substr(0, 60);
    EXPECT_NE(response.find("Connection: close"), std::string::npos);
  }
  // A refused request without a body leaves the connection usable.
  RawClient client(server_->port());
  EXPECT_EQ(status_of(client.exchange("GET / HTTP/1.1\r\nHost: h\r\nX-Deny: 1\r\n\r\n")), 401);
  EXPECT_EQ(status_of(client.exchange("GET / HTTP/1.1\r\nHost: h\r\n\r\n")), 200);
}

TEST_F(HttpServerTest, SlowAndSilentClientsAreCut) {
  options_.header_timeout = options_.body_timeout = milliseconds(150);
  options_.idle_timeout = milliseconds(300);
  Start();
  RawClient loris(server_->port());
  RawClient body(server_->port());
  RawClient idle(server_->port());
  loris.send("GET / HTTP/1.1\r\nHo");
  body.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc");
  EXPECT_EQ(status_of(idle.exchange("GET / HTTP/1.1\r\nHost: h\r\n\r\n")), 200);
  // Whoever has begun a request is told why it ends.
  EXPECT_EQ(status_of(loris.read_all(2000)), 408);
  EXPECT_EQ(status_of(body.read_all(2000)), 408);
  EXPECT_TRUE(idle.closed_within(2000));
  EXPECT_TRUE(WaitFor([&] { return server_->stats().connections == 0; }));
}

TEST_F(HttpServerTest, ExpectContinueAndHead) {
  Start();
  RawClient client(server_->port());
  client.send("POST /e HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_EQ(client.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  EXPECT_EQ(body_of(client.exchange("ab")), "POST /e 2");
  client.send("HEAD /h HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_TRUE(client.read_until("\r\n\r\n").ends_with("\r\n\r\n"));
  EXPECT_EQ(body_of(client.exchange("GET /g HTTP/1.1\r\nHost: h\r\n\r\n")), "GET /g 0");
}

TEST_F(HttpServerTest, DrainLetsRunningRequestsEnd) {
  Start();
  RawClient busy(server_->port());
  RawClient idle(server_->port());
  EXPECT_EQ(status_of(idle.exchange("GET / HTTP/1.1\r\nHost: h\r\n\r\n")), 200);
  busy.send("GET /ticks HTTP/1.1\r\nHost: h\r\n\r\n");
  ASSERT_TRUE(WaitFor([&] { return ticker() != nullptr; }));
  EXPECT_TRUE(server_->drain(milliseconds(5000)));
  EXPECT_TRUE(busy.read_all().ends_with("0\r\n\r\n"));
  EXPECT_TRUE(idle.closed_within(1000));
  RawClient late(server_->port());
  EXPECT_EQ(late.exchange("GET / HTTP/1.1\r\nHost: h\r\n\r\n"), "");
}

TEST_F(HttpServerTest, StartErrorsNameTheThing) {
  options_.address = "not an address";
  EXPECT_NE(HttpServer::start(options_).status().message().find("not an address"), std::string::npos);
  options_.address = "127.0.0.1";
  options_.tls_certificate = "/nonexistent.pem";
  EXPECT_FALSE(HttpServer::start(options_).ok());
  options_.tls_key = "/nonexistent.key";
  EXPECT_NE(HttpServer::start(options_).status().message().find("/nonexistent.pem"), std::string::npos);
  options_.tls_certificate = options_.tls_key = "";
  Start();
  options_.port = server_->port();
  EXPECT_FALSE(HttpServer::start(options_).ok());
}

}  // namespace
}  // namespace perigee::server
