// Agent traffic after spec cache.md 6: a pool of system + tools prefixes (Zipf), sessions of many turns that each add
// about 2,200 tokens for 17 generated ones (131:1), regenerated and edited turns, shared documents, cancels, and
// bursts. The same seed gives the same requests on every machine.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "cache/keys.h"

namespace perigee {

struct AgentRequest {
  double seconds = 0;  // since the start
  std::vector<TokenId> prompt;
  std::vector<TokenId> answer;  // all sampled ids
  std::int64_t system_end = 0;
  bool cancelled = false;  // in the prefill
};

class AgentTraffic {
 public:
  struct Options {
    std::int64_t sessions = 64;
    std::int64_t prefixes = 12;
    std::int64_t documents = 20;
    std::int64_t turn_tokens = 2200;
    std::int64_t answer_tokens = 17;
    std::int64_t max_tokens = 80'000;
    std::int64_t scale = 1;  // divides every length, for tiny models
    TokenId vocab = 160'000;
  };
  AgentTraffic(std::uint64_t seed, const Options& options) : options_(options), random_(seed) {
    sessions_.resize(static_cast<std::size_t>(options.sessions));
  }

  AgentRequest next() {
    Session& session = sessions_[below(sessions_.size())];
    const auto limit = static_cast<std::size_t>(options_.max_tokens / options_.scale);
    if (session.turns.empty() || session.tokens.size() > limit) restart(session);
    AgentRequest request;
    const std::uint64_t what = below(100);
    if (what < 6 && session.turns.size() > 2) {
      // An earlier turn is edited: what follows it goes.
      session.turns.resize(1 + below(session.turns.size() - 1));
      session.tokens.resize(session.turns.back());
      append(session.tokens, options_.turn_tokens / 4, fresh());
    } else if (what < 12) {
      session.tokens.resize(session.turns.back());  // regenerate: the last prompt again
    } else {
      if (below(12) == 0)
        append(session.tokens, 4 * options_.turn_tokens, 1000 + below(static_cast<std::uint64_t>(options_.documents)));
      append(session.tokens, options_.turn_tokens, fresh());
    }
    session.turns.push_back(session.tokens.size());
    request.prompt = session.tokens;
    request.system_end = session.system_end;
    request.cancelled = below(40) == 0;
    append(request.answer, options_.answer_tokens, fresh());
    if (!request.cancelled) session.tokens.insert(session.tokens.end(), request.answer.begin(), request.answer.end());
    // Heavy-tailed gaps with mean 1 s (the fourth power of a normal has mean 3): bursts and pauses.
    seconds_ += std::pow(normal(), 4) / 3;
    request.seconds = seconds_;
    return request;
  }

 private:
  struct Session {
    std::vector<TokenId> tokens;
    std::vector<std::size_t> turns;  // prompt length of each turn
    std::int64_t system_end = 0;
  };

  // The standard's distributions differ between libraries; these do not.
  std::uint64_t below(std::uint64_t count) { return random_() % count; }
  double uniform() { return static_cast<double>(random_() >> 11) * 0x1p-53; }
  double normal() { return std::sqrt(-2 * std::log(1 - uniform())) * std::cos(2 * 3.14159265358979323846 * uniform()); }
  std::uint64_t fresh() { return 1'000'000 + random_() % 1'000'000'000; }
  std::uint64_t zipf(std::int64_t count) {
    double total = 0;
    for (std::int64_t i = 1; i <= count; ++i) total += 1.0 / static_cast<double>(i);
    double point = uniform() * total;
    std::int64_t i = 1;
    while (i < count && point > 1.0 / static_cast<double>(i)) point -= 1.0 / static_cast<double>(i++);
    return static_cast<std::uint64_t>(i);
  }
  void append(std::vector<TokenId>& tokens, std::int64_t count, std::uint64_t stream) {
    std::mt19937_64 random(stream);
    for (std::int64_t i = std::max<std::int64_t>(1, count / options_.scale); i > 0; --i) {
      tokens.push_back(static_cast<TokenId>(random() % static_cast<std::uint64_t>(options_.vocab)));
    }
  }
  void restart(Session& session) {
    session.tokens.clear();
    session.turns.clear();
    const std::uint64_t prefix = zipf(options_.prefixes);
    append(session.tokens, 6000 + 500 * static_cast<std::int64_t>(prefix), prefix);
    session.system_end = static_cast<std::int64_t>(session.tokens.size());
    session.turns.push_back(session.tokens.size());
  }

  Options options_;
  std::mt19937_64 random_;
  std::vector<Session> sessions_;
  double seconds_ = 0;
};

}  // namespace perigee
