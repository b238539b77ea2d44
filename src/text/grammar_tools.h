// What a declared tool allows as arguments, for K3's form in which every top-level argument is an element of its own:
// which keys, with which type attributes, and how each value is spelled (spec chat.md 2.3, 6.2). Internal to src/text.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "text/grammar_library.h"

namespace perigee {

// Compiles, or finds in a cache.
using CompileGrammar =
    std::function<Result<std::shared_ptr<const GrammarMatcher>>(GrammarLanguage, const std::string&)>;

// One way to write a value.
struct ValueForm {
  enum class Kind : std::uint8_t { kFreeText, kLiterals, kMatcher };
  std::string type;  // the attribute: string, number, boolean, object, array, null
  Kind kind = Kind::kFreeText;
  std::shared_ptr<const std::vector<std::string>> literals;
  std::shared_ptr<const GrammarMatcher> matcher;  // to be cloned
};

struct ArgumentRule {
  std::string key;  // as an attribute: & and " escaped
  bool required = false;
  std::vector<ValueForm> forms;  // empty: the argument cannot be given
};

struct ToolRule {
  std::string name;  // as an attribute
  std::vector<ArgumentRule> arguments;
  std::vector<ValueForm> other_keys;  // for keys that are not declared; empty: there are none
};

// `tool` is {"type","function":{"name","parameters","strict"}}. With "strict": true a schema that cannot be enforced is
// an error that names the keyword. Otherwise the affected argument, or all of them, take any value: other people's
// tools must not fail a request. With "strict": false nothing but the tool's name is enforced.
Result<ToolRule> make_tool_rule(const Json& tool, const CompileGrammar& compile);

// & -> &amp; and " -> &quot;
std::string escape_attribute(std::string_view text);
// A regular expression that matches `text` only.
std::string regex_literal(std::string_view text);

}  // namespace perigee
