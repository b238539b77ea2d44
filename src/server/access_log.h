// One JSON line for each request. Prompts are not logged unless the operator asks for it.
#pragma once

#include <cstdio>
#include <mutex>
#include <string>
#include <string_view>

#include "server/http.h"

namespace perigee::server {

// Thread-safe.
class AccessLog {
 public:
  explicit AccessLog(std::FILE* file) : file_(file) {}  // null: nothing is written

  void request(const AccessRecord& record);
  void body(const HttpRequest& request);

 private:
  void write(std::string line);

  std::FILE* file_;
  std::mutex mutex_;
};

}  // namespace perigee::server
