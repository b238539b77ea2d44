// The prefix cache through the API: a repeated prompt and a next turn are found in it (usage says so) and answered as
// they are without it.
#include <chrono>
#include <nlohmann/json.hpp>
#include <random>

#include "verify/endpoint/session.h"

namespace perigee::verify {
namespace {

constexpr std::int64_t kCacheAnswerTokens = 24;

// Text of about `tokens` tokens (a word and its blank are one or two) that no earlier request can have begun with.
std::string fresh_text(std::int64_t tokens, const std::string& nonce) {
  constexpr const char* kWords[] = {"river", "stone", "garden", "window", "market", "engine", "letter", "harbor"};
  std::string text = "Notes of session " + nonce + ".";
  std::mt19937 random(static_cast<std::mt19937::result_type>(std::hash<std::string>()(nonce)));
  for (std::int64_t i = 0; i < tokens; ++i) text += std::string(" ") + kWords[random() % std::size(kWords)];
  return text;
}

std::string fresh_nonce() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}", device(), device());
}

std::string cache_problem(const ChatAnswer& answer) {
  if (!answer.ok()) return answer.refusal();
  return answer.faults.empty() ? "" : answer.faults.front();
}

}  // namespace

Status run_cache(const SuiteContext& context) {
  Session& session = *context.session;
  std::int64_t length = context.options->cache_tokens;
  // Two turns and their answers must fit.
  if (session.context_tokens() > 0) length = std::min(length, session.context_tokens() / 4);
  const std::string nonce = fresh_nonce();
  Json body = session.plain(fresh_text(length, nonce) + "\nWhich words occur most often?", kCacheAnswerTokens);
  body["logprobs"] = true;
  body["top_logprobs"] = 5;
  PERIGEE_ASSIGN_OR_RETURN(ChatAnswer cold, session.chat(body));
  if (!cold.ok()) {
    body.erase("logprobs");
    body.erase("top_logprobs");
    PERIGEE_ASSIGN_OR_RETURN(cold, session.chat(body));
  }
  PERIGEE_ASSIGN_OR_RETURN(const ChatAnswer warm, session.chat(body));

  Json turn = body;
  turn["messages"].push_back({{"role", "assistant"}, {"content", cold.content}});
  if (!cold.reasoning.empty()) turn["messages"].back()["reasoning_content"] = cold.reasoning;
  turn["messages"].push_back({{"role", "user"}, {"content", "And which occurs least often?"}});
  PERIGEE_ASSIGN_OR_RETURN(const ChatAnswer next, session.chat(turn));
  Json apart = turn;
  apart["cache_salt"] = "apart-" + nonce;
  PERIGEE_ASSIGN_OR_RETURN(const ChatAnswer uncached, session.chat(apart));

  Cases hits("cache", "a warm prompt is found");
  if (cold.cached_tokens < 0 && warm.cached_tokens < 0) {
    context.add(hits.not_offered("usage has no cached_tokens"));
  } else {
    const std::string first = cache_problem(cold).empty() ? cache_problem(warm) : cache_problem(cold);
    // At least half: a hit ends at a block, and blocks of hybrid models are long.
    const auto judge = [](const ChatAnswer& answer, std::int64_t known) -> std::string {
      const std::string problem = cache_problem(answer);
      if (!problem.empty()) return problem;
      if (answer.cached_tokens > answer.prompt_tokens) {
        return fmt::format("{} cached of {} prompt tokens", answer.cached_tokens, answer.prompt_tokens);
      }
      return answer.cached_tokens * 2 >= known ? ""
                                               : fmt::format("{} of {} tokens were found", answer.cached_tokens, known);
    };
    hits.add("first time", !first.empty() ? first
                           : cold.cached_tokens <= 64
                               ? ""
                               : fmt::format("{} tokens of a prompt that is new", cold.cached_tokens));
    hits.add("same prompt again", judge(warm, cold.prompt_tokens));
    hits.add("next turn", judge(next, cold.prompt_tokens));
    context.add(hits.finish(fmt::format("cached {} of {}, then {} of {}, next turn {} of {}", cold.cached_tokens,
                                        cold.prompt_tokens, warm.cached_tokens, warm.prompt_tokens, next.cached_tokens,
                                        next.prompt_tokens)));
  }

  Cases equal("cache", "a warm answer equals the cold one");
  if (!session.deterministic()) {
    context.add(equal.not_offered("temperature 0 is refused"));
    return {};
  }
  std::string note;
  std::string detail;
  equal.add("same prompt", cache_problem(warm).empty() ? compare_answers(cold, warm, context.options->tolerance, note)
                                                       : cache_problem(warm));
  detail = note;
  if (uncached.ok() && uncached.cached_tokens >= 0 && uncached.cached_tokens <= 64) {
    equal.add("next turn", compare_answers(uncached, next, context.options->tolerance, note));
    detail += "; next turn: " + note;
  } else {
    equal.skip("next turn: cache_salt gives no cold copy");
  }
  context.add(equal.finish(detail));
  return {};
}

}  // namespace perigee::verify
