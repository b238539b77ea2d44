// Greedy answers with log-probabilities against a stored reference or another endpoint, such as `perigee serve` with
// the same checkpoint. Answers are compared up to the place where they part: from there on contexts differ.
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "verify/endpoint/session.h"

namespace perigee::verify {
namespace {

constexpr std::int64_t kReferenceTokens = 32;
constexpr int kReferenceTop = 10;
constexpr const char* kReferenceFormat = "perigee-endpoint-reference/1";

struct ReferencePrompt {
  const char* id;
  const char* text;
};
constexpr ReferencePrompt kReferencePrompts[] = {
    {"capital", "What is the capital of France? Answer in one word."},
    {"arithmetic", "Compute 17 * 23 step by step."},
    {"chinese", "请用三句话解释光合作用。"},
    {"code", "Write a Python function that returns the n-th Fibonacci number."},
    {"json", "Give a JSON object with the keys name and age for Ada, 36."},
    {"list", "List the planets of the solar system in order, one a line."},
    {"translate", "Translate into German: The ship reached the harbour before the storm."},
    {"story", "Begin a short story about a lighthouse keeper."},
};

Json reference_body(const Session& session, const ReferencePrompt& prompt) {
  Json body = session.plain(prompt.text, kReferenceTokens);
  body["logprobs"] = true;
  body["top_logprobs"] = kReferenceTop;
  return body;
}

Json reference_json(const ChatAnswer& answer) {
  Json tokens = Json::array();
  for (const AnswerToken& token : answer.tokens) {
    Json top = Json::array();
    for (const auto& [name, logprob] : token.top) top.push_back({name, logprob});
    tokens.push_back({{"token", token.token}, {"logprob", token.logprob}, {"top", std::move(top)}});
  }
  return {{"content", answer.content}, {"reasoning", answer.reasoning}, {"tokens", std::move(tokens)}};
}

Result<ChatAnswer> read_reference(const Json& item) {
  ChatAnswer answer;
  answer.status = 200;
  try {
    answer.content = item.at("content");
    answer.reasoning = item.at("reasoning");
    for (const Json& token : item.at("tokens")) {
      AnswerToken& place = answer.tokens.emplace_back();
      place.token = token.at("token");
      place.logprob = token.at("logprob");
      for (const Json& entry : token.at("top")) place.top.emplace_back(entry.at(0), entry.at(1));
    }
  } catch (const Json::exception& error) {
    return invalid_argument("malformed: {}", error.what());
  }
  return answer;
}

using Answers = std::vector<std::pair<std::string, ChatAnswer>>;

Result<Answers> read_file_answers(const std::string& path) {
  PERIGEE_ASSIGN_OR_RETURN(const Json document, read_json_file(path));
  const bool known = document.is_object() && document.value("format", Json()) == kReferenceFormat;
  if (!known || !document.contains("cases") || !document["cases"].is_object()) {
    return invalid_argument("{}: expected format {} with \"cases\"", path, kReferenceFormat);
  }
  Answers out;
  for (const auto& [id, item] : document["cases"].items()) {
    auto answer = read_reference(item);
    if (!answer.ok()) return answer.status().with_context(path + ": " + id);
    out.emplace_back(id, std::move(answer).value());
  }
  return out;
}

Result<Answers> ask_all(Session& session) {
  Answers out;
  for (const ReferencePrompt& prompt : kReferencePrompts) {
    PERIGEE_ASSIGN_OR_RETURN(ChatAnswer answer, session.chat(reference_body(session, prompt)));
    out.emplace_back(prompt.id, std::move(answer));
  }
  return out;
}

}  // namespace

Status run_logprobs(const SuiteContext& context) {
  const EndpointOptions& options = *context.options;
  if (options.reference.empty() && options.save_reference.empty()) return {};
  Session& session = *context.session;
  Cases cases("logprobs", "greedy answers against the reference");
  if (!session.deterministic()) {
    context.add(cases.not_offered("temperature 0 is refused"));
    return {};
  }
  PERIGEE_ASSIGN_OR_RETURN(const Answers own, ask_all(session));
  const ChatAnswer& first = own.front().second;
  if (!first.ok() || first.tokens.empty()) {
    context.add(cases.not_offered(first.ok() ? "answers have no logprobs" : first.refusal()));
    return {};
  }
  if (!options.save_reference.empty()) {
    Json document = {{"format", kReferenceFormat}, {"model", session.model()}, {"cases", Json::object()}};
    for (const auto& [id, answer] : own) document["cases"][id] = reference_json(answer);
    PERIGEE_RETURN_IF_ERROR(
        write_file(options.save_reference, document.dump(1, ' ', false, Json::error_handler_t::replace)));
  }
  if (options.reference.empty()) return {};

  Answers expected;
  if (options.reference.starts_with("http://") || options.reference.starts_with("https://")) {
    auto other = Session::open(options.reference, options.http, options.reference_model);
    if (!other.ok()) return other.status().with_context("reference");
    PERIGEE_ASSIGN_OR_RETURN(expected, ask_all(**other));
    context.report->reference = options.reference + " (" + (*other)->model() + ")";
  } else {
    PERIGEE_ASSIGN_OR_RETURN(expected, read_file_answers(options.reference));
    context.report->reference = options.reference;
  }
  std::string detail;
  for (const auto& [id, answer] : own) {
    const ChatAnswer* reference = nullptr;
    for (const auto& [name, stored] : expected) {
      if (name == id) reference = &stored;
    }
    if (reference == nullptr || !reference->ok() || reference->tokens.empty()) {
      cases.skip(id + ": the reference has no such answer");
      continue;
    }
    std::string note;
    const std::string difference =
        answer.ok() ? compare_answers(*reference, answer, options.tolerance, note) : answer.refusal();
    cases.add(id, difference);
    detail += fmt::format("{}{}: {}", detail.empty() ? "" : "; ", id, note.empty() ? "-" : note);
  }
  context.add(cases.finish(detail));
  return {};
}

}  // namespace perigee::verify
