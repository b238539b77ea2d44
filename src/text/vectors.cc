#include "text/vectors.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/sha256.h"
#include "text/render.h"
#include "text/renderers.h"
#include "text/thinking.h"
#include "text/tokenizer.h"

namespace perigee {
namespace {

Tokenizer tokenizer_of(const Json& item) {
  return Tokenizer::embedded(item.value("dialect", "k3") == "k3" ? SpecialTable::kK3 : SpecialTable::kK2);
}

std::string join(const std::vector<TokenId>& ids) {
  std::string out;
  for (const TokenId id : ids) out += (out.empty() ? "" : " ") + std::to_string(id);
  return out;
}

std::string show(std::string_view text) {
  return Json(std::string(text.substr(0, 80))).dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Empty when equal, else the first place where they differ.
std::string compare_ids(const std::vector<TokenId>& got, const std::vector<TokenId>& want) {
  if (got == want) return "";
  const auto differ = std::mismatch(got.begin(), got.end(), want.begin(), want.end());
  const auto id = [](const std::vector<TokenId>& ids, auto at) {
    return at == ids.end() ? "end" : std::to_string(*at);
  };
  return fmt::format("id {}: expected {}, found {}", differ.second - want.begin(), id(want, differ.second),
                     id(got, differ.first));
}

template <typename T>
std::string compare_value(const char* what, const T& got, const T& want) {
  return got == want ? "" : fmt::format("{}: expected {}, found {}", what, want, got);
}

std::string tokenizer_case(const Json& item) {
  const Tokenizer tokenizer = tokenizer_of(item);
  Tokenizer::ChunkLimits limits;
  if (item.contains("caps")) limits = {item["caps"].at("run"), item["caps"].at("outer")};
  std::vector<TokenId> got;
  tokenizer.encode(item.at("text").get<std::string>(), item.at("mode") == "special", limits, got);
  return compare_ids(got, item.at("ids").get<std::vector<TokenId>>());
}

std::string recipe_case(const Json& item) {
  std::string text;
  for (const Json& part : item.at("recipe")) {
    for (auto count = part.at(1).get<std::size_t>(); count > 0; --count) text += part.at(0).get<std::string>();
  }
  if (item.at("utf8_sha256") != to_hex(sha256(std::as_bytes(std::span(text))))) return "the recipe gives other bytes";
  std::vector<TokenId> got;
  tokenizer_of(item).encode(text, item.at("mode") == "special", {}, got);
  if (item.at("count") != got.size()) return fmt::format("expected {} ids, found {}", item["count"].dump(), got.size());
  const auto head = item.at("ids_head").get<std::vector<TokenId>>();
  const auto tail = item.at("ids_tail").get<std::vector<TokenId>>();
  if (!std::equal(head.begin(), head.end(), got.begin())) return "the first ids differ";
  if (!std::equal(tail.rbegin(), tail.rend(), got.rbegin())) return "the last ids differ";
  const std::string all = join(got);
  return item.at("ids_sha256") == to_hex(sha256(std::as_bytes(std::span(all)))) ? "" : "the ids' digest differs";
}

std::string decode_case(const Json& item) {
  const Tokenizer tokenizer = tokenizer_of(item);
  const auto ids = item.at("ids").get<std::vector<TokenId>>();
  const SpecialText specials = item.at("special") == "keep" ? SpecialText::kKeep : SpecialText::kDrop;
  const std::string bytes = tokenizer.decode_bytes(ids, specials);
  if (item.at("bytes_hex") != to_hex(std::as_bytes(std::span(bytes)))) return "bytes differ";
  if (item.at("text") != tokenizer.decode(ids, specials)) return "text differs";
  StreamDecoder decoder(tokenizer, specials);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::string step = decoder.push(ids[i]);
    if (item.at("steps").at(i) != step) return fmt::format("step {}: found {}", i, show(step));
  }
  return item.at("flush") == decoder.finish() ? "" : "flush differs";
}

// The renderer's arguments of a case, from its own form or from a chat-completions body.
Status fill_request(const Dialect& dialect, const Json& item, RenderRequest& request) {
  const Json& body = item.at("request");
  request.messages = &body.at("messages");
  const auto member = [&](const char* key) { return body.contains(key) ? &body[key] : nullptr; };
  request.tools = member("tools");
  request.tool_choice = member("tool_choice");
  request.response_format = member("response_format");
  if (item.at("level") == "renderer") {
    request.thinking = body.value("thinking", true);
    request.effort = body.value("thinking_effort", "");
    request.add_generation_prompt = body.value("add_generation_prompt", true);
  } else {
    PERIGEE_ASSIGN_OR_RETURN(const ThinkingControl control,
                             thinking_control(dialect.default_effort, body, item["level"] == "api_lenient"));
    request.thinking = control.thinking;
    request.effort = control.effort;
  }
  if (body.contains("images")) {
    for (const Json& size : body["images"]) request.images.push_back({size.at(0), size.at(1)});
  } else if (item["id"] == "k25.image" && !dialect.image_size) {
    request.images.push_back({1, 1});  // the older blocks say no size, so that case has none
  }
  return {};
}

std::string compare_rendered(const Json& item, const Tokenizer& tokenizer, const RenderRequest& request,
                             const Rendered& got) {
  if (auto ids = compare_ids(got.ids, item.at("ids").get<std::vector<TokenId>>()); !ids.empty()) return ids;
  if (item.at("text") != tokenizer.decode(got.ids, SpecialText::kKeep)) return "text differs";
  if (item.contains("prompt_tokens")) {
    const auto want = item["prompt_tokens"].get<std::int64_t>();
    if (auto tokens = compare_value("prompt_tokens", got.prompt_tokens, want); !tokens.empty()) return tokens;
  }
  if (got.images.size() != request.images.size()) return "number of images differs";
  for (const ImageSlot& slot : got.images) {
    if (got.ids[slot.position] != tokenizer.special(Special::kMediaPad)) return "an image's position is no pad";
    if (!item.contains("image_tokens")) continue;
    const auto want = item["image_tokens"].at(slot.image).get<std::int64_t>();
    if (auto tokens = compare_value("image tokens", slot.tokens, want); !tokens.empty()) return tokens;
  }
  const std::size_t expanded = expand_images(got).size();
  if (item.contains("expanded_length")) {
    return compare_value("expanded length", expanded, item["expanded_length"].get<std::size_t>());
  }
  return "";
}

std::string render_case(const Json& item) {
  const Dialect* dialect = find_dialect(item.at("dialect").get<std::string>());
  if (dialect == nullptr) return "unknown dialect";
  const Tokenizer tokenizer = Tokenizer::embedded(dialect->specials);
  RenderRequest request;
  Status status = fill_request(*dialect, item, request);
  if (status.ok()) {
    const Result<Rendered> rendered = render(*dialect, tokenizer, request);
    if (rendered.ok()) {
      if (item.contains("error")) return "expected an error, found a prompt";
      return compare_rendered(item, tokenizer, request, *rendered);
    }
    status = rendered.status();
  }
  if (!item.contains("error")) return "unexpected error: " + status.message();
  return status.message().find(": ") == std::string::npos ? "the error names no field: " + status.message() : "";
}

std::string typescript_case(const Json& item) {
  const Result<std::string> text = typescript_tools(item.at("tools"));
  if (!text.ok()) return "unexpected error: " + text.status().message();
  return item.at("text") == *text ? "" : "found " + *text;
}

}  // namespace

// nlohmann throws on a document of another shape; no exception leaves a suite.
Result<VectorReport> run_vector_cases(const Json& document, const char* key, VectorReport report,
                                      std::string (*run)(const Json&)) {
  try {
    for (const Json& item : document.at(key)) report.add(item.at("id").get<std::string>(), run(item));
  } catch (const Json::exception& error) {
    return invalid_argument("{}[{}]: {}", key, report.total, error.what());
  }
  return report;
}

Result<VectorReport> run_tokenizer_vectors(const Json& document) {
  PERIGEE_ASSIGN_OR_RETURN(auto report, run_vector_cases(document, "cases", {}, tokenizer_case));
  return run_vector_cases(document, "recipes", std::move(report), recipe_case);
}

Result<VectorReport> run_decode_vectors(const Json& document) {
  return run_vector_cases(document, "cases", {}, decode_case);
}

Result<VectorReport> run_render_vectors(const Json& document) {
  PERIGEE_ASSIGN_OR_RETURN(auto report, run_vector_cases(document, "cases", {}, render_case));
  return run_vector_cases(document, "typescript_tools", std::move(report), typescript_case);
}

}  // namespace perigee
