// Many HTTP streams from one thread (epoll), so that the client costs little beside the server that it measures.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace perigee::bench {

struct LoadJob {
  double at = 0;                       // seconds after the start; what comes later waits for a free stream
  std::int64_t input = 0;              // tokens, about
  std::int64_t output = 0;             // tokens
  std::vector<std::int64_t> blocks{};  // equal ids are equal pieces of prompt; empty: a prompt of its own
};

struct LoadOutcome {
  bool ok = false;
  double late = 0;   // seconds between `at` and the request
  double first = 0;  // seconds to the first token
  double total = 0;
  std::int64_t tokens = 0;  // completion tokens as the usage says
};

struct LoadResult {
  double seconds = 0;
  std::vector<LoadOutcome> outcomes;
  std::vector<double> gaps;  // seconds between arrivals of tokens; several that arrive together count as one
};

// Sends `request(i)`, a whole HTTP request for a streamed chat, for every job, at most `streams` at once on
// connections that are kept. `host` is an IPv4 address.
LoadResult run_load(const std::string& host, std::uint16_t port, int streams, const std::vector<LoadJob>& jobs,
                    const std::function<std::string(std::size_t)>& request);

// A connected blocking socket, or -1.
int connect_to(const std::string& host, std::uint16_t port);
bool send_all(int fd, const std::string& bytes);

}  // namespace perigee::bench
