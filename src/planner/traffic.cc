// Requests from trace files and from distributions.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/file.h"
#include "planner/random.h"
#include "planner/simulator.h"

namespace perigee::planner {
namespace {

constexpr std::size_t kTraceLimit = std::size_t{1} << 31;
constexpr std::int64_t kLongest = std::int64_t{1} << 30;
constexpr JsonLimits kLineLimits = {.bytes = std::size_t{1} << 20,
                                    .depth = 4,
                                    .keys_per_object = 64,
                                    .values = std::size_t{1} << 17,
                                    .duplicates = DuplicateKeys::kRefuse};

Result<std::int64_t> length_at(const Json& line, const char* key, std::int64_t low) {
  const auto found = line.find(key);
  if (found == line.end() || !found->is_number_integer()) return invalid_argument("'{}': expected an integer", key);
  if (found->is_number_unsigned() && found->get<std::uint64_t>() > static_cast<std::uint64_t>(kLongest)) {
    return invalid_argument("'{}': above {}", key, kLongest);
  }
  const auto value = found->get<std::int64_t>();
  if (value < low) return invalid_argument("'{}': expected at least {}, found {}", key, low, value);
  return value;
}

Status read_line(std::string_view text, RequestSet& out) {
  PERIGEE_ASSIGN_OR_RETURN(const Json line, parse_json(text, kLineLimits));
  if (!line.is_object()) return invalid_argument("expected an object");
  const auto time = line.find("timestamp");
  if (time == line.end() || !time->is_number()) return invalid_argument("'timestamp': expected milliseconds");
  Request request;
  request.arrival_ms = time->get<double>();
  if (!(request.arrival_ms >= 0 && request.arrival_ms < 1e15)) return invalid_argument("'timestamp': out of range");
  PERIGEE_ASSIGN_OR_RETURN(const std::int64_t input, length_at(line, "input_length", 1));
  PERIGEE_ASSIGN_OR_RETURN(const std::int64_t output, length_at(line, "output_length", 1));
  request.input = static_cast<std::int32_t>(input);
  request.output = static_cast<std::int32_t>(output);
  request.first_block = static_cast<std::uint32_t>(out.blocks.size());
  if (const auto ids = line.find("hash_ids"); ids != line.end()) {
    if (!ids->is_array()) return invalid_argument("'hash_ids': expected a list");
    for (const auto& id : *ids) {
      if (!id.is_number_unsigned() || id.get<std::uint64_t>() > 0xffffffffULL) {
        return invalid_argument("'hash_ids': expected block numbers below 2^32");
      }
      out.blocks.push_back(id.get<std::uint32_t>());
    }
    request.blocks = static_cast<std::uint32_t>(out.blocks.size()) - request.first_block;
  }
  out.requests.push_back(request);
  return {};
}

std::int32_t draw_length(Random& random, double mean, double spread) {
  double value = mean;
  // The mean of a log-normal is exp(mu + sigma^2 / 2).
  if (spread > 0) value = std::exp(std::log(mean) - spread * spread / 2 + spread * random.normal());
  return static_cast<std::int32_t>(std::clamp(std::llround(value), 1LL, static_cast<long long>(kLongest)));
}

}  // namespace

Result<RequestSet> read_trace(const std::string& path, std::size_t limit_requests) {
  PERIGEE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(path));
  const auto bytes = file.bytes();
  if (bytes.size() > kTraceLimit) return invalid_argument("{}: traces above 2 GiB are not read", path);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  RequestSet out;
  std::size_t line_number = 0;
  for (std::size_t at = 0; at < text.size() && out.requests.size() < limit_requests;) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    at = end + 1;
    ++line_number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    if (auto status = read_line(line, out); !status.ok()) {
      return status.with_context(fmt::format("{}:{}", path, line_number));
    }
  }
  if (out.requests.empty()) return invalid_argument("{}: no requests", path);
  std::stable_sort(out.requests.begin(), out.requests.end(),
                   [](const Request& a, const Request& b) { return a.arrival_ms < b.arrival_ms; });
  return out;
}

RequestSet make_traffic(const SyntheticTraffic& traffic) {
  RequestSet out;
  Random random(traffic.seed);
  out.requests.reserve(static_cast<std::size_t>(traffic.requests));
  const auto prefix = static_cast<std::int64_t>(traffic.shared_prefix * traffic.input_mean);
  if (prefix > 0) {
    out.block_tokens = prefix;
    for (std::int64_t i = 0; i < std::max<std::int64_t>(traffic.prefixes, 1); ++i) {
      out.blocks.push_back(static_cast<std::uint32_t>(i));
    }
  }
  double now = 0;
  const double gap_ms = traffic.per_second > 0 ? 1000 / traffic.per_second : 0;
  for (std::int64_t i = 0; i < traffic.requests; ++i) {
    Request request;
    request.arrival_ms = now;
    request.input = draw_length(random, traffic.input_mean, traffic.input_spread);
    request.output = draw_length(random, traffic.output_mean, traffic.output_spread);
    if (prefix > 0) {
      request.first_block = static_cast<std::uint32_t>(random.next() % out.blocks.size());
      request.blocks = 1;
    }
    out.requests.push_back(request);
    now += traffic.poisson ? (gap_ms > 0 ? random.exponential(gap_ms) : 0) : gap_ms;
  }
  return out;
}

}  // namespace perigee::planner
