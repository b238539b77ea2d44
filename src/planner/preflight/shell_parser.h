// Internal to shell_parser.cc (commands) and shell_words.cc (words).
#pragma once

#include <cctype>

#include "planner/preflight/shell.h"

namespace perigee::planner {

inline bool shell_name_start(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_';
}
inline bool shell_name_char(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

class ShellParser {
 public:
  ShellParser(const Text& script, ParseFailure& failure)
      : in_(script.value), marks_(script.marks), line_(script.line()), failure_(failure) {}

  ShellList script();

 private:
  bool failed() const { return !failure_.message.empty(); }
  bool done() const { return at_ >= in_.size(); }
  char peek(std::size_t ahead = 0) const { return at_ + ahead < in_.size() ? in_[at_ + ahead] : '\0'; }
  bool at(std::string_view text) const { return in_.substr(at_, text.size()) == text; }

  void fail(std::string message) { fail_at(line_, std::move(message)); }
  void fail_at(int line, std::string message);
  char take();
  bool budget();
  // Blanks, continuations and comments; line ends only when asked.
  void skip(bool newlines);
  void newline();
  // A reserved word at the start of a command.
  bool keyword(std::string_view word) const;
  bool at_any(const std::vector<std::string_view>& stops) const;
  ShellList parse_list(const std::vector<std::string_view>& stops, int depth);
  bool expect(std::string_view word);
  std::shared_ptr<ShellNode> parse_command(int depth);
  void parse_for(ShellNode& node, int depth);
  void parse_if(ShellNode& node, int depth);
  void parse_case(ShellNode& node, int depth);
  bool is_function() const;
  void parse_function(ShellNode& node, int depth);
  void skip_arithmetic_command();
  void parse_words(std::vector<ShellWord>& words);
  std::shared_ptr<ShellNode> parse_simple(std::shared_ptr<ShellNode> node);
  void parse_redirections(ShellNode& node);
  bool parse_redirection(ShellNode& node);
  struct Pending {
    ShellNode* node;
    std::size_t index;
    std::string delimiter;
    bool strip_tabs;
  };
  void start_heredoc(ShellNode& node);
  void read_heredoc(const Pending& pending);
  static bool ends_word(char c);
  void literal(ShellWord& word, char c, bool quoted, bool single, int line);
  void empty_quotes(ShellWord& word, bool single);
  ShellWord parse_word();
  static bool assignment_prefix(const ShellWord& word);
  void array(ShellWord& word);
  void single_quotes(ShellWord& word);
  void ansi_quotes(ShellWord& word);
  void double_quotes(ShellWord& word);
  void unknown(ShellWord& word, bool quoted);
  void backquotes(ShellWord& word, bool quoted);
  // The text up to the matching close bracket, which is consumed. Quotes hide brackets.
  std::string balanced(char close);
  void dollar(ShellWord& word, bool quoted);
  static void braces(ShellPart& part, const std::string& inside);
  std::string_view in_;
  const std::vector<Text::Mark>& marks_;
  std::size_t mark_ = 0;
  std::size_t at_ = 0;
  int line_;
  ParseFailure& failure_;
  std::size_t nodes_ = 0;
  std::vector<Pending> pending_;
};

}  // namespace perigee::planner
