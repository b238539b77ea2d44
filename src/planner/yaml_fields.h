// Strict reading of YAML maps with yaml-cpp; included by .cc files only. Every mistake names file, line and key.
#pragma once

#include <yaml-cpp/yaml.h>

#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace perigee::planner {

// Parses one document; text above `limit` bytes is refused. yaml-cpp bounds the nesting itself (500).
Result<YAML::Node> load_yaml(std::string_view text, std::string_view origin, std::size_t limit);

// One map. Readers leave the target alone when the key is absent; `require` makes absence a mistake. The first
// mistake is kept in `status` and everything after it is ignored. Call done() last: it refuses unknown keys.
class Fields {
 public:
  Fields(const YAML::Node& node, std::string_view origin, Status& status);

  void read(const char* key, std::string& out);
  void read(const char* key, bool& out);
  void read(const char* key, double& out, double low = -1e18, double high = 1e18);
  void read(const char* key, std::int64_t& out, std::int64_t low = 0,
            std::int64_t high = std::numeric_limits<std::int64_t>::max());
  void read(const char* key, std::vector<std::int64_t>& out);
  void read(const char* key, std::vector<double>& out);
  void read(const char* key, std::vector<std::string>& out);

  // The child itself, for nested maps and lists; undefined when absent.
  YAML::Node child(const char* key);
  bool has(const char* key) const;
  void require(const char* key);
  // Refuses a document whose `schema` is another one.
  Status expect_schema(std::string_view expected);
  void ignore(const char* key) { seen_.insert(key); }
  void fail(const YAML::Node& at, std::string_view what);
  void done();

  const std::string& origin() const { return origin_; }
  Status& status() { return status_; }

 private:
  YAML::Node get(const char* key);

  YAML::Node node_;
  std::string origin_;
  Status& status_;
  std::set<std::string> seen_;
};

struct Sourced;  // catalogue.h
// A number written as [value, source, confidence]; all three are needed.
void read_sourced(Fields& fields, const char* key, Sourced& out);

}  // namespace perigee::planner
