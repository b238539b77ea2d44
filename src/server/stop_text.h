// Stop strings of raw completions, found in text that comes in any pieces. What may yet become a stop string is held
// back. (Chat answers have theirs inside the answer parser, which knows what is content.)
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace perigee::server {

// Not thread-safe; one object a choice.
class StopText {
 public:
  StopText(std::vector<std::string> stops, bool include) : stops_(std::move(stops)), include_(include) {}

  // The text that is safe to send now. After a match nothing more comes.
  std::string push(std::string_view text);
  // The end without a match: what was held back.
  std::string finish() { return matched() ? std::string() : std::exchange(held_, {}); }

  // The string that is complete first wins; of several with the same end, the longest.
  bool matched() const { return !match_.empty(); }
  const std::string& match() const { return match_; }

 private:
  std::vector<std::string> stops_;
  bool include_;
  std::string held_;
  std::string match_;
};

}  // namespace perigee::server
