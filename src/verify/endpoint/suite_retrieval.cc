// Long contexts: a fact at several depths of a long text is found again.
#include <nlohmann/json.hpp>

#include "verify/endpoint/session.h"

namespace perigee::verify {
namespace {

constexpr std::int64_t kRetrievalTokens = 64;
constexpr double kDepths[] = {0.1, 0.5, 0.9};
// About 20 tokens; numbered, so that no two are equal.
constexpr const char* kFiller =
    "Entry {}: the archive lists crates of tin, rope and paper that came by river in the spring.\n";
constexpr std::int64_t kFillerTokens = 22;

std::string haystack(std::int64_t tokens, double depth, const std::string& needle) {
  const std::int64_t lines = std::max<std::int64_t>(tokens / kFillerTokens, 2);
  const auto at = static_cast<std::int64_t>(depth * static_cast<double>(lines));
  std::string text;
  for (std::int64_t i = 0; i < lines; ++i) {
    if (i == at) text += needle + "\n";
    text += fmt::format(fmt::runtime(kFiller), i);
  }
  return text;
}

}  // namespace

Status run_retrieval(const SuiteContext& context) {
  Session& session = *context.session;
  std::vector<std::int64_t> lengths = context.options->needle_lengths;
  if (lengths.empty()) lengths = {2000, 8000};
  for (const std::int64_t length : lengths) {
    Cases cases("retrieval", fmt::format("a number in {} tokens", length));
    if (session.context_tokens() > 0 && length + length / 8 + kRetrievalTokens > session.context_tokens()) {
      context.add(cases.not_offered(fmt::format("the context is {} tokens", session.context_tokens())));
      continue;
    }
    std::int64_t seen = 0;
    for (const double depth : kDepths) {
      const std::int64_t code = 10000 + (length * 31 + static_cast<std::int64_t>(depth * 1000) * 17) % 90000;
      const std::string number = std::to_string(code);
      const std::string text =
          haystack(length, depth, fmt::format("Entry of the keeper: the code of the vault is {}.", number)) +
          "\nWhat is the code of the vault? Answer with the number alone.";
      PERIGEE_ASSIGN_OR_RETURN(const ChatAnswer answer, session.chat(session.plain(text, kRetrievalTokens)));
      seen = std::max(seen, answer.prompt_tokens);
      const std::string id = fmt::format("depth {:.0f} %", depth * 100);
      cases.add(id, !answer.ok() ? answer.refusal()
                    : (answer.content + answer.reasoning).find(number) != std::string::npos
                        ? ""
                        : fmt::format("expected {}, found {}", number, shown_text(answer.content)));
    }
    context.add(cases.finish(seen > 0 ? fmt::format("{} prompt tokens", seen) : ""));
  }
  return {};
}

}  // namespace perigee::verify
