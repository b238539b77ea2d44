// HTTP requests from any bytes in any pieces. The first byte chooses the size of the pieces; the result must not depend
// on it, and the limits must hold.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "server/http_parser.h"

namespace {

using perigee::server::HttpLimits;
using perigee::server::HttpRequestParser;

constexpr HttpLimits kLimits{.header_bytes = 1024, .body_bytes = 4096};

void check(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::size_t piece = std::size_t{1} + data[0] % 64;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  HttpRequestParser whole(kLimits);
  whole.feed(text);
  HttpRequestParser pieces(kLimits);
  for (std::size_t at = 0; at < text.size(); at += piece) pieces.feed(text.substr(at, piece));
  // A header of the very length of the limit is one byte too long in some pieces.
  if (whole.error_status() == 431 || pieces.error_status() == 431) return 0;
  check(whole.done() == pieces.done());
  // A fault may be named sooner, or be another one, in other pieces; a request that is whole in one is whole in all.
  check(!whole.done() || (whole.error_status() == 0 && pieces.error_status() == 0));
  check(whole.error_status() == 0 || (whole.error_status() >= 400 && whole.error_status() < 506));
  if (whole.done()) {
    check(whole.request().body.size() <= kLimits.body_bytes);
    check(whole.request().body == pieces.request().body);
    check(whole.request().path == pieces.request().path);
    check(whole.take_rest() == pieces.take_rest());
  }
  return 0;
}
