// Commands of shell scripts: lists, loops, branches, functions, redirections and here-documents.
#include "planner/preflight/shell_parser.h"

#include <fmt/format.h>

namespace perigee::planner {

namespace {

constexpr int kShellDepth = 64;
constexpr std::size_t kShellWords = 200000;

}  // namespace

ShellList ShellParser::script() {
  ShellList list = parse_list({}, 0);
  if (!failed() && !done()) fail(fmt::format("unexpected \"{}\"", in_.substr(at_, 10)));
  return list;
}

void ShellParser::fail_at(int line, std::string message) {
  if (!failed()) failure_ = {line, std::move(message)};
  at_ = in_.size();
}

char ShellParser::take() {
  const char c = in_[at_++];
  while (mark_ < marks_.size() && marks_[mark_].offset <= at_) line_ = marks_[mark_++].line;
  return c;
}

bool ShellParser::budget() {
  if (++nodes_ <= kShellWords) return true;
  fail(fmt::format("a script with more than {} words", kShellWords));
  return false;
}

void ShellParser::skip(bool newlines) {
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

void ShellParser::newline() {
  take();
  for (Pending& pending : pending_) read_heredoc(pending);
  pending_.clear();
}

bool ShellParser::keyword(std::string_view word) const {
  if (!at(word)) return false;
  const char next = peek(word.size());
  return next == '\0' || std::isspace(static_cast<unsigned char>(next)) != 0 || next == ';' || next == '&' ||
         next == ')' || next == '(';
}

bool ShellParser::at_any(const std::vector<std::string_view>& stops) const {
  for (const std::string_view stop : stops) {
    if (stop == ")" || stop == ";;" ? at(stop) : keyword(stop)) return true;
  }
  return false;
}

ShellList ShellParser::parse_list(const std::vector<std::string_view>& stops, int depth) {
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
      while (!done() && shell_name_char(peek())) take();
      continue;
    }
    const std::size_t before = at_;
    std::shared_ptr<ShellNode> node = parse_command(depth);
    if (node != nullptr) list.push_back(std::move(node));
    if (at_ == before && !failed()) fail(fmt::format("unexpected \"{}\"", in_.substr(at_, 10)));
  }
  return list;
}

bool ShellParser::expect(std::string_view word) {
  skip(true);
  if (at(word)) {
    for (std::size_t i = 0; i < word.size(); ++i) take();
    return true;
  }
  if (!failed()) fail(fmt::format("expected \"{}\", found \"{}\"", word, done() ? "the end" : in_.substr(at_, 10)));
  return false;
}

std::shared_ptr<ShellNode> ShellParser::parse_command(int depth) {
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

void ShellParser::parse_for(ShellNode& node, int depth) {
  node.kind = ShellNode::Kind::kFor;
  expect(keyword("for") ? "for" : "select");
  skip(true);
  if (at("((")) {
    skip_arithmetic_command();
  } else {
    while (!done() && shell_name_char(peek())) node.name += take();
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

void ShellParser::parse_if(ShellNode& node, int depth) {
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

void ShellParser::parse_case(ShellNode& node, int depth) {
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

bool ShellParser::is_function() const {
  if (keyword("function")) return true;
  std::size_t i = at_;
  while (i < in_.size() && (shell_name_char(in_[i]) || in_[i] == '-')) ++i;
  if (i == at_) return false;
  while (i < in_.size() && in_[i] == ' ') ++i;
  if (i >= in_.size() || in_[i] != '(') return false;
  ++i;
  while (i < in_.size() && in_[i] == ' ') ++i;
  return i < in_.size() && in_[i] == ')';
}

void ShellParser::parse_function(ShellNode& node, int depth) {
  node.kind = ShellNode::Kind::kFunction;
  if (keyword("function")) expect("function");
  skip(true);
  while (!done() && (shell_name_char(peek()) || peek() == '-')) node.name += take();
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

void ShellParser::skip_arithmetic_command() {
  int open = 0;
  while (!done()) {
    const char c = take();
    if (c == '(') ++open;
    if (c == ')' && --open == 0) return;
  }
  fail("(( without ))");
}

void ShellParser::parse_words(std::vector<ShellWord>& words) {
  while (!failed()) {
    skip(false);
    if (done() || peek() == '\n' || peek() == ';' || peek() == '&' || peek() == '|') return;
    ShellWord word = parse_word();
    if (word.parts.empty()) return;
    words.push_back(std::move(word));
  }
}

std::shared_ptr<ShellNode> ShellParser::parse_simple(std::shared_ptr<ShellNode> node) {
  const bool test = at("[[");
  while (!failed()) {
    skip(false);
    if (done() || peek() == '\n') break;
    if (test && at("]]")) {
      take();
      take();
      break;
    }
    if (test && (peek() == '&' || peek() == '|' || peek() == '<' || peek() == '>' || peek() == '(' || peek() == ')')) {
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

void ShellParser::parse_redirections(ShellNode& node) {
  skip(false);
  while (!failed() && !done() && parse_redirection(node)) skip(false);
}

bool ShellParser::parse_redirection(ShellNode& node) {
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

void ShellParser::start_heredoc(ShellNode& node) {
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

void ShellParser::read_heredoc(const Pending& pending) {
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

ShellList parse_shell(const Text& script, ParseFailure& failure) {
  return ShellParser(script, failure).script();
}

}  // namespace perigee::planner
