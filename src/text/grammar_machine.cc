#include "text/grammar_machine.h"

#include <algorithm>

namespace perigee {

std::string xtml_call_header(const ToolRule& tool) {
  return fmt::format("call tool=\"{}\" index=\"{}\"", tool.name, LiteralMatcher::kCount);
}

std::string turn_call_header(const std::string& name) {
  return fmt::format("functions.{}:{}", name, LiteralMatcher::kIndex);
}

std::string other_key_grammar(const ToolRule& tool, const std::vector<std::string>& taken) {
  std::string excluded;
  const auto exclude = [&](const std::string& key) {
    if (!excluded.empty()) excluded += '|';
    excluded += regex_literal(key);
  };
  for (const ArgumentRule& argument : tool.arguments) exclude(argument.key);
  for (const std::string& key : taken) exclude(key);
  std::string types;
  for (const ValueForm& form : tool.other_keys) types += (types.empty() ? "" : "|") + form.type;
  const bool none = tool.arguments.empty() && taken.empty();
  return fmt::format(
      "start: HEADER\n"
      "HEADER: /argument key=\"/ KEY /\" type=\"({})\"/\n"
      "KEY: /([^\"&]|&amp;|&quot;)*/{}\n",
      types, none ? "" : fmt::format(" & ~/({})/", excluded));
}

void allow_ordinary(std::vector<std::uint32_t>& bits, TokenId first_special) {
  const auto words = static_cast<std::size_t>(first_special) / 32;
  std::fill(bits.begin(), bits.begin() + static_cast<std::ptrdiff_t>(words), ~0U);
  const unsigned rest = static_cast<unsigned>(first_special) % 32;
  if (rest != 0) bits[words] |= (1U << rest) - 1;
}

TextMatcher::TextMatcher(const ValueForm& form) : kind_(form.kind) {
  if (kind_ == ValueForm::Kind::kLiterals) literals_ = LiteralMatcher(form.literals);
  if (kind_ == ValueForm::Kind::kMatcher) matcher_ = std::make_unique<GrammarMatcher>(form.matcher->clone());
}

TextMatcher::TextMatcher(const std::shared_ptr<const GrammarMatcher>& prototype) {
  if (prototype == nullptr) return;
  kind_ = ValueForm::Kind::kMatcher;
  matcher_ = std::make_unique<GrammarMatcher>(prototype->clone());
}

TextMatcher::TextMatcher(const TextMatcher& other)
    : kind_(other.kind_),
      literals_(other.literals_),
      matcher_(other.matcher_ == nullptr ? nullptr : std::make_unique<GrammarMatcher>(other.matcher_->clone())) {}

TextMatcher& TextMatcher::operator=(const TextMatcher& other) {
  if (this != &other) *this = TextMatcher(other);
  return *this;
}

void TextMatcher::allow(const GrammarVocabulary& vocabulary, std::vector<std::uint32_t>& bits) {
  const TokenId first_special = vocabulary.tokenizer().first_special();
  switch (kind_) {
    case ValueForm::Kind::kFreeText:
      allow_ordinary(bits, first_special);
      break;
    case ValueForm::Kind::kLiterals:
      literals_.allow(vocabulary, bits);
      break;
    case ValueForm::Kind::kMatcher: {
      std::vector<std::uint32_t> own(bits.size(), ~0U);
      matcher_->mask(own);
      // The library marks the end of its text with the end-of-message id; where the text ends is our business.
      for (TokenId id = first_special; id < vocabulary.tokenizer().vocab(); ++id) forbid_bit(own, id);
      for (std::size_t i = 0; i < bits.size(); ++i) bits[i] |= own[i];
      break;
    }
  }
}

bool TextMatcher::accept(const GrammarVocabulary& vocabulary, TokenId token) {
  switch (kind_) {
    case ValueForm::Kind::kFreeText:
      return true;
    case ValueForm::Kind::kLiterals:
      return literals_.accept(vocabulary.tokenizer().bytes(token));
    default:
      return matcher_->accept(token);
  }
}

bool TextMatcher::complete() const {
  switch (kind_) {
    case ValueForm::Kind::kFreeText:
      return true;
    case ValueForm::Kind::kLiterals:
      return literals_.complete() >= 0;
    default:
      return matcher_->accepting();
  }
}

}  // namespace perigee
