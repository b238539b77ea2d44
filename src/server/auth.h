// API keys. Each key is a tenant of its own: tenants never share cached prefixes, stored responses or replayed answers.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/sha256.h"
#include "base/status.h"
#include "server/http.h"

namespace perigee::server {

// Immutable after construction, so thread-safe.
class ApiKeys {
 public:
  // Admin keys are keys like the others, and may see what belongs to other tenants.
  ApiKeys(const std::vector<std::string>& keys, const std::vector<std::string>& admin_keys);

  bool required() const { return !entries_.empty(); }
  std::size_t size() const { return entries_.size(); }
  // Fills `tenant` and `admin` by the key in `Authorization: Bearer KEY` or `x-api-key: KEY`; false: there is no such
  // key. Time does not depend on which key, or how much of one, is right.
  bool identify(HttpRequest& request) const;

 private:
  struct Entry {
    Sha256Digest digest;
    std::string tenant;
    bool admin = false;
  };
  std::vector<Entry> entries_;
};

// One key a line; blank lines and lines that start with '#' are skipped. A key of fewer than 8 characters is refused.
Result<std::vector<std::string>> parse_api_keys(std::string_view text, std::string_view source);
Result<std::vector<std::string>> read_api_keys(const std::string& path);

}  // namespace perigee::server
