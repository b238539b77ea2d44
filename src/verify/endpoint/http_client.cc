#include "verify/endpoint/http_client.h"

#include <openssl/ssl.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <boost/beast/ssl/ssl_stream.hpp>
#include <cctype>
#include <chrono>

namespace perigee::verify {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;
using PlainStream = beast::tcp_stream;
using SecureStream = beast::ssl_stream<beast::tcp_stream>;
using Request = http::request<http::string_body>;
using Parser = http::response_parser<http::string_body>;

constexpr std::uint32_t kHeaderBytes = 64 << 10;

auto awaiting(error_code& error) {
  return asio::redirect_error(asio::use_awaitable, error);
}

bool is_port(std::string_view text) {
  if (text.empty() || text.size() > 5) return false;
  return std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
}

std::string media_type(std::string_view text) {
  std::string out(text.substr(0, text.find(';')));
  while (!out.empty() && out.back() == ' ') out.pop_back();
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

}  // namespace

std::string Url::authority() const {
  const std::string name = host.find(':') == std::string::npos ? host : "[" + host + "]";
  return port == (tls ? "443" : "80") ? name : name + ":" + port;
}

Result<Url> parse_url(std::string_view text) {
  Url url;
  if (text.starts_with("https://")) {
    url.tls = true;
  } else if (!text.starts_with("http://")) {
    return invalid_argument("'{}': expected http://HOST[:PORT][/BASE] or https://...", text);
  }
  std::string_view rest = text.substr(url.tls ? 8 : 7);
  if (rest.find_first_of("?#@ \t\r\n") != std::string_view::npos) {
    return invalid_argument("'{}': expected no user, query, fragment or white space", text);
  }
  const std::size_t slash = rest.find('/');
  std::string_view authority = rest.substr(0, slash);
  url.target = slash == std::string_view::npos ? "" : std::string(rest.substr(slash));
  while (url.target.ends_with('/')) url.target.pop_back();
  url.port = url.tls ? "443" : "80";
  if (authority.starts_with('[')) {
    const std::size_t close = authority.find(']');
    if (close == std::string_view::npos) return invalid_argument("'{}': expected ']' after the IPv6 address", text);
    url.host = authority.substr(1, close - 1);
    authority = authority.substr(close + 1);
    if (!authority.empty() && authority[0] != ':') return invalid_argument("'{}': expected ':' after ']'", text);
  } else {
    url.host = authority.substr(0, authority.find(':'));
    authority = authority.substr(url.host.size());
  }
  if (!authority.empty()) {
    url.port = authority.substr(1);
    if (!is_port(url.port)) return invalid_argument("'{}': '{}' is no port", text, url.port);
  }
  if (url.host.empty()) return invalid_argument("'{}': expected a host", text);
  return url;
}

struct HttpClient::State {
  State(Url u, HttpClientOptions o) : url(std::move(u)), options(std::move(o)) {}

  bool open() const { return plain != nullptr || secure != nullptr; }
  void close() {
    plain.reset();
    secure.reset();
    buffer.clear();
  }

  asio::awaitable<void> connect() {
    error_code error;
    asio::ip::tcp::resolver resolver(io);
    const auto addresses = co_await resolver.async_resolve(url.host, url.port, awaiting(error));
    if (error) co_return fail("looking up the host", error);
    if (url.tls) {
      secure = std::make_unique<SecureStream>(io, tls);
      if (options.verify_tls) secure->set_verify_callback(asio::ssl::host_name_verification(url.host));
      SSL_set_tlsext_host_name(secure->native_handle(), url.host.c_str());
    } else {
      plain = std::make_unique<PlainStream>(io);
    }
    PlainStream& stream = lowest();
    stream.expires_at(deadline);
    co_await stream.async_connect(addresses, awaiting(error));
    if (error) co_return fail("connecting", error);
    if (!url.tls) co_return;
    co_await secure->async_handshake(asio::ssl::stream_base::client, awaiting(error));
    if (error) fail("TLS handshake", error);
  }

  PlainStream& lowest() { return url.tls ? beast::get_lowest_layer(*secure) : *plain; }

  template <typename Stream>
  asio::awaitable<void> talk(Stream& stream, Request& request, Parser& parser) {
    error_code error;
    beast::get_lowest_layer(stream).expires_at(deadline);
    co_await http::async_write(stream, request, awaiting(error));
    if (error) co_return fail("sending", error);
    co_await http::async_read_header(stream, buffer, parser, awaiting(error));
    answered = answered || parser.is_header_done();
    if (error) co_return fail("waiting for the answer", error);
    co_await http::async_read(stream, buffer, parser, awaiting(error));
    if (error) fail("reading the answer", error);
  }

  asio::awaitable<void> exchange(Request& request, Parser& parser) {
    if (!open()) co_await connect();
    if (!failure.ok()) co_return;
    if (url.tls) {
      co_await talk(*secure, request, parser);
    } else {
      co_await talk(*plain, request, parser);
    }
  }

  void fail(std::string_view where, const error_code& error) {
    const bool late = error == beast::error::timeout;
    failure = make_error(StatusCode::kUnavailable, "{}: {}: {}", url.authority(), where,
                         late ? fmt::format("no end within {} s", options.timeout_seconds) : error.message());
  }

  Result<HttpReply> once(http::verb method, std::string_view path, const std::string& body) {
    Request request(method, url.target + std::string(path), 11);
    request.set(http::field::host, url.authority());
    request.set(http::field::user_agent, "perigee-verify");
    request.set(http::field::accept, "application/json, text/event-stream");
    if (!options.api_key.empty()) request.set(http::field::authorization, "Bearer " + options.api_key);
    if (method == http::verb::post) {
      request.set(http::field::content_type, "application/json");
      request.body() = body;
      request.prepare_payload();
    }
    Parser parser;
    parser.body_limit(options.body_bytes);
    parser.header_limit(kHeaderBytes);
    const auto begin = std::chrono::steady_clock::now();
    deadline = begin + std::chrono::milliseconds(static_cast<std::int64_t>(options.timeout_seconds * 1000));
    failure = {};
    answered = false;
    asio::co_spawn(io, exchange(request, parser), asio::detached);
    io.restart();
    io.run();
    if (!failure.ok()) {
      close();
      return failure;
    }
    if (!parser.get().keep_alive()) close();
    HttpReply reply;
    reply.status = static_cast<int>(parser.get().result_int());
    const auto type = parser.get()[http::field::content_type];
    reply.content_type = media_type({type.data(), type.size()});
    reply.body = std::move(parser.get().body());
    reply.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return reply;
  }

  Result<HttpReply> send(http::verb method, std::string_view path, const std::string& body) {
    const bool kept = open();
    auto reply = once(method, path, body);
    // Servers close idle connections: that is no fault of theirs as long as nothing of an answer has come.
    if (!reply.ok() && kept && !answered && std::chrono::steady_clock::now() < deadline) {
      reply = once(method, path, body);
    }
    return reply;
  }

  Url url;
  HttpClientOptions options;
  asio::io_context io{1};
  asio::ssl::context tls{asio::ssl::context::tls_client};
  std::unique_ptr<PlainStream> plain;
  std::unique_ptr<SecureStream> secure;
  beast::flat_buffer buffer;
  std::chrono::steady_clock::time_point deadline;
  bool answered = false;
  Status failure;
};

HttpClient::HttpClient(std::unique_ptr<State> state) : state_(std::move(state)) {}
HttpClient::HttpClient(HttpClient&&) noexcept = default;
HttpClient& HttpClient::operator=(HttpClient&&) noexcept = default;
HttpClient::~HttpClient() = default;

Result<HttpClient> HttpClient::create(Url url, HttpClientOptions options) {
  auto state = std::make_unique<State>(std::move(url), std::move(options));
  if (state->url.tls) {
    error_code error;
    state->tls.set_verify_mode(state->options.verify_tls ? asio::ssl::verify_peer : asio::ssl::verify_none, error);
    if (state->options.ca_file.empty()) {
      state->tls.set_default_verify_paths(error);
    } else {
      state->tls.load_verify_file(state->options.ca_file, error);
    }
    if (error) return invalid_argument("{}: {}", state->options.ca_file, error.message());
  }
  return HttpClient(std::move(state));
}

Result<HttpReply> HttpClient::get(std::string_view path) {
  return state_->send(http::verb::get, path, "");
}

Result<HttpReply> HttpClient::post(std::string_view path, std::string body) {
  return state_->send(http::verb::post, path, body);
}

}  // namespace perigee::verify
