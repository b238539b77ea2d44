#include <algorithm>
#include <cmath>

#include "verify/endpoint/session.h"

namespace perigee::verify {
namespace {

// Log-probability that `answer` gave to `token` in place `at`; nullptr where it is not among the listed ones.
const double* logprob_of_token(const AnswerToken& place, const std::string& token) {
  if (place.token == token) return &place.logprob;
  for (const auto& [name, logprob] : place.top) {
    if (name == token) return &logprob;
  }
  return nullptr;
}

std::string whole_text(const ChatAnswer& answer) {
  return answer.reasoning + "\n" + answer.content;
}

}  // namespace

std::string compare_answers(const ChatAnswer& expected, const ChatAnswer& found, double tolerance, std::string& note) {
  note.clear();
  const std::size_t places = std::min(expected.tokens.size(), found.tokens.size());
  double worst = 0;
  double sum = 0;
  double divergence = 0;
  std::size_t at = 0;
  for (; at < places && expected.tokens[at].token == found.tokens[at].token; ++at) {
    const double difference = std::abs(expected.tokens[at].logprob - found.tokens[at].logprob);
    worst = std::max(worst, difference);
    sum += difference;
    // Over the tokens that both list; a lower bound of the divergence of the whole distributions.
    for (const auto& [token, logprob] : expected.tokens[at].top) {
      if (const double* other = logprob_of_token(found.tokens[at], token)) {
        divergence += std::exp(logprob) * (logprob - *other);
      }
    }
  }
  if (at > 0) {
    note = fmt::format("{} tokens, logprobs differ by {:.2g} at most, {:.2g} on average, KL of the listed {:.2g}", at,
                       worst, sum / static_cast<double>(at), divergence / static_cast<double>(at));
  }
  if (worst > tolerance) {
    return fmt::format("logprobs differ by {:.3g}, allowed are {:.3g}", worst, tolerance);
  }
  if (at < places) {
    const AnswerToken& mine = expected.tokens[at];
    const double* other = logprob_of_token(mine, found.tokens[at].token);
    if (other != nullptr && mine.logprob - *other <= tolerance) {
      note += fmt::format("; parts at token {} at a tie ({:.2g} apart)", at, mine.logprob - *other);
      return "";
    }
    return fmt::format("parts at token {}: expected {}, found {}{}", at, shown_text(mine.token),
                       shown_text(found.tokens[at].token),
                       other == nullptr ? "" : fmt::format(" ({:.3g} less likely)", mine.logprob - *other));
  }
  if (expected.tokens.size() == found.tokens.size() && whole_text(expected) == whole_text(found)) return "";
  if (places == 0 && whole_text(expected) == whole_text(found)) {
    note = "texts are equal; no logprobs";
    return "";
  }
  const std::string a = whole_text(expected);
  const std::string b = whole_text(found);
  std::size_t byte = 0;
  while (byte < a.size() && byte < b.size() && a[byte] == b[byte]) ++byte;
  return fmt::format("texts part at byte {}: expected {}, found {}", byte, shown_text(a.substr(byte)),
                     shown_text(b.substr(byte)));
}

}  // namespace perigee::verify
