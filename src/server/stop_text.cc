#include "server/stop_text.h"

#include <algorithm>

namespace perigee::server {

std::string StopText::push(std::string_view text) {
  if (matched()) return {};
  if (stops_.empty()) return std::string(text);
  const std::size_t old = held_.size();
  held_.append(text);
  const std::string_view all = held_;
  for (std::size_t end = old + 1; end <= all.size(); ++end) {
    for (const std::string& stop : stops_) {
      if (!stop.empty() && all.substr(0, end).ends_with(stop) && stop.size() > match_.size()) match_ = stop;
    }
    if (matched()) return std::string(all.substr(0, include_ ? end : end - match_.size()));
  }
  std::size_t keep = 0;
  for (const std::string& stop : stops_) {
    for (std::size_t n = std::min<std::size_t>(stop.empty() ? 0 : stop.size() - 1, all.size()); n > keep; --n) {
      if (all.ends_with(std::string_view(stop).substr(0, n))) keep = n;
    }
  }
  std::string safe(all.substr(0, all.size() - keep));
  held_.erase(0, safe.size());
  return safe;
}

}  // namespace perigee::server
