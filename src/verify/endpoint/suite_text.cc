// What can be seen of tokenizer and prompt format through an API: /check_tokenize, /check_detokenize, and prompt token
// check_prompt_tokens.
#include <nlohmann/json.hpp>

#include "verify/endpoint/session.h"

namespace perigee::verify {
namespace {

using IdList = std::vector<std::int64_t>;

// `tokens` of vLLM's and llama-server's answers.
std::optional<IdList> ids_of(const HttpReply& reply) {
  const auto json = parse_json(reply.body);
  if (reply.status != 200 || !json.ok() || !json->is_object() || !json->contains("tokens")) return std::nullopt;
  IdList ids;
  for (const Json& item : (*json)["tokens"]) {
    const Json& id = item.is_object() && item.contains("id") ? item["id"] : item;
    if (!id.is_number_integer()) return std::nullopt;
    ids.push_back(id.get<std::int64_t>());
  }
  return ids;
}

std::string ids_difference(const IdList& expected, const IdList& found) {
  if (expected == found) return "";
  std::size_t at = 0;
  while (at < expected.size() && at < found.size() && expected[at] == found[at]) ++at;
  const auto show = [at](const IdList& ids) {
    return at < ids.size() ? std::to_string(ids[at]) : std::string("the end");
  };
  return fmt::format("expected {} ids, found {}; at {}: expected {}, found {}", expected.size(), found.size(), at,
                     show(expected), show(found));
}

bool is_missing(int status) {
  return status == 404 || status == 405 || status == 501;
}

bool ordinary_case(const Json& item) {
  return item.value("mode", "") == "ordinary" && item.value("dialect", "k3") == "k3" && !item.contains("caps") &&
         !item.value("text", "").empty();
}
bool kept_text(const Json& item) {
  // Texts with U+FFFD lose bytes on the way through JSON on any server.
  return item.value("special", "") == "keep" && item.value("text", "").find("\xEF\xBF\xBD") == std::string::npos;
}
bool api_prompt(const Json& item) {
  if (item.value("dialect", "") != "k3" || item.contains("error") || item.contains("image_tokens")) return false;
  return item.value("level", "") == "api" && item.contains("prompt_tokens");
}
// The chat body of a case, for one token.
Json prompt_body(const Json& item) {
  Json body = item["request"];
  for (const char* key : {"stream", "n", "temperature", "top_p", "max_completion_tokens"}) body.erase(key);
  body["max_tokens"] = 1;
  return body;
}

Status check_tokenize(const SuiteContext& context, const Json& document) {
  Cases cases("tokenizer", "text to ids");
  for (const Json* item : spread(*context.options, document["cases"], ordinary_case)) {
    const Json body = {{"model", context.session->model()}, {"prompt", (*item)["text"]}, {"add_special_tokens", false}};
    PERIGEE_ASSIGN_OR_RETURN(const HttpReply reply, context.session->post("/tokenize", body));
    if (is_missing(reply.status)) {
      context.add(cases.not_offered("no /tokenize"));
      return {};
    }
    const auto ids = ids_of(reply);
    cases.add((*item)["id"].get<std::string>(), ids ? ids_difference((*item)["ids"].get<IdList>(), *ids)
                                                    : fmt::format("status {}, no tokens", reply.status));
  }
  context.add(cases.finish("/tokenize"));
  return {};
}

Status check_detokenize(const SuiteContext& context, const Json& document) {
  Cases cases("tokenizer", "ids to text");
  for (const Json* item : spread(*context.options, document["cases"], kept_text)) {
    const Json body = {{"model", context.session->model()}, {"tokens", (*item)["ids"]}};
    PERIGEE_ASSIGN_OR_RETURN(const HttpReply reply, context.session->post("/detokenize", body));
    if (is_missing(reply.status)) {
      context.add(cases.not_offered("no /detokenize"));
      return {};
    }
    const auto json = parse_json(reply.body);
    std::string found;
    bool has = false;
    for (const char* key : {"prompt", "content", "text"}) {
      if (has || !json.ok() || !json->is_object() || !json->contains(key) || !(*json)[key].is_string()) continue;
      found = (*json)[key].get<std::string>();
      has = true;
    }
    cases.add((*item)["id"].get<std::string>(), !has ? fmt::format("status {}, no text", reply.status)
                                                : found == (*item)["text"].get<std::string>()
                                                    ? ""
                                                    : "found " + shown_text(found));
  }
  context.add(cases.finish("/detokenize"));
  return {};
}

Status check_rendered_ids(const SuiteContext& context, const std::vector<const Json*>& items) {
  Cases cases("prompt", "rendered ids");
  for (const Json* item : items) {
    Json body = prompt_body(*item);
    body.erase("max_tokens");
    body["model"] = context.session->model();
    PERIGEE_ASSIGN_OR_RETURN(const HttpReply reply, context.session->post("/tokenize", body));
    const auto ids = ids_of(reply);
    if (!ids && cases.total() == 0) {
      context.add(cases.not_offered(fmt::format("/tokenize takes no messages (status {})", reply.status)));
      return {};
    }
    cases.add((*item)["id"].get<std::string>(), ids ? ids_difference((*item)["ids"].get<IdList>(), *ids)
                                                    : fmt::format("status {}, no tokens", reply.status));
  }
  context.add(cases.finish("/tokenize with messages"));
  return {};
}

// usage.prompt_tokens: exact, and up to three more (Moonshot's own verifier allows the stub to count).
Status check_prompt_tokens(const SuiteContext& context, const std::vector<const Json*>& items) {
  constexpr std::int64_t kStub = 3;
  Cases cases("prompt", "prompt tokens of usage");
  std::size_t exact = 0;
  for (const Json* item : items) {
    const std::string id = (*item)["id"];
    const auto expected = (*item)["prompt_tokens"].get<std::int64_t>();
    if (context.session->context_tokens() > 0 && expected + kStub >= context.session->context_tokens()) {
      cases.skip(id + ": longer than the context");
      continue;
    }
    PERIGEE_ASSIGN_OR_RETURN(const ChatAnswer answer, context.session->chat(prompt_body(*item)));
    if (!answer.ok()) {
      cases.add(id, answer.refusal());
      continue;
    }
    if (answer.prompt_tokens < 0) {
      context.add(cases.not_offered("answers have no usage.prompt_tokens"));
      return {};
    }
    exact += answer.prompt_tokens == expected ? 1 : 0;
    const bool right = answer.prompt_tokens >= expected && answer.prompt_tokens <= expected + kStub;
    cases.add(id, right ? "" : fmt::format("expected {}, found {}", expected, answer.prompt_tokens));
  }
  context.add(cases.finish(fmt::format("{} exact", exact)));
  return {};
}

}  // namespace

Status run_tokenizer(const SuiteContext& context) {
  PERIGEE_ASSIGN_OR_RETURN(const Json tokenizer, vector_document(*context.options, "tokenizer.json"));
  PERIGEE_RETURN_IF_ERROR(check_tokenize(context, tokenizer));
  PERIGEE_ASSIGN_OR_RETURN(const Json decode, vector_document(*context.options, "decode.json"));
  return check_detokenize(context, decode);
}

Status run_prompts(const SuiteContext& context) {
  PERIGEE_ASSIGN_OR_RETURN(const Json document, vector_document(*context.options, "render.json"));
  const std::vector<const Json*> items = spread(*context.options, document["cases"], api_prompt);
  PERIGEE_RETURN_IF_ERROR(check_rendered_ids(context, items));
  return check_prompt_tokens(context, items);
}

}  // namespace perigee::verify
