#include "server/http_parser.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace perigee::server {
namespace {

constexpr HttpLimits kSmall{.header_bytes = 512, .body_bytes = 1000};

TEST(HttpParser, SameResultAtEverySplit) {
  const std::string text =
      "POST /v1/chat/completions?beta=true HTTP/1.1\r\nHost: localhost\r\nX-Api-Key:  k\r\n"
      "Transfer-Encoding: chunked\r\n\r\n5\r\n{\"a\":\r\n3;x=y\r\n12}\r\n0\r\n\r\nGET / HTTP/1.1\r\n";
  for (std::size_t split = 0; split <= text.size(); ++split) {
    HttpRequestParser parser(kSmall);
    parser.feed(std::string_view(text).substr(0, split));
    parser.feed(std::string_view(text).substr(split));
    ASSERT_EQ(parser.error_status(), 0) << split << parser.error();
    ASSERT_TRUE(parser.done()) << split;
    EXPECT_EQ(parser.request().method, "POST");
    EXPECT_EQ(parser.request().path, "/v1/chat/completions");
    EXPECT_EQ(parser.request().query, "beta=true");
    EXPECT_EQ(parser.request().header("x-api-key"), "k");
    EXPECT_EQ(parser.request().body, "{\"a\":12}");
    EXPECT_EQ(parser.take_rest(), "GET / HTTP/1.1\r\n") << split;
  }
}

// Found by fuzzing: Beast aborts on the last chunk in such pieces.
TEST(HttpParser, TakesTheLastChunkInAnyPieces) {
  const std::string head = "POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (const std::string body : {"", "3\r\n0\r\n\r\n"}) {
    const std::string text = head + body + "0\r\n\r\n";
    for (std::size_t first = head.size(); first <= text.size(); ++first) {
      for (std::size_t second = first; second <= text.size(); ++second) {
        HttpRequestParser parser(kSmall);
        parser.feed(std::string_view(text).substr(0, first));
        parser.feed(std::string_view(text).substr(first, second - first));
        parser.feed(std::string_view(text).substr(second));
        ASSERT_EQ(parser.error_status(), 0) << parser.error();
        ASSERT_TRUE(parser.done()) << first << " " << second;
        EXPECT_EQ(parser.request().body, body.empty() ? "" : "0\r\n");
      }
    }
  }
  HttpRequestParser wrong(kSmall);
  wrong.feed(head + "0\r\n\n");
  wrong.feed("GET / HTTP/1.1\r\n\r\n");
  EXPECT_EQ(wrong.error_status(), 400);
}

// Found by fuzzing: whole requests had the trailer's fields among their headers, requests in pieces had not.
TEST(HttpParser, ATrailerNeverBecomesAHeader) {
  const std::string text =
      "POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nHost: g\r\nX-Api-Key: k\r\n\r\n";
  for (std::size_t split = 0; split <= text.size(); ++split) {
    HttpRequestParser parser(kSmall);
    parser.feed(std::string_view(text).substr(0, split));
    parser.feed(std::string_view(text).substr(split));
    ASSERT_TRUE(parser.done()) << split << " " << parser.error();
    EXPECT_EQ(parser.request().header("host"), "h");
    EXPECT_EQ(parser.request().header("x-api-key"), "");
  }
}

TEST(HttpParser, RefusesWhatIsNotHttp) {
  struct Case {
    std::string text;
    int status;
  };
  const std::string host = "Host: h\r\n";
  const std::vector<Case> cases = {
      {"hello there\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\n\r\n", 400},  // no Host
      {"GET / HTTP/1.1\r\n" + host + host + "\r\n", 400},
      {"GET / HTTP/2.0\r\n" + host + "\r\n", 505},
      {"GET / HTTP/1.1\r\nHost h\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\n" + host + "A\x01: b\r\n\r\n", 400},
      {"GET http//x HTTP/1.1\r\n" + host + "\r\n", 400},
      {"CONNECT a:1 HTTP/1.1\r\n" + host + "\r\n", 400},
      {"TRACE / HTTP/1.1\r\n" + host + "\r\n", 405},
      {"POST / HTTP/1.1\r\n" + host + "Content-Length: -1\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\n" + host + "Content-Length: 1x\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\n" + host + "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 400},
      {"POST / HTTP/1.1\r\n" + host + "Content-Length: 99999999999999999999999\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\n" + host + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400},
      {"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n", 400},
      {"POST / HTTP/1.1\r\n" + host + "Content-Length: 1001\r\n\r\n", 413},
      {"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n400\r\n", 413},
      {"POST / HTTP/1.1\r\n" + host + "Expect: magic\r\nContent-Length: 2\r\n\r\n{}", 417},
      {"GET /" + std::string(600, 'a') + " HTTP/1.1\r\n", 431},
      {"GET / HTTP/1.1\r\n" + host + "A: " + std::string(600, 'a') + "\r\n\r\n", 431},
  };
  for (const auto& [text, status] : cases) {
    HttpRequestParser whole(kSmall);
    whole.feed(text);
    EXPECT_EQ(whole.error_status(), status) << text << whole.error();
    EXPECT_FALSE(whole.keep_alive());
    HttpRequestParser bytewise(kSmall);
    for (const char c : text) bytewise.feed(std::string_view(&c, 1));
    EXPECT_EQ(bytewise.error_status(), status) << text;
  }
}

TEST(HttpParser, TruncatedIsNeverDone) {
  const std::string text = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nabcd";
  for (std::size_t n = 0; n < text.size(); ++n) {
    HttpRequestParser parser(kSmall);
    parser.feed(std::string_view(text).substr(0, n));
    EXPECT_FALSE(parser.done()) << n;
    EXPECT_EQ(parser.error_status(), 0) << n;
  }
}

}  // namespace
}  // namespace perigee::server
