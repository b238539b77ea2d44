#include <fmt/format.h>

#include <cctype>

#include "planner/preflight/shell.h"

namespace perigee::planner {

namespace {

constexpr int kShellDepth = 64;
constexpr std::size_t kShellWords = 200000;

bool name_start(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_';
}
bool name_char(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

class ShellParser {
 public:
  ShellParser(const Text& script, ParseFailure& failure)
      : in_(script.value), marks_(script.marks), line_(script.line()), failure_(failure) {}

  ShellList script() {
    ShellList list = parse_list({}, 0);
    if (!failed() && !done()) fail(fmt::format("unexpected \"{}\"", in_.substr(at_, 10)));
    return list;
  }

 private:
  bool failed() const { return !failure_.message.empty(); }
  bool done() const { return at_ >= in_.size(); }
  char peek(std::size_t ahead = 0) const { return at_ + ahead < in_.size() ? in_[at_ + ahead] : '\0'; }
  bool at(std::string_view text) const { return in_.substr(at_, text.size()) == text; }

  void fail(std::string message) { fail_at(line_, std::move(message)); }
  void fail_at(int line, std::string message) {
    if (!failed()) failure_ = {line, std::move(message)};
    at_ = in_.size();
  }

  char take() {
    const char c = in_[at_++];
    while (mark_ < marks_.size() && marks_[mark_].offset <= at_) line_ = marks_[mark_++].line;
    return c;
  }

  bool budget() {
    if (++nodes_ <= kShellWords) return true;
    fail(fmt::format("a script with more than {} words", kShellWords));
    return false;
  }

  // Blanks, continuations and comments; line ends only when asked.
  void skip(bool newlines) {
    while (!done()) {
      const char c = peek();
      if (c == ' ' || c == '\t' || c == '\r') {
        take();
      } else if (c == '\\' && peek(1) == '\n') {
        take();
        take();
      } else if (c == '\\' && peek(1) == '\r' && peek(2) == '\n') {
        take();
        take();
        take();
      } else if (c == '#' &&
                 (at_ == 0 || std::isspace(static_cast<unsigned char>(in_[at_ - 1])) != 0 || in_[at_ - 1] == ';')) {
        while (!done() && peek() != '\n') take();
      } else if (c == '\n' && newlines) {
        newline();
      } else {
        return;
      }
    }
  }

  void newline() {
    take();
    for (Pending& pending : pending_) read_heredoc(pending);
    pending_.clear();
  }

  // A reserved word at the start of a command.
  bool keyword(std::string_view word) const {
    if (!at(word)) return false;
    const char next = peek(word.size());
    return next == '\0' || std::isspace(static_cast<unsigned char>(next)) != 0 || next == ';' || next == '&' ||
           next == ')' || next == '(';
  }

  bool at_any(const std::vector<std::string_view>& stops) const {
    for (const std::string_view stop : stops) {
      if (stop == ")" || stop == ";;" ? at(stop) : keyword(stop)) return true;
    }
    return false;
  }

  ShellList parse_list(const std::vector<std::string_view>& stops, int depth) {
    ShellList list;
    if (depth > kShellDepth) {
      fail(fmt::format("a script deeper than {} levels", kShellDepth));
      return list;
    }
    while (!failed()) {
      skip(true);
      if (done() || at_any(stops)) return list;
      if (at(";;") || peek() == ')') return list;
      if (peek() == ';' || peek() == '&' || peek() == '|') {
        take();
        continue;
      }
      if (keyword("!") || keyword("time")) {
        take();
        while (!done() && name_char(peek())) take();
        continue;
      }
      const std::size_t before = at_;
      std::shared_ptr<ShellNode> node = parse_command(depth);
      if (node != nullptr) list.push_back(std::move(node));
      if (at_ == before && !failed()) fail(fmt::format("unexpected \"{}\"", in_.substr(at_, 10)));
    }
    return list;
  }

  bool expect(std::string_view word) {
    skip(true);
    if (at(word)) {
      for (std::size_t i = 0; i < word.size(); ++i) take();
      return true;
    }
    if (!failed()) fail(fmt::format("expected \"{}\", found \"{}\"", word, done() ? "the end" : in_.substr(at_, 10)));
    return false;
  }

  std::shared_ptr<ShellNode> parse_command(int depth) {
    if (!budget()) return nullptr;
    auto node = std::make_shared<ShellNode>();
    node->line = node->last_line = line_;
    if (keyword("for") || keyword("select")) {
      parse_for(*node, depth);
    } else if (keyword("if")) {
      parse_if(*node, depth);
    } else if (keyword("while") || keyword("until")) {
      node->kind = ShellNode::Kind::kConditional;
      expect(keyword("while") ? "while" : "until");
      node->bodies.push_back(parse_list({"do"}, depth + 1));
      expect("do");
      node->bodies.push_back(parse_list({"done"}, depth + 1));
      expect("done");
    } else if (keyword("case")) {
      parse_case(*node, depth);
    } else if (keyword("{")) {
      node->kind = ShellNode::Kind::kGroup;
      take();
      node->bodies.push_back(parse_list({"}"}, depth + 1));
      expect("}");
    } else if (at("((")) {
      skip_arithmetic_command();
    } else if (peek() == '(') {
      node->kind = ShellNode::Kind::kGroup;
      take();
      node->bodies.push_back(parse_list({")"}, depth + 1));
      expect(")");
    } else if (is_function()) {
      parse_function(*node, depth);
    } else {
      return parse_simple(std::move(node));
    }
    node->last_line = line_;
    parse_redirections(*node);
    return failed() ? nullptr : node;
  }

  void parse_for(ShellNode& node, int depth) {
    node.kind = ShellNode::Kind::kFor;
    expect(keyword("for") ? "for" : "select");
    skip(true);
    if (at("((")) {
      skip_arithmetic_command();
    } else {
      while (!done() && name_char(peek())) node.name += take();
      skip(true);
      if (keyword("in")) {
        expect("in");
        parse_words(node.words);
      }
    }
    skip(true);
    if (peek() == ';') take();
    expect("do");
    node.bodies.push_back(parse_list({"done"}, depth + 1));
    expect("done");
  }

  void parse_if(ShellNode& node, int depth) {
    node.kind = ShellNode::Kind::kConditional;
    expect("if");
    node.bodies.push_back(parse_list({"then"}, depth + 1));
    expect("then");
    node.bodies.push_back(parse_list({"elif", "else", "fi"}, depth + 1));
    while (!failed() && keyword("elif")) {
      expect("elif");
      node.bodies.push_back(parse_list({"then"}, depth + 1));
      expect("then");
      node.bodies.push_back(parse_list({"elif", "else", "fi"}, depth + 1));
    }
    if (!failed() && keyword("else")) {
      expect("else");
      node.bodies.push_back(parse_list({"fi"}, depth + 1));
    }
    expect("fi");
  }

  void parse_case(ShellNode& node, int depth) {
    node.kind = ShellNode::Kind::kConditional;
    expect("case");
    skip(true);
    (void)parse_word();
    expect("in");
    while (!failed()) {
      skip(true);
      if (done()) {
        fail("a case without esac");
        return;
      }
      if (keyword("esac")) break;
      while (!done() && peek() != ')') {
        if (peek() == '(' || peek() == '|' || std::isspace(static_cast<unsigned char>(peek())) != 0) {
          take();
        } else if (parse_word().parts.empty()) {
          fail(fmt::format("unexpected \"{}\" in a case", in_.substr(at_, 10)));
        }
      }
      if (failed()) return;
      expect(")");
      node.bodies.push_back(parse_list({"esac", ";;"}, depth + 1));
      if (at(";;")) {
        take();
        take();
        if (peek() == '&') take();
      }
    }
    expect("esac");
  }

  bool is_function() const {
    if (keyword("function")) return true;
    std::size_t i = at_;
    while (i < in_.size() && (name_char(in_[i]) || in_[i] == '-')) ++i;
    if (i == at_) return false;
    while (i < in_.size() && in_[i] == ' ') ++i;
    if (i >= in_.size() || in_[i] != '(') return false;
    ++i;
    while (i < in_.size() && in_[i] == ' ') ++i;
    return i < in_.size() && in_[i] == ')';
  }

  void parse_function(ShellNode& node, int depth) {
    node.kind = ShellNode::Kind::kFunction;
    if (keyword("function")) expect("function");
    skip(true);
    while (!done() && (name_char(peek()) || peek() == '-')) node.name += take();
    skip(false);
    if (peek() == '(') {
      take();
      expect(")");
    }
    skip(true);
    const char close = peek() == '(' ? ')' : '}';
    if (peek() != '(' && peek() != '{') {
      fail("expected a function body in braces");
      return;
    }
    take();
    node.bodies.push_back(parse_list({close == ')' ? ")" : "}"}, depth + 1));
    expect(std::string_view(&close, 1));
  }

  void skip_arithmetic_command() {
    int open = 0;
    while (!done()) {
      const char c = take();
      if (c == '(') ++open;
      if (c == ')' && --open == 0) return;
    }
    fail("(( without ))");
  }

  void parse_words(std::vector<ShellWord>& words) {
    while (!failed()) {
      skip(false);
      if (done() || peek() == '\n' || peek() == ';' || peek() == '&' || peek() == '|') return;
      ShellWord word = parse_word();
      if (word.parts.empty()) return;
      words.push_back(std::move(word));
    }
  }

  std::shared_ptr<ShellNode> parse_simple(std::shared_ptr<ShellNode> node) {
    const bool test = at("[[");
    while (!failed()) {
      skip(false);
      if (done() || peek() == '\n') break;
      if (test && at("]]")) {
        take();
        take();
        break;
      }
      if (test &&
          (peek() == '&' || peek() == '|' || peek() == '<' || peek() == '>' || peek() == '(' || peek() == ')')) {
        take();
        continue;
      }
      if (peek() == ';' || peek() == '|' || peek() == ')') break;
      if (peek() == '&' && peek(1) != '>') break;
      if (parse_redirection(*node)) continue;
      if (!budget()) break;
      ShellWord word = parse_word();
      if (word.parts.empty() && !word.is_array) {
        fail(fmt::format("unexpected \"{}\"", in_.substr(at_, 10)));
        break;
      }
      node->last_line = word.last_line;
      node->words.push_back(std::move(word));
    }
    if (failed() && node->words.empty()) return nullptr;
    return node;
  }

  void parse_redirections(ShellNode& node) {
    skip(false);
    while (!failed() && !done() && parse_redirection(node)) skip(false);
  }

  bool parse_redirection(ShellNode& node) {
    std::size_t digits = 0;
    while (std::isdigit(static_cast<unsigned char>(peek(digits))) != 0) ++digits;
    const char c = peek(digits);
    const bool ampersand = c == '&' && peek(digits + 1) == '>';
    if (c != '<' && c != '>' && !ampersand) return false;
    if (c == '<' && peek(digits + 1) == '(') return false;  // process substitution: a word
    for (std::size_t i = 0; i < digits; ++i) take();
    if (ampersand) take();
    if (at("<<") && !at("<<<")) {
      take();
      take();
      start_heredoc(node);
      return true;
    }
    const bool output = peek() == '>';
    while (peek() == '<' || peek() == '>' || peek() == '&' || peek() == '|') take();
    skip(false);
    ShellWord target = parse_word();
    if (output && !target.parts.empty()) node.output_files.push_back(std::move(target));
    return true;
  }

  struct Pending {
    ShellNode* node;
    std::size_t index;
    std::string delimiter;
    bool strip_tabs;
  };

  void start_heredoc(ShellNode& node) {
    Pending pending{&node, node.heredocs.size(), {}, false};
    if (peek() == '-') {
      pending.strip_tabs = true;
      take();
    }
    skip(false);
    bool quoted = false;
    while (!done() && std::isspace(static_cast<unsigned char>(peek())) == 0 && peek() != ';' && peek() != '|' &&
           peek() != '>' && peek() != '&' && peek() != ')') {
      const char c = take();
      if (c == '\'' || c == '"' || c == '\\') {
        quoted = true;
      } else {
        pending.delimiter += c;
      }
    }
    if (pending.delimiter.empty()) {
      fail("a here-document without a delimiter");
      return;
    }
    ShellHeredoc heredoc;
    heredoc.expand = !quoted;
    node.heredocs.push_back(std::move(heredoc));
    pending_.push_back(std::move(pending));
  }

  void read_heredoc(const Pending& pending) {
    ShellHeredoc& heredoc = pending.node->heredocs[pending.index];
    heredoc.first_line = line_;
    while (!done()) {
      std::string row;
      while (!done() && peek() != '\n') row += take();
      const bool end_of_file = done();
      if (!end_of_file) take();
      std::string_view content = row;
      if (!content.empty() && content.back() == '\r') content.remove_suffix(1);
      if (pending.strip_tabs) {
        while (!content.empty() && content.front() == '\t') content.remove_prefix(1);
      }
      if (content == pending.delimiter) return;
      heredoc.content.append(content);
      heredoc.content += '\n';
      if (end_of_file) break;
    }
    fail_at(heredoc.first_line, fmt::format("a here-document without its end \"{}\"", pending.delimiter));
  }

  static bool ends_word(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == ';' || c == '|' || c == '&' || c == '(' ||
           c == ')' || c == '<' || c == '>';
  }

  void literal(ShellWord& word, char c, bool quoted, bool single, int line) {
    if (!word.parts.empty()) {
      ShellPart& last = word.parts.back();
      if (last.kind == ShellPart::Kind::kLiteral && last.quoted == quoted && last.single == single &&
          last.line == line) {
        last.text += c;
        return;
      }
    }
    ShellPart part;
    part.quoted = quoted;
    part.single = single;
    part.line = line;
    part.text = std::string(1, c);
    word.parts.push_back(std::move(part));
  }

  void empty_quotes(ShellWord& word, bool single) {
    ShellPart part;
    part.quoted = true;
    part.single = single;
    part.line = line_;
    word.parts.push_back(std::move(part));
  }

  ShellWord parse_word() {
    ShellWord word;
    word.line = word.last_line = line_;
    while (!failed() && !done()) {
      const char c = peek();
      if (c == '\'') {
        single_quotes(word);
      } else if (c == '"') {
        double_quotes(word);
      } else if (c == '$' && peek(1) == '\'') {
        ansi_quotes(word);
      } else if (c == '$' && peek(1) == '"') {
        take();
      } else if (c == '$') {
        dollar(word, false);
      } else if (c == '`') {
        backquotes(word, false);
      } else if (c == '\\') {
        if (peek(1) == '\n') {
          take();
          take();
          continue;
        }
        if (peek(1) == '\r' && peek(2) == '\n') {
          take();
          take();
          take();
          continue;
        }
        const int line = line_;
        take();
        if (!done()) literal(word, take(), true, false, line);
      } else if ((c == '<' || c == '>') && peek(1) == '(') {
        take();
        take();
        (void)balanced(')');
        unknown(word, false);
      } else if (c == '(' && assignment_prefix(word)) {
        array(word);
        break;
      } else if (ends_word(c)) {
        break;
      } else {
        const int line = line_;
        literal(word, take(), false, false, line);
      }
      word.last_line = line_;
    }
    word.last_line = std::max(word.last_line, word.line);
    return word;
  }

  static bool assignment_prefix(const ShellWord& word) {
    if (word.parts.size() != 1 || word.parts[0].kind != ShellPart::Kind::kLiteral || word.parts[0].quoted) return false;
    const std::string& text = word.parts[0].text;
    if (text.empty() || text.back() != '=' || !name_start(text[0])) return false;
    for (std::size_t i = 0; i + 1 < text.size(); ++i) {
      if (!name_char(text[i]) && !(text[i] == '+' && i + 2 == text.size())) return false;
    }
    return true;
  }

  void array(ShellWord& word) {
    take();
    word.is_array = true;
    while (!failed()) {
      skip(true);
      if (done()) {
        fail_at(word.line, "an array without \")\"");
        return;
      }
      if (peek() == ')') break;
      if (!budget()) return;
      ShellWord item = parse_word();
      if (item.parts.empty()) {
        fail(fmt::format("unexpected \"{}\" in an array", in_.substr(at_, 10)));
        return;
      }
      word.array.push_back(std::move(item));
    }
    if (!done()) take();
    word.last_line = line_;
  }

  void single_quotes(ShellWord& word) {
    const int start = line_;
    take();
    empty_quotes(word, true);
    while (!done() && peek() != '\'') {
      const int line = line_;
      literal(word, take(), true, true, line);
    }
    if (done()) {
      fail_at(start, "a single quote without its end");
      return;
    }
    take();
  }

  void ansi_quotes(ShellWord& word) {
    const int start = line_;
    take();
    take();
    empty_quotes(word, true);
    while (!done() && peek() != '\'') {
      const int line = line_;
      char c = take();
      if (c == '\\' && !done()) {
        c = take();
        if (c == 'n') c = '\n';
        if (c == 't') c = '\t';
      }
      literal(word, c, true, true, line);
    }
    if (done()) {
      fail_at(start, "a $' quote without its end");
      return;
    }
    take();
  }

  void double_quotes(ShellWord& word) {
    const int start = line_;
    take();
    empty_quotes(word, false);
    while (!failed() && !done() && peek() != '"') {
      const int line = line_;
      if (peek() == '\\') {
        take();
        if (done()) break;
        const char c = take();
        if (c == '\n') continue;
        if (c != '$' && c != '`' && c != '"' && c != '\\') literal(word, '\\', true, false, line);
        literal(word, c, true, false, line);
      } else if (peek() == '$') {
        dollar(word, true);
      } else if (peek() == '`') {
        backquotes(word, true);
      } else {
        literal(word, take(), true, false, line);
      }
    }
    if (failed()) return;
    if (done()) {
      fail_at(start, "a double quote without its end");
      return;
    }
    take();
  }

  void unknown(ShellWord& word, bool quoted) {
    ShellPart part;
    part.kind = ShellPart::Kind::kOther;
    part.quoted = quoted;
    part.line = line_;
    word.parts.push_back(std::move(part));
  }

  void backquotes(ShellWord& word, bool quoted) {
    const int start = line_;
    take();
    ShellPart part;
    part.kind = ShellPart::Kind::kCommand;
    part.quoted = quoted;
    part.line = start;
    while (!done() && peek() != '`') part.text += take();
    if (done()) {
      fail_at(start, "a back quote without its end");
      return;
    }
    take();
    word.parts.push_back(std::move(part));
  }

  // The text up to the matching close bracket, which is consumed. Quotes hide brackets.
  std::string balanced(char close) {
    const char open = close == ')' ? '(' : '{';
    const int start = line_;
    std::string text;
    int depth = 1;
    char quote = '\0';
    while (!done()) {
      const char c = take();
      if (quote != '\0') {
        if (c == '\\' && quote == '"' && !done()) {
          text += c;
          text += take();
          continue;
        }
        if (c == quote) quote = '\0';
      } else if (c == '\'' || c == '"') {
        quote = c;
      } else if (c == '\\' && !done()) {
        text += c;
        text += take();
        continue;
      } else if (c == open) {
        ++depth;
      } else if (c == close && --depth == 0) {
        return text;
      }
      text += c;
    }
    fail_at(start, fmt::format("\"{}\" is missing", close));
    return text;
  }

  void dollar(ShellWord& word, bool quoted) {
    ShellPart part;
    part.quoted = quoted;
    part.line = line_;
    if (at("$((")) {
      take();
      take();
      part.kind = ShellPart::Kind::kArithmetic;
      part.text = balanced(')');
    } else if (at("$(")) {
      take();
      take();
      part.kind = ShellPart::Kind::kCommand;
      part.text = balanced(')');
    } else if (at("${")) {
      take();
      take();
      braces(part, balanced('}'));
    } else if (name_start(peek(1))) {
      take();
      part.kind = ShellPart::Kind::kVariable;
      while (!done() && name_char(peek())) part.text += take();
    } else if (std::isdigit(static_cast<unsigned char>(peek(1))) != 0 ||
               std::string_view("@*#?$!-").find(peek(1)) != std::string_view::npos) {
      take();
      part.kind = ShellPart::Kind::kVariable;
      part.text = std::string(1, take());
      part.all = part.text == "@" || part.text == "*";
    } else {
      literal(word, take(), quoted, false, part.line);
      return;
    }
    word.parts.push_back(std::move(part));
  }

  static void braces(ShellPart& part, const std::string& inside) {
    part.kind = ShellPart::Kind::kVariable;
    std::size_t i = 0;
    while (i < inside.size() && name_char(inside[i])) ++i;
    if (i == 0 && !inside.empty() && (inside[0] == '@' || inside[0] == '*')) i = 1;
    part.text = inside.substr(0, i);
    part.all = part.text == "@" || part.text == "*";
    if (i < inside.size() && inside[i] == '[') {
      const std::size_t close = inside.find(']', i);
      if (close == std::string::npos) {
        part.op = "?";
        return;
      }
      part.index = inside.substr(i + 1, close - i - 1);
      part.all = part.index == "@" || part.index == "*";
      i = close + 1;
    }
    if (part.text.empty()) part.op = "?";
    if (i >= inside.size()) return;
    const std::string_view rest = std::string_view(inside).substr(i);
    for (const std::string_view op : {":-", ":=", ":+", "-", "=", "+"}) {
      if (rest.substr(0, op.size()) == op) {
        part.op = op;
        part.word = rest.substr(op.size());
        return;
      }
    }
    part.op = rest.substr(0, 2) == ":?" || rest[0] == '?' ? "" : "?";
  }

  std::string_view in_;
  const std::vector<Text::Mark>& marks_;
  std::size_t mark_ = 0;
  std::size_t at_ = 0;
  int line_;
  ParseFailure& failure_;
  std::size_t nodes_ = 0;
  std::vector<Pending> pending_;
};

}  // namespace

ShellList parse_shell(const Text& script, ParseFailure& failure) {
  return ShellParser(script, failure).script();
}

}  // namespace perigee::planner
