#include "server/auth.h"

#include <openssl/crypto.h>

#include <algorithm>
#include <span>

#include "base/file.h"

namespace perigee::server {
namespace {

constexpr std::size_t kMinKeyLength = 8;
constexpr std::size_t kMaxKeyFile = std::size_t{1} << 20;

Sha256Digest digest_of(std::string_view key) {
  return sha256(std::as_bytes(std::span(key.data(), key.size())));
}

std::string_view presented_key(const HttpRequest& request) {
  const std::string_view bearer = request.header("authorization");
  constexpr std::string_view kScheme = "bearer ";
  if (bearer.size() > kScheme.size()) {
    bool match = true;
    for (std::size_t i = 0; i < kScheme.size(); ++i) match = match && (bearer[i] | 0x20) == kScheme[i];
    if (match) return bearer.substr(std::min(bearer.find_first_not_of(' ', kScheme.size()), bearer.size()));
  }
  return request.header("x-api-key");
}

}  // namespace

ApiKeys::ApiKeys(const std::vector<std::string>& keys, const std::vector<std::string>& admin_keys) {
  const auto add = [&](const std::string& key, bool admin) {
    const Sha256Digest digest = digest_of(key);
    // A digest of the digest: the tenant's name appears in logs and must not help to guess the key's digest.
    entries_.push_back({digest, "key-" + to_hex(sha256(digest)).substr(0, 12), admin});
  };
  for (const std::string& key : keys) add(key, false);
  for (const std::string& key : admin_keys) add(key, true);
}

bool ApiKeys::identify(HttpRequest& request) const {
  const Sha256Digest digest = digest_of(presented_key(request));
  const Entry* found = nullptr;
  for (const Entry& entry : entries_) {
    if (CRYPTO_memcmp(entry.digest.data(), digest.data(), digest.size()) == 0) found = &entry;
  }
  if (found == nullptr) return false;
  request.tenant = found->tenant;
  request.admin = found->admin;
  return true;
}

Result<std::vector<std::string>> parse_api_keys(std::string_view text, std::string_view source) {
  std::vector<std::string> keys;
  int line_number = 0;
  while (!text.empty()) {
    ++line_number;
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    const std::size_t first = line.find_first_not_of(" \t\r");
    if (first == std::string_view::npos || line[first] == '#') continue;
    line = line.substr(first, line.find_last_not_of(" \t\r") + 1 - first);
    if (line.size() < kMinKeyLength || line.find_first_of(" \t") != std::string_view::npos) {
      return invalid_argument("{} line {}: a key needs at least {} characters and no spaces", source, line_number,
                              kMinKeyLength);
    }
    keys.emplace_back(line);
  }
  if (keys.empty()) return invalid_argument("{}: no API key found", source);
  return keys;
}

Result<std::vector<std::string>> read_api_keys(const std::string& path) {
  PERIGEE_ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxKeyFile));
  return parse_api_keys(text, path);
}

}  // namespace perigee::server
