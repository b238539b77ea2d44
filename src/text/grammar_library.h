// llguidance behind two value types: a vocabulary, and a matcher of one text (a JSON document, a regular expression's
// match, a Lark grammar's sentence) over ordinary tokens. Special ids are unknown to it: they belong to
// grammar_machine.h. Internal to src/text.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/tokenizer.h"

extern "C" {
struct LlgTokenizer;
struct LlgMatcher;
}

namespace perigee {

// Immutable; set-up takes about a second and 76 MiB for the released vocabulary. Thread-safe.
class GrammarVocabulary {
 public:
  explicit GrammarVocabulary(const Tokenizer& tokenizer);

  const LlgTokenizer* handle() const { return handle_.get(); }
  const Tokenizer& tokenizer() const { return tokenizer_; }
  // Ordinary ids only. `id`: whose bytes are `text`, or -1. `extends`: some token is longer and begins with `text`.
  struct Found {
    TokenId id = -1;
    bool extends = false;
  };
  Found find_prefix(std::string_view text) const;
  const std::vector<TokenId>& digit_tokens() const { return digit_tokens_; }  // ids of [0-9]+
  std::size_t mask_words() const { return (static_cast<std::size_t>(tokenizer_.vocab()) + 31) / 32; }

 private:
  Tokenizer tokenizer_;
  std::shared_ptr<LlgTokenizer> handle_;
  std::vector<TokenId> by_bytes_;  // ordinary ids in byte order
  std::vector<TokenId> digit_tokens_;
};

enum class GrammarLanguage : std::uint8_t { kJsonSchema, kRegex, kLark };

class GrammarMatcher {
 public:
  // Bounded in time and memory by limits on the grammar's size, the lexer's fuel and its states. Errors are
  // kInvalidArgument with the library's words.
  static Result<GrammarMatcher> compile(std::shared_ptr<const GrammarVocabulary> vocabulary, GrammarLanguage language,
                                        const std::string& text);

  GrammarMatcher clone() const;

  // Clears the bits of ids that cannot come next. False: the library gave up (its step limits were passed); the mask
  // is then left as it is, except that nothing is allowed.
  bool mask(std::vector<std::uint32_t>& allowed);
  // False: the token does not fit; the matcher is then dead.
  bool accept(TokenId token);
  // The text so far is complete.
  bool accepting() const;

 private:
  GrammarMatcher(std::shared_ptr<const GrammarVocabulary> vocabulary, LlgMatcher* handle);

  std::shared_ptr<const GrammarVocabulary> vocabulary_;
  std::shared_ptr<LlgMatcher> handle_;
};

}  // namespace perigee
