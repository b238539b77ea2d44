// Reads shell scripts without running anything: words, quotes, continuations, assignments, exports, arrays,
// here-documents, for-loops over known lists, simple expansions ($x, ${x:-d}, "${a[@]}", $(seq 0 15), $((i+1))).
// What cannot be known before the script runs becomes kUnknown inside the word. No file, process or environment
// variable of this machine is looked at.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "planner/preflight/value.h"

namespace perigee::planner {

// --- syntax tree -------------------------------------------------------------------------------------------------

struct ShellPart {
  enum class Kind : std::uint8_t { kLiteral, kVariable, kCommand, kArithmetic, kOther };
  Kind kind = Kind::kLiteral;
  bool quoted = false;  // inside quotes: no word splitting
  bool single = false;  // inside single quotes
  int line = 0;
  std::string text;  // literal text, variable name, or the inside of $(...) and $((...))
  std::string op;    // ":-", "-", ":=", "=", ":+", "+", "" or "?" for anything else
  std::string word;  // operand of op
  bool all = false;  // ${a[@]} and ${a[*]}
  std::string index;
};

struct ShellWord {
  int line = 0;
  int last_line = 0;
  std::vector<ShellPart> parts;
  std::vector<ShellWord> array;  // name=( ... )
  bool is_array = false;
};

struct ShellHeredoc {
  int first_line = 0;
  bool expand = false;
  std::string content;
};

struct ShellNode;
using ShellList = std::vector<std::shared_ptr<ShellNode>>;

struct ShellNode {
  enum class Kind : std::uint8_t { kSimple, kFor, kConditional, kFunction, kGroup };
  Kind kind = Kind::kSimple;
  int line = 0;
  int last_line = 0;
  std::vector<ShellWord> words;         // simple: assignments and words; for: the list
  std::vector<ShellWord> output_files;  // targets of > and >>
  std::vector<ShellHeredoc> heredocs;
  std::string name;               // for: variable; function: name
  std::vector<ShellList> bodies;  // for, function, group: one; conditional: every branch
};

// Nesting of at most 64, at most 200,000 nodes and words. On a syntax error the list ends there and `failure` says
// where; what was read before stays usable.
ShellList parse_shell(const Text& script, ParseFailure& failure);

// --- evaluation --------------------------------------------------------------------------------------------------

struct Setting {
  Text text;
  int line = 0;  // of the assignment
};
using Environment = std::map<std::string, Setting>;

struct Word {
  Text text;
  bool open = false;                  // an unquoted unknown expansion: may be any number of words
  bool literal = true;                // no part came from an expansion
  bool single_quoted_dollar = false;  // '$NAME' inside single quotes stays as it is
  int line() const { return text.line(); }
};

struct ShellCommand {
  std::vector<Word> words;
  const Environment* exported = nullptr;  // valid during the call
  Environment local;                      // NAME=value before the command
  int first_line = 0;
  int last_line = 0;
  bool conditional = false;
  bool environment_open = false;  // a file that is not shown was sourced before
  std::vector<std::string> output_files;
  std::vector<Text> heredocs;
};

struct ShellHandlers {
  std::function<void(const ShellCommand&)> command;
  // Text of another given file for `source NAME`, or nullptr.
  std::function<const std::string*(const std::string& name)> source;
};

// Walks the tree in order. Bounded: 200,000 steps, 10,000 iterations, 8 MiB of expanded text; above that `failure`
// is set and the walk ends. At the end `environment` holds what the script exports.
void evaluate_shell(const ShellList& script, const ShellHandlers& handlers, Environment& environment,
                    ParseFailure& failure);

}  // namespace perigee::planner
