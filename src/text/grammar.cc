#include "text/grammar.h"

#include <algorithm>
#include <list>
#include <mutex>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "text/grammar_machine.h"
#include "text/grammar_schema.h"

namespace perigee {
namespace {

// Compiled grammars by language and text. A matcher is a prototype: users clone it.
class GrammarCache {
 public:
  GrammarCache(std::shared_ptr<const GrammarVocabulary> vocabulary, std::size_t capacity)
      : vocabulary_(std::move(vocabulary)), capacity_(capacity) {}

  Result<std::shared_ptr<const GrammarMatcher>> get(GrammarLanguage language, const std::string& text) {
    std::string key = fmt::format("{}{}", static_cast<int>(language), text);
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = by_key_.find(key); found != by_key_.end()) {
        entries_.splice(entries_.begin(), entries_, found->second);
        return found->second->second;
      }
    }
    auto compiled = GrammarMatcher::compile(vocabulary_, language, text);
    if (!compiled.ok()) return compiled.status();
    auto matcher = std::make_shared<const GrammarMatcher>(std::move(compiled).value());
    const std::lock_guard lock(mutex_);
    if (!by_key_.contains(key)) {
      entries_.emplace_front(key, matcher);
      by_key_[std::move(key)] = entries_.begin();
      if (entries_.size() > capacity_) {
        by_key_.erase(entries_.back().first);
        entries_.pop_back();
      }
    }
    return matcher;
  }

 private:
  using Entry = std::pair<std::string, std::shared_ptr<const GrammarMatcher>>;
  const std::shared_ptr<const GrammarVocabulary> vocabulary_;
  const std::size_t capacity_;
  std::mutex mutex_;
  std::list<Entry> entries_;  // most recent first
  std::unordered_map<std::string, std::list<Entry>::iterator> by_key_;
};

const Json& any_object() {
  static const Json schema = {{"type", "object"}};
  return schema;
}

// The library says "regex" of a pattern and "oneOf constraints" of an overlap; the keyword is what a client knows.
Status name_keyword(const Status& status) {
  const std::string& message = status.message();
  if (message.starts_with("regex parse error")) return status.with_context("the keyword \"pattern\"");
  return status;
}

}  // namespace

struct GrammarCompiler::State {
  State(const Dialect& dialect_in, const Tokenizer& tokenizer, std::size_t cached)
      : dialect(dialect_in),
        vocabulary(std::make_shared<const GrammarVocabulary>(tokenizer)),
        cache(std::make_shared<GrammarCache>(vocabulary, cached)) {}

  CompileGrammar compiler() const {
    return [cache = cache](GrammarLanguage language, const std::string& text) { return cache->get(language, text); };
  }

  Result<std::shared_ptr<const GrammarMatcher>> compile_schema(const Json& schema) const {
    PERIGEE_ASSIGN_OR_RETURN(const Json prepared, prepare_schema(schema));
    auto matcher = cache->get(GrammarLanguage::kJsonSchema, compact_schema_text(prepared));
    if (!matcher.ok()) return name_keyword(matcher.status());
    return matcher;
  }

  Result<std::shared_ptr<const GrammarMatcher>> compile_format(const ResponseFormat& format) const {
    switch (format.kind) {
      case FormatKind::kText:
        break;
      case FormatKind::kJsonObject:
        return compile_schema(any_object());
      case FormatKind::kJsonSchema:
        return compile_schema(format.strict ? *format.schema : any_object());
      case FormatKind::kRegex:
        return cache->get(GrammarLanguage::kRegex, format.text);
      case FormatKind::kGrammar: {
        if (format.text.find("::=") == std::string::npos) return cache->get(GrammarLanguage::kLark, format.text);
        PERIGEE_ASSIGN_OR_RETURN(const std::string lark, lark_from_ebnf(format.text));
        return cache->get(GrammarLanguage::kLark, lark);
      }
    }
    return std::shared_ptr<const GrammarMatcher>();
  }

  Status add_tool(const Json& tool, CompiledRules& out, std::vector<std::string>& headers) const {
    if (dialect.format == PromptFormat::kXtml) {
      PERIGEE_ASSIGN_OR_RETURN(ToolRule rule, make_tool_rule(tool, out.compile));
      headers.push_back(xtml_call_header(rule));
      out.tools.push_back(std::move(rule));
      return {};
    }
    const Json& function = tool.at("function");
    const auto& name = function.at("name").get_ref<const std::string&>();
    const auto flag = function.find("strict");
    const auto parameters = function.find("parameters");
    const bool loose =
        (flag != function.end() && *flag == false) || parameters == function.end() || !parameters->is_object();
    auto arguments = compile_schema(loose ? any_object() : *parameters);
    if (!arguments.ok() && flag != function.end() && *flag == true) {
      return arguments.status().with_context(fmt::format("tool \"{}\", parameters", name));
    }
    if (!arguments.ok()) arguments = compile_schema(any_object());
    if (!arguments.ok()) return arguments.status();
    headers.push_back(turn_call_header(name));
    out.tools.push_back({.name = name, .arguments = {}, .other_keys = {}});
    out.call_arguments.push_back(std::move(arguments).value());
    return {};
  }

  Status add_tools(const GrammarRules& rules, CompiledRules& out) const {
    std::vector<std::string> headers;
    if (rules.tools != nullptr && rules.tool_choice.kind != ToolChoiceKind::kNone) {
      for (const Json& tool : *rules.tools) {
        const bool named = rules.tool_choice.kind == ToolChoiceKind::kNamed;
        if (named && tool.at("function").at("name") != rules.tool_choice.name) continue;
        PERIGEE_RETURN_IF_ERROR(add_tool(tool, out, headers));
      }
    }
    out.call_headers = std::make_shared<const std::vector<std::string>>(std::move(headers));
    return {};
  }

  Result<std::shared_ptr<const CompiledRules>> compile(const GrammarRules& rules) const {
    auto out = std::make_shared<CompiledRules>();
    out->vocabulary = vocabulary;
    out->compile = compiler();
    auto response = compile_format(rules.format);
    if (!response.ok()) return response.status().with_context(rules.format.param);
    out->response = std::move(response).value();
    if (const Status status = add_tools(rules, *out); !status.ok()) return status.with_context("tools");
    out->tools_required =
        rules.tool_choice.kind == ToolChoiceKind::kRequired || rules.tool_choice.kind == ToolChoiceKind::kNamed;
    if (out->tools_required && out->tools.empty()) return invalid_argument("tool_choice: no such tool is declared");
    out->parallel = rules.parallel_tool_calls;
    out->start = rules.start;
    out->model_opens_think = dialect.think == ThinkStyle::kAfterLastReply;
    return std::shared_ptr<const CompiledRules>(std::move(out));
  }

  const Dialect& dialect;
  std::shared_ptr<const GrammarVocabulary> vocabulary;
  std::shared_ptr<GrammarCache> cache;
};

GrammarCompiler::GrammarCompiler(const Dialect& dialect, const Tokenizer& tokenizer, std::size_t cached_grammars)
    : state_(std::make_unique<State>(dialect, tokenizer, cached_grammars)) {}

GrammarCompiler::~GrammarCompiler() = default;

bool GrammarCompiler::needs_constraint(const GrammarRules& rules) {
  return rules.format.kind != FormatKind::kText || (rules.tools != nullptr && !rules.tools->empty());
}

Result<std::unique_ptr<TokenConstraint>> GrammarCompiler::compile(const GrammarRules& rules) const {
  PERIGEE_ASSIGN_OR_RETURN(auto compiled, state_->compile(rules));
  return state_->dialect.format == PromptFormat::kXtml ? make_xtml_constraint(std::move(compiled))
                                                       : make_turn_constraint(std::move(compiled));
}

Status GrammarCompiler::check(const GrammarRules& rules) const {
  return state_->compile(rules).status();
}

}  // namespace perigee
