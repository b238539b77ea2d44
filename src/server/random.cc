#include "server/random.h"

#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <span>
#include <vector>

#include "base/sha256.h"

namespace perigee::server {
namespace {

// The kernel's generator: nothing to set up and no state a thread, as OpenSSL's has. Without it nothing here would be
// unguessable.
void fill(std::span<std::byte> out) {
  while (!out.empty()) {
    const ssize_t got = ::getrandom(out.data(), out.size(), 0);
    if (got < 0 && errno != EINTR) std::abort();
    out = out.subspan(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  }
}

}  // namespace

std::string random_hex(std::size_t bytes) {
  std::vector<std::byte> raw(bytes);
  fill(raw);
  return to_hex(raw);
}

std::uint64_t random_u64() {
  std::uint64_t value = 0;
  fill(std::as_writable_bytes(std::span(&value, 1)));
  return value;
}

}  // namespace perigee::server
