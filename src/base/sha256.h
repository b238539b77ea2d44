// SHA-256 (OpenSSL), for manifests and cache keys.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace perigee {

using Sha256Digest = std::array<std::byte, 32>;

// Incremental digest. Not thread-safe; one object per digest.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void update(std::span<const std::byte> bytes);
  void update(std::string_view text) { update(std::as_bytes(std::span(text.data(), text.size()))); }
  Sha256Digest finish();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

Sha256Digest sha256(std::span<const std::byte> bytes);
std::string to_hex(std::span<const std::byte> bytes);

}  // namespace perigee
