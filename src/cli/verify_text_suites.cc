#include "cli/verify_text_suites.h"

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>

#include "server/api/request.h"
#include "text/grammar.h"
#include "text/render.h"
#include "verify/endpoint/case_body.h"
#include "verify/endpoint/schema_order.h"

namespace perigee::cli {
namespace {

struct Times {
  std::vector<double> compile_us;  // one a grammar
  std::vector<double> mask_us;     // one a step
};

std::string quantiles(std::vector<double> values) {
  if (values.empty()) return "none";
  std::sort(values.begin(), values.end());
  const auto at = [&](double q) {
    return values[static_cast<std::size_t>(q * static_cast<double>(values.size() - 1))];
  };
  return fmt::format("median {:.0f}, p90 {:.0f}, p99 {:.0f}, max {:.0f} us", at(0.5), at(0.9), at(0.99), at(1));
}

std::string note_of(const Times& times) {
  return fmt::format("{} compilations: {}; {} masks: {}", times.compile_us.size(), quantiles(times.compile_us),
                     times.mask_us.size(), quantiles(times.mask_us));
}

const Tokenizer& tokenizer() {
  static const Tokenizer kTokenizer = Tokenizer::embedded(SpecialTable::kK3);
  return kTokenizer;
}

// Documents that lack a member end here.
Result<VectorReport> guarded(const Json& document, VectorReport (*run)(const Json& document)) {
  try {
    return run(document);
  } catch (const Json::exception& error) {
    return invalid_argument("malformed vectors: {}", error.what());
  }
}

// CPU time of this thread: what the work costs, also on a busy machine.
double cpu_microseconds() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

bool allows(const std::vector<std::uint32_t>& mask, TokenId id) {
  return (mask[static_cast<std::size_t>(id) / 32] >> (static_cast<unsigned>(id) % 32) & 1U) != 0;
}

// The index of the first id that the constraint forbids; ids.size() if it allows all.
std::size_t first_forbidden(TokenConstraint& constraint, const std::vector<TokenId>& ids, Times& times) {
  std::vector<std::uint32_t> mask;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    mask.assign((static_cast<std::size_t>(tokenizer().vocab()) + 31) / 32, ~0U);
    const double start = cpu_microseconds();
    const bool masked = constraint.mask(mask);
    times.mask_us.push_back(cpu_microseconds() - start);
    if (masked && !allows(mask, ids[i])) return i;
    constraint.accept(ids[i]);
  }
  return ids.size();
}

class SchemaSuite {
 public:
  void run(const Json& item, const std::string& level) {
    GrammarRules rules;
    rules.format.kind = FormatKind::kJsonSchema;
    rules.format.schema = std::make_shared<const Json>(item.at("schema"));
    rules.start = Channel::kResponse;
    const double start = cpu_microseconds();
    const auto prototype = compiler_.compile(rules);
    times_.compile_us.push_back(cpu_microseconds() - start);
    report_.add(item.at("id").get<std::string>(), prototype.ok()
                                                      ? difference(**prototype, item, level)
                                                      : judge_refusal(prototype.status().message(), item, level));
  }

  VectorReport take() {
    report_.note = fmt::format("{} extended schemas refused by keyword; {}", refused_, note_of(times_));
    return std::move(report_);
  }

 private:
  std::string judge_refusal(const std::string& message, const Json& item, const std::string& level) {
    bool names_keyword = false;
    for (const auto& [key, unused] : item.at("schema").items()) {
      names_keyword = names_keyword || message.find(key) != std::string::npos;
    }
    if (level != "extended" || !names_keyword) return message;
    ++refused_;
    return {};
  }

  std::string difference(const TokenConstraint& prototype, const Json& item, const std::string& level) {
    for (const std::string_view kind : {"accept", "reject"}) {
      const auto list = item.find(kind);
      if (list == item.end() || (level == "format" && kind == "reject")) continue;
      for (const Json& instance : *list) {
        const bool accepted = accepts(prototype, item.at("schema"), instance);
        if (accepted != (kind == "accept")) {
          return fmt::format("{} was {}", instance.dump(), accepted ? "accepted" : "refused");
        }
      }
    }
    return {};
  }

  bool accepts(const TokenConstraint& prototype, const Json& schema, const Json& instance) {
    std::vector<TokenId> ids = tokenizer().encode(verify::in_schema_order(schema, instance).dump());
    ids.push_back(tokenizer().special(Special::kClose));
    return first_forbidden(*prototype.clone(), ids, times_) == ids.size();
  }

  const GrammarCompiler compiler_ = GrammarCompiler(kDialectK3, tokenizer());
  Times times_;
  VectorReport report_;
  int refused_ = 0;
};

constexpr std::int64_t kContextTokens = 4096;

// What a server adds to validate(): the prompt is rendered and must fit.
std::optional<api::ApiError> check_prompt(const std::string& body, const api::ApiConfig& config) {
  const auto json = api::parse_body(body);
  if (!json.ok()) return json.error();
  const auto request = api::parse_chat_completions(*json, config);
  if (!request.ok()) return request.error();
  if (!request->images.empty()) return std::nullopt;
  const Json& arguments = *request->render;
  const auto argument = [&](std::string_view name) {
    const auto found = arguments.find(name);
    return found == arguments.end() ? nullptr : &*found;
  };
  RenderRequest render_request;
  render_request.messages = argument("messages");
  render_request.tools = argument("tools");
  render_request.tool_choice = argument("tool_choice");
  render_request.response_format = argument("response_format");
  render_request.thinking = request->thinking;
  render_request.effort = arguments.value("thinking_effort", std::string());
  const auto rendered = render(kDialectK3, tokenizer(), render_request);
  if (!rendered.ok()) return api::from_field_status(rendered.status());
  if (rendered->prompt_tokens >= config.context_tokens) {
    return api::context_length_exceeded(rendered->prompt_tokens, config.context_tokens, "messages");
  }
  return std::nullopt;
}

// Empty if the error is the expected one.
std::string compare_error(const Json& expect, const std::optional<api::ApiError>& error, bool anthropic) {
  const int status = expect.at("status").get<int>();
  if (status == 200) return error ? fmt::format("was refused: {}", error->message) : std::string();
  if (!error) return "was not refused";
  if (error->status != status) return fmt::format("expected {}, found {}: {}", status, error->status, error->message);
  const std::string param = expect.value("param", std::string());
  if (error->param.substr(0, error->param.find_first_of(".[")) != param && !param.empty()) {
    return fmt::format("expected param {}, found \"{}\"", param, error->param);
  }
  const auto body = parse_json(anthropic ? api::anthropic_error_body(*error, "r") : api::openai_error_body(*error));
  for (const std::string_view name : {"code", "type"}) {
    const auto wanted = expect.find(name);
    if (wanted != expect.end() && body->at("error").value(std::string(name), Json()) != *wanted) {
      return fmt::format("expected {} {}, found {}", name, wanted->dump(), body->dump());
    }
  }
  return {};
}

ToolChoice tool_choice_of(const Json& value) {
  if (value == "none") return {.kind = ToolChoiceKind::kNone, .name = ""};
  if (value == "required") return {.kind = ToolChoiceKind::kRequired, .name = ""};
  if (value.is_object()) return {.kind = ToolChoiceKind::kNamed, .name = value.at("function").at("name")};
  return {};
}

VectorReport schema_suite(const Json& document) {
  SchemaSuite suite;
  for (const Json& item : document.at("cases")) suite.run(item, item.at("level"));
  for (const Json& item : document.at("kvv_valid_schemas")) suite.run(item, "core");
  return suite.take();
}

VectorReport grammar_suite(const Json& document) {
  VectorReport report;
  Times times;
  const GrammarCompiler compiler(kDialectK3, tokenizer());
  for (const Json& item : document.at("cases")) {
    GrammarRules rules;
    if (!item.at("tools").is_null()) rules.tools = std::make_shared<const Json>(item.at("tools"));
    rules.tool_choice = tool_choice_of(item.at("tool_choice"));
    rules.parallel_tool_calls = item.at("parallel_tool_calls");
    rules.start = item.at("start") == "think" ? Channel::kThink : Channel::kResponse;
    const double start = cpu_microseconds();
    auto constraint = compiler.compile(rules);
    times.compile_us.push_back(cpu_microseconds() - start);
    std::string difference = constraint.status().message();
    if (constraint.ok()) {
      const auto ids = item.at("ids").get<std::vector<TokenId>>();
      const std::size_t stop = first_forbidden(**constraint, ids, times);
      if ((stop == ids.size()) != item.at("accept").get<bool>()) {
        difference = stop == ids.size() ? "was accepted" : fmt::format("id {} at {} was masked", ids[stop], stop);
      }
    }
    report.add(item.at("id").get<std::string>(), difference);
  }
  report.note = note_of(times);
  return report;
}

VectorReport validate_suite(const Json& document) {
  VectorReport report;
  api::ApiConfig config;
  config.models = {"kimi-k3"};
  config.context_tokens = kContextTokens;
  config.vocab = tokenizer().vocab();
  for (const Json& item : document.at("cases")) {
    const auto mode = item.at("mode").get<std::string>();
    const auto path = item.at("path").get<std::string>();
    config.mode = mode == "strict"    ? api::ApiMode::kStrict
                  : mode == "lenient" ? api::ApiMode::kLenient
                                      : api::ApiMode::kNormal;
    std::string body = item.contains("raw_body") ? item.at("raw_body").get<std::string>() : item.at("body").dump();
    body = verify::case_body(std::move(body), "kimi-k3", kContextTokens);
    auto error = api::validate(path, body, config);
    if (!error && path == "/v1/chat/completions") error = check_prompt(body, config);
    report.add(item.at("id").get<std::string>(),
               compare_error(item.at("expect"), error, path.starts_with("/v1/messages")));
  }
  return report;
}

}  // namespace

Result<VectorReport> run_grammar_vectors(const Json& document) {
  return guarded(document, grammar_suite);
}
Result<VectorReport> run_schema_vectors(const Json& document) {
  return guarded(document, schema_suite);
}
Result<VectorReport> run_validate_vectors(const Json& document) {
  return guarded(document, validate_suite);
}

}  // namespace perigee::cli
