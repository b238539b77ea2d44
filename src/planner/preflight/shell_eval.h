// Internal to shell_eval.cc (commands), shell_expand.cc (words) and shell_arithmetic.cc.
#pragma once

#include <optional>
#include <set>
#include <utility>

#include "planner/preflight/shell.h"

namespace perigee::planner {

inline constexpr std::size_t kShellIterations = 10000;  // of all loops and sequences together

struct ShellVariable {
  std::vector<Word> values;  // one, or the elements of an array
  bool array = false;
  bool exported = false;
  int line = 0;
};

bool is_shell_name(std::string_view text);
std::optional<std::int64_t> shell_integer(std::string_view text);

// Integer arithmetic with the usual precedence; nullopt when a name or operator is not known.
std::optional<std::int64_t> shell_arithmetic(std::string_view text,
                                             const std::map<std::string, ShellVariable>& variables);

class ShellEvaluator {
 public:
  ShellEvaluator(const ShellHandlers& handlers, Environment& environment, ParseFailure& failure)
      : handlers_(handlers), exported_(environment), failure_(failure) {
    for (const auto& [name, setting] : environment) {
      Word word;
      word.text = setting.text;
      variables_[name] = {{word}, false, true, setting.line};
    }
  }

  void run(const ShellList& script);

 private:
  bool failed() const { return !failure_.message.empty(); }
  void fail(int line, std::string message);
  bool step(int line);
  void walk(const ShellList& list, int depth);
  // Runs a branch that may or may not be taken: what it assigned is not known behind it.
  template <typename Body>
  void conditional(const Body& body) {
    std::map<std::string, std::optional<std::string>> outer = std::move(assigned_);
    assigned_.clear();
    ++conditional_;
    body();
    --conditional_;
    for (const auto& [name, before] : assigned_) {
      const auto now = variables_.find(name);
      const bool same = now != variables_.end() && !now->second.array && before.has_value() &&
                        now->second.values[0].text.value == *before;
      if (!same) set_unknown(name, now == variables_.end() ? 0 : now->second.line);
      outer.emplace(name, before);
    }
    assigned_ = std::move(outer);
  }

  void set_unknown(const std::string& name, int line);
  void loop(const ShellNode& node, int depth);
  void assign_unknown(const std::string& name, int line);
  void assign(const std::string& name, std::vector<Word> values, bool array, int line);
  void publish(const std::string& name, const ShellVariable& variable);
  // "name=value" at the start of a command; returns the name.
  static std::optional<std::string> assignment(const ShellWord& word);
  // The text behind "name=".
  Word assigned_value(const ShellWord& word);
  void do_assignment(const ShellWord& word, const std::string& name);
  void simple(const ShellNode& node, int depth);
  void declare(const ShellNode& node, std::size_t first, const std::string& program);
  void mark_exported(const std::string& name);
  // Commands of the shell itself. True when nothing else is to be done with it.
  bool builtin(const ShellNode& node, const std::string& program, const std::vector<Word>& words, int depth);
  void source(const ShellNode& node, const std::vector<Word>& words, int depth);
  static std::string literal_text(const ShellWord& word);
  Text heredoc_text(const ShellHeredoc& heredoc);
  // --- expansion -------------------------------------------------------------------------------------------------

  void grow(std::size_t bytes, int line);
  // The values of a variable reference; `known` false: nothing is known.
  std::vector<Word> lookup(const ShellPart& part, bool& known);
  static std::vector<Word> select(const ShellVariable& variable, const ShellPart& part, bool& known);
  std::vector<Word> operand(const ShellPart& part);
  // The output words of $(...); only seq and echo are known.
  std::vector<Word> substitute(const ShellPart& part, bool& known);
  std::vector<Word> sequence(const std::vector<Word>& words, int line, bool& known);
  // The text of a part when it is not to be split, with the line where it stands.
  Text part_text(const ShellPart& part, bool& known);
  Word joined(const ShellWord& word);
  static void note_dollar(const ShellPart& part, Word& word);
  // Word splitting as the shell does it: unquoted expansions are cut at blanks, "${a[@]}" gives one word each.
  void expand(const ShellWord& word, std::vector<Word>& out);
  void push(Word word, std::vector<Word>& out);
  void expand_all(const ShellPart& part, std::vector<Word>& out);
  // {0..15} and {a,b} in an unquoted literal word.
  bool braces(const ShellWord& word, std::vector<Word>& out);
  const ShellHandlers& handlers_;
  Environment& exported_;
  ParseFailure& failure_;
  std::map<std::string, ShellVariable> variables_;
  std::map<std::string, std::shared_ptr<ShellNode>> functions_;
  std::set<std::string> called_;
  std::map<std::string, std::optional<std::string>> assigned_;  // in this branch, with the text before it
  std::set<std::string> sourced_;
  std::vector<ShellList> sources_;
  std::vector<Word> positional_;
  bool positional_known_ = false;
  bool export_all_ = false;
  bool environment_open_ = false;
  int conditional_ = 0;
  int sourcing_ = 0;
  std::size_t steps_ = 0;
  std::size_t iterations_ = 0;
  std::size_t operands_ = 0;
  std::size_t text_ = 0;
};

}  // namespace perigee::planner
