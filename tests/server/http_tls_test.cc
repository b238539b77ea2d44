// HTTPS as a client sees it: a handshake with a certificate made here, requests, a long body, and who is turned away.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <cstdio>
#include <filesystem>
#include <memory>

#include "raw_client.h"
#include "server/http_server.h"

namespace perigee::server {
namespace {

template <auto Free>
struct Deleter {
  template <typename T>
  void operator()(T* pointer) const {
    Free(pointer);
  }
};
using Key = std::unique_ptr<EVP_PKEY, Deleter<EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, Deleter<X509_free>>;
using Context = std::unique_ptr<SSL_CTX, Deleter<SSL_CTX_free>>;
using Session = std::unique_ptr<SSL, Deleter<SSL_free>>;
using File = std::unique_ptr<std::FILE, Deleter<std::fclose>>;

class HttpTlsTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / fmt::format("perigee_tls_{}", ::getpid());
    std::filesystem::create_directories(folder_);
    options_.tls_certificate = folder_ / "cert.pem";
    options_.tls_key = folder_ / "key.pem";
    write_certificate();
    options_.error_response = [](int status, std::string_view message, const HttpRequest&) {
      return HttpResponse{.status = status, .body = std::string(message)};
    };
    options_.admit = [](HttpRequest&) { return HttpResponse{.status = 0}; };
    options_.on_finished = [](const AccessRecord&) {};
    options_.handler = [](HttpRequest&& request) {
      HttpResponse response;
      response.body = request.path == "/long" ? std::string(3 << 20, 'x') : request.method + " " + request.body;
      return response;
    };
    auto started = HttpServer::start(options_);
    ASSERT_TRUE(started.ok()) << started.status().message();
    server_ = std::move(*started);
  }
  void TearDown() override {
    server_.reset();
    std::filesystem::remove_all(folder_);
  }

  void write_certificate() {
    const Key key(EVP_EC_gen("P-256"));
    certificate_.reset(X509_new());
    X509* x509 = certificate_.get();
    ASN1_INTEGER_set(X509_get_serialNumber(x509), 1);
    X509_gmtime_adj(X509_getm_notBefore(x509), -60);
    X509_gmtime_adj(X509_getm_notAfter(x509), 3600);
    X509_set_pubkey(x509, key.get());
    X509_NAME* name = X509_get_subject_name(x509);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>("localhost"), -1, -1,
                               0);
    X509_set_issuer_name(x509, name);
    ASSERT_GT(X509_sign(x509, key.get(), EVP_sha256()), 0);
    const File cert_file(std::fopen(options_.tls_certificate.c_str(), "w"));
    const File key_file(std::fopen(options_.tls_key.c_str(), "w"));
    ASSERT_EQ(PEM_write_X509(cert_file.get(), x509), 1);
    ASSERT_EQ(PEM_write_PrivateKey(key_file.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr), 1);
  }

  // A client that trusts only the certificate of this test; null: the handshake failed.
  Session connect(RawClient& raw, int highest_version = 0) {
    context_.reset(SSL_CTX_new(TLS_client_method()));
    X509_STORE_add_cert(SSL_CTX_get_cert_store(context_.get()), certificate_.get());
    SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER, nullptr);
    if (highest_version != 0) {
      SSL_CTX_set_security_level(context_.get(), 0);
      SSL_CTX_set_max_proto_version(context_.get(), highest_version);
    }
    Session session(SSL_new(context_.get()));
    SSL_set_fd(session.get(), raw.fd());
    if (SSL_connect(session.get()) != 1) return nullptr;
    return session;
  }

  static std::string exchange(SSL* session, std::string_view request) {
    EXPECT_EQ(SSL_write(session, request.data(), static_cast<int>(request.size())), static_cast<int>(request.size()));
    std::string response;
    std::size_t whole = std::string::npos;
    char buffer[16384];
    while (response.size() < whole) {
      const int n = SSL_read(session, buffer, sizeof buffer);
      if (n <= 0) break;
      response.append(buffer, static_cast<std::size_t>(n));
      const std::size_t head = response.find("\r\n\r\n");
      const std::size_t length = response.find("Content-Length: ");
      if (head != std::string::npos && length != std::string::npos) {
        whole = head + 4 + std::stoul(response.substr(length + 16));
      }
    }
    return response;
  }

  std::filesystem::path folder_;
  HttpServerOptions options_;
  Certificate certificate_;
  Context context_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpTlsTest, HandshakeKeepAliveAndLongBodies) {
  RawClient raw(server_->port());
  const Session session = connect(raw);
  ASSERT_NE(session, nullptr) << ERR_error_string(ERR_get_error(), nullptr);
  EXPECT_EQ(SSL_get_verify_result(session.get()), X509_V_OK);
  EXPECT_GE(SSL_version(session.get()), TLS1_2_VERSION);
  EXPECT_TRUE(exchange(session.get(), "GET /a HTTP/1.1\r\nHost: h\r\n\r\n").ends_with("GET "));
  EXPECT_TRUE(
      exchange(session.get(), "POST /b HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc").ends_with("POST abc"));
  const std::string response = exchange(session.get(), "GET /long HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_EQ(body_of(response).size(), 3U << 20);
  EXPECT_EQ(server_->stats().accepted, 1);
}

TEST_F(HttpTlsTest, OldVersionsAndPlainTextAreTurnedAway) {
  RawClient old(server_->port());
  EXPECT_EQ(connect(old, TLS1_1_VERSION), nullptr);
  RawClient plain(server_->port());
  plain.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_EQ(plain.read_all().find("HTTP/1.1"), std::string::npos);
  RawClient good(server_->port());
  EXPECT_NE(connect(good), nullptr);
}

}  // namespace
}  // namespace perigee::server
