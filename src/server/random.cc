#include "server/random.h"

#include <openssl/rand.h>

#include <cstring>
#include <span>
#include <vector>

#include "base/sha256.h"

namespace perigee::server {

std::string random_hex(std::size_t bytes) {
  std::vector<unsigned char> raw(bytes);
  RAND_bytes(raw.data(), static_cast<int>(raw.size()));
  return to_hex(std::as_bytes(std::span(raw)));
}

std::uint64_t random_u64() {
  std::uint64_t value = 0;
  RAND_bytes(reinterpret_cast<unsigned char*>(&value), sizeof value);
  return value;
}

}  // namespace perigee::server
