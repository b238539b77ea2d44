#include "server/access_log.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "base/json.h"

namespace perigee::server {
namespace {

// What clients send may be any bytes.
std::string json_string(std::string_view text) {
  return Json(std::string(text)).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string line_start(std::string_view event, const std::string& request_id) {
  const auto now = std::chrono::system_clock::now();
  const auto millis = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  return fmt::format(R"({{"time":"{:%Y-%m-%dT%H:%M:%S}.{:03}Z","event":"{}","request_id":{})",
                     fmt::gmtime(std::chrono::system_clock::to_time_t(now)), millis, event, json_string(request_id));
}

}  // namespace

void AccessLog::write(std::string line) {
  line += '\n';
  const std::lock_guard lock(mutex_);
  std::fwrite(line.data(), 1, line.size(), file_);
  std::fflush(file_);
}

void AccessLog::request(const AccessRecord& record) {
  if (file_ == nullptr) return;
  std::string line = line_start("request", record.request_id);
  fmt::format_to(
      std::back_inserter(line),
      R"(,"method":{},"path":{},"status":{},"seconds":{:.6f},"bytes_in":{},"bytes_out":{},"peer":{},"tenant":{},)"
      R"("client_left":{})",
      json_string(record.method), json_string(record.path), record.status, record.seconds, record.bytes_in,
      record.bytes_out, json_string(record.peer), json_string(record.tenant), record.client_left);
  if (!record.log.empty()) line += "," + record.log;
  write(line + "}");
}

void AccessLog::body(const HttpRequest& request) {
  if (file_ == nullptr) return;
  write(line_start("body", request.request_id) + ",\"body\":" + json_string(request.body) + "}");
}

}  // namespace perigee::server
