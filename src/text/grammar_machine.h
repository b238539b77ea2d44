// The markup of an answer as a machine over token ids; texts between markers are left to matchers. One implementation a
// prompt format. Internal to src/text.
#pragma once

#include <memory>
#include <vector>

#include "text/grammar_literals.h"
#include "text/grammar_rules.h"
#include "text/grammar_tools.h"
#include "text/token_constraint.h"

namespace perigee {

// What a request compiles to. Immutable, shared by all branches.
struct CompiledRules {
  std::shared_ptr<const GrammarVocabulary> vocabulary;
  std::shared_ptr<const GrammarMatcher> response;  // null: any text
  std::vector<ToolRule> tools;                     // those that may be called; empty: no tool section
  bool tools_required = false;
  bool parallel = true;
  Channel start = Channel::kThink;
  CompileGrammar compile;  // for headers of undeclared keys, whose set is known only while the answer grows

  std::shared_ptr<const std::vector<std::string>> call_headers;  // one a tool
  // K2 family: the arguments of each tool as one JSON document, and whether the model may open <think> itself.
  std::vector<std::shared_ptr<const GrammarMatcher>> call_arguments;
  bool model_opens_think = false;
};

// `call tool="NAME" index="N"`, `functions.NAME:N`, and `argument key="K" type="T"` for undeclared keys other than
// `taken`, as Lark.
std::string xtml_call_header(const ToolRule& tool);
std::string turn_call_header(const std::string& name);
std::string other_key_grammar(const ToolRule& tool, const std::vector<std::string>& taken);

std::unique_ptr<TokenConstraint> make_xtml_constraint(std::shared_ptr<const CompiledRules> rules);
std::unique_ptr<TokenConstraint> make_turn_constraint(std::shared_ptr<const CompiledRules> rules);

// Bits of a mask.
inline void allow_bit(std::vector<std::uint32_t>& bits, TokenId id) {
  bits[static_cast<std::size_t>(id) / 32] |= 1U << (static_cast<unsigned>(id) % 32);
}
inline void forbid_bit(std::vector<std::uint32_t>& bits, TokenId id) {
  bits[static_cast<std::size_t>(id) / 32] &= ~(1U << (static_cast<unsigned>(id) % 32));
}
// Sets all ids below `first_special`.
void allow_ordinary(std::vector<std::uint32_t>& bits, TokenId first_special);

// A text that a matcher, a set of literals, or nobody constrains.
class TextMatcher {
 public:
  TextMatcher() = default;  // any text
  explicit TextMatcher(const ValueForm& form);
  explicit TextMatcher(const std::shared_ptr<const GrammarMatcher>& prototype);
  TextMatcher(const TextMatcher& other);
  TextMatcher& operator=(const TextMatcher& other);
  TextMatcher(TextMatcher&&) = default;
  TextMatcher& operator=(TextMatcher&&) = default;
  ~TextMatcher() = default;

  void allow(const GrammarVocabulary& vocabulary, std::vector<std::uint32_t>& bits);
  bool accept(const GrammarVocabulary& vocabulary, TokenId token);
  bool complete() const;
  bool is_free() const { return kind_ == ValueForm::Kind::kFreeText; }

 private:
  ValueForm::Kind kind_ = ValueForm::Kind::kFreeText;
  LiteralMatcher literals_;
  std::unique_ptr<GrammarMatcher> matcher_;
};

}  // namespace perigee
