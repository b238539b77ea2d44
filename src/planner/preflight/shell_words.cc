// Words of shell scripts: quotes, arrays and the expansions in them.
#include <fmt/format.h>

#include "planner/preflight/shell_parser.h"

namespace perigee::planner {

bool ShellParser::ends_word(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == ';' || c == '|' || c == '&' || c == '(' || c == ')' ||
         c == '<' || c == '>';
}

void ShellParser::literal(ShellWord& word, char c, bool quoted, bool single, int line) {
  if (!word.parts.empty()) {
    ShellPart& last = word.parts.back();
    if (last.kind == ShellPart::Kind::kLiteral && last.quoted == quoted && last.single == single && last.line == line) {
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

void ShellParser::empty_quotes(ShellWord& word, bool single) {
  ShellPart part;
  part.quoted = true;
  part.single = single;
  part.line = line_;
  word.parts.push_back(std::move(part));
}

ShellWord ShellParser::parse_word() {
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

bool ShellParser::assignment_prefix(const ShellWord& word) {
  if (word.parts.size() != 1 || word.parts[0].kind != ShellPart::Kind::kLiteral || word.parts[0].quoted) return false;
  const std::string& text = word.parts[0].text;
  if (text.empty() || text.back() != '=' || !shell_name_start(text[0])) return false;
  for (std::size_t i = 0; i + 1 < text.size(); ++i) {
    if (!shell_name_char(text[i]) && !(text[i] == '+' && i + 2 == text.size())) return false;
  }
  return true;
}

void ShellParser::array(ShellWord& word) {
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

void ShellParser::single_quotes(ShellWord& word) {
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

void ShellParser::ansi_quotes(ShellWord& word) {
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

void ShellParser::double_quotes(ShellWord& word) {
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

void ShellParser::unknown(ShellWord& word, bool quoted) {
  ShellPart part;
  part.kind = ShellPart::Kind::kOther;
  part.quoted = quoted;
  part.line = line_;
  word.parts.push_back(std::move(part));
}

void ShellParser::backquotes(ShellWord& word, bool quoted) {
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

std::string ShellParser::balanced(char close) {
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

void ShellParser::dollar(ShellWord& word, bool quoted) {
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
  } else if (shell_name_start(peek(1))) {
    take();
    part.kind = ShellPart::Kind::kVariable;
    while (!done() && shell_name_char(peek())) part.text += take();
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

void ShellParser::braces(ShellPart& part, const std::string& inside) {
  part.kind = ShellPart::Kind::kVariable;
  std::size_t i = 0;
  while (i < inside.size() && shell_name_char(inside[i])) ++i;
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

}  // namespace perigee::planner
