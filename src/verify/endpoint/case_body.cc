#include "verify/endpoint/case_body.h"

#include <nlohmann/json.hpp>
#include <string_view>

#include "base/json.h"

namespace perigee::verify {

std::string case_body(std::string body, const std::string& model, std::int64_t context_tokens) {
  constexpr std::size_t kLongestRepeat = std::size_t{16} << 20;
  constexpr std::string_view kModel = "\"MODEL\"";
  constexpr std::string_view kOpen = "@REPEAT('";
  constexpr std::string_view kClose = "',CONTEXT)";
  const std::string name = Json(model).dump();
  for (std::size_t at = body.find(kModel); at != std::string::npos; at = body.find(kModel, at + name.size())) {
    body.replace(at, kModel.size(), name);
  }
  const std::size_t begin = body.find(kOpen);
  const std::size_t end = body.find(kClose);
  if (begin == std::string::npos || end == std::string::npos) return body;
  const std::string unit = body.substr(begin + kOpen.size(), end - begin - kOpen.size());
  std::string repeated;
  for (std::int64_t i = 0; i < context_tokens && repeated.size() < kLongestRepeat; ++i) repeated += unit;
  return body.replace(begin, end + kClose.size() - begin, repeated);
}

}  // namespace perigee::verify
