// Structured output (spec chat.md 6): a request's rules become a TokenConstraint for the engine. Two layers: the markup
// of the answer (channels, tool section, headers) is ours and is followed by token id; the grammar library only sees
// the text of one response, or one argument value. Reasoning is never masked by a grammar: there only the marker ids
// are held back that could not stand at that place.
#pragma once

#include <cstddef>
#include <memory>

#include "base/status.h"
#include "text/dialect.h"
#include "text/grammar_rules.h"
#include "text/token_constraint.h"
#include "text/tokenizer.h"

namespace perigee {

// Thread-safe. Compiled grammars are cached by their text, least recently used out first.
class GrammarCompiler {
 public:
  GrammarCompiler(const Dialect& dialect, const Tokenizer& tokenizer, std::size_t cached_grammars = 1024);
  ~GrammarCompiler();

  // False where the rules ask for nothing: no format, and no tools that could be called.
  static bool needs_constraint(const GrammarRules& rules);

  // Some milliseconds at most for each grammar that is not cached: call it on the request's thread, not on the
  // engine's. Errors are kInvalidArgument; they begin with the request's field ("response_format.json_schema.schema:
  // /properties/a/not: the keyword ..." or "tools: ..."). A schema that must hold is never weakened in silence.
  Result<std::unique_ptr<TokenConstraint>> compile(const GrammarRules& rules) const;

  // The same judgement without keeping anything: nullopt-like ok Status if compile() would succeed.
  Status check(const GrammarRules& rules) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// A GBNF or W3C-style EBNF grammar (`root ::= "a" [0-9]+`) in Lark form. Errors name the line.
Result<std::string> lark_from_ebnf(std::string_view text);

}  // namespace perigee
