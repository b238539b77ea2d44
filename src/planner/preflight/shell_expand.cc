// Expansion of shell words: variables, seq and echo, braces, word splitting.
#include <fmt/format.h>

#include "base/checked.h"
#include "planner/preflight/shell_eval.h"

namespace perigee::planner {

namespace {

constexpr std::size_t kMaxText = std::size_t{8} << 20;

}  // namespace

void ShellEvaluator::grow(std::size_t bytes, int line) {
  text_ += bytes;
  if (text_ > kMaxText) fail(line, "a script whose expansions grow too large");
}

std::vector<Word> ShellEvaluator::lookup(const ShellPart& part, bool& known) {
  known = true;
  if (part.op == "?") {
    known = false;
    return {};
  }
  const std::string& name = part.text;
  const bool positional = name == "@" || name == "*" || shell_integer(name).has_value();
  std::vector<Word> values;
  bool set = false;
  if (positional) {
    if (!positional_known_) {
      known = false;
      return {};
    }
    if (part.all) {
      values = positional_;
      set = true;
    } else if (const auto index = shell_integer(name); *index >= 1 && *index <= static_cast<int>(positional_.size())) {
      values = {positional_[static_cast<std::size_t>(*index) - 1]};
      set = true;
    }
  } else if (const auto found = variables_.find(name); found != variables_.end()) {
    set = true;
    values = select(found->second, part, known);
  }
  const bool empty = !set || (part.op[0] == ':' && values.size() == 1 && values[0].text.value.empty());
  if (!part.op.empty() && (part.op == "+" || part.op == ":+")) {
    if (empty) return {};
    return operand(part);
  }
  if (!empty) return values;
  if (!part.op.empty()) return operand(part);
  // A name that nobody set comes from the caller's environment, if at all.
  if (!set && !positional) known = false;
  if (!set && positional && !part.all) known = sourcing_ == 0 && positional_known_;
  return values;
}

std::vector<Word> ShellEvaluator::select(const ShellVariable& variable, const ShellPart& part, bool& known) {
  if (part.all || !variable.array) return variable.values;
  if (part.index.empty()) {
    if (variable.values.empty()) return {};
    return {variable.values[0]};
  }
  const auto index = shell_integer(part.index);
  if (!index || *index < 0 || *index >= static_cast<std::int64_t>(variable.values.size())) {
    known = false;
    return {};
  }
  return {variable.values[static_cast<std::size_t>(*index)]};
}

std::vector<Word> ShellEvaluator::operand(const ShellPart& part) {
  if (part.word.empty()) return {Word{Text("", part.line)}};
  ParseFailure failure;
  const ShellList list = parse_shell(Text("x " + part.word, part.line), failure);
  if (!failure.message.empty() || list.size() != 1 || list[0]->words.empty() || ++operands_ > 10000) {
    return {Word{Text(std::string(1, kUnknown), part.line)}};
  }
  std::vector<Word> words;
  for (std::size_t i = 1; i < list[0]->words.size(); ++i) words.push_back(joined(list[0]->words[i]));
  return words;
}

std::vector<Word> ShellEvaluator::substitute(const ShellPart& part, bool& known) {
  known = false;
  if (++operands_ > 10000) return {};
  ParseFailure failure;
  const ShellList list = parse_shell(Text(part.text, part.line), failure);
  if (!failure.message.empty() || list.size() != 1 || list[0]->kind != ShellNode::Kind::kSimple) return {};
  std::vector<Word> words;
  for (const ShellWord& word : list[0]->words) expand(word, words);
  if (words.empty()) return {};
  for (const Word& word : words) {
    if (word.text.unknown()) return {};
  }
  if (words[0].text.value == "echo" && words.size() > 1 && words[1].text.value[0] != '-') {
    known = true;
    words.erase(words.begin());
    return words;
  }
  if (words[0].text.value != "seq") return {};
  return sequence(words, part.line, known);
}

std::vector<Word> ShellEvaluator::sequence(const std::vector<Word>& words, int line, bool& known) {
  std::vector<std::int64_t> numbers;
  std::string separator;
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::string& text = words[i].text.value;
    if (text == "-s" && i + 1 < words.size()) {
      separator = words[++i].text.value;
    } else if (text.substr(0, 2) == "-s") {
      separator = text.substr(2);
    } else if (const auto number = shell_integer(text)) {
      numbers.push_back(*number);
    } else {
      return {};
    }
  }
  if (numbers.empty() || numbers.size() > 3) return {};
  const std::int64_t first = numbers.size() > 1 ? numbers[0] : 1;
  const std::int64_t by = numbers.size() > 2 ? numbers[1] : 1;
  const std::int64_t last = numbers.back();
  if (by == 0) return {};
  std::vector<Word> out;
  std::string glued;
  for (std::int64_t value = first; by > 0 ? value <= last : value >= last;) {
    if (out.size() > kShellIterations) return {};
    out.push_back(Word{Text(std::to_string(value), line)});
    glued += (glued.empty() ? "" : separator) + std::to_string(value);
    const auto next = checked_add(value, by);
    if (!next) break;
    value = *next;
  }
  known = true;
  if (!separator.empty()) return {Word{Text(glued, line)}};
  return out;
}

Text ShellEvaluator::part_text(const ShellPart& part, bool& known) {
  known = true;
  switch (part.kind) {
    case ShellPart::Kind::kLiteral:
      return {part.text, part.line};
    case ShellPart::Kind::kArithmetic:
      if (const auto value = shell_arithmetic(part.text, variables_)) return {std::to_string(*value), part.line};
      break;
    case ShellPart::Kind::kVariable:
    case ShellPart::Kind::kCommand: {
      const std::vector<Word> values =
          part.kind == ShellPart::Kind::kVariable ? lookup(part, known) : substitute(part, known);
      if (!known) break;
      Text text;
      text.marks.push_back({0, part.line});
      for (std::size_t i = 0; i < values.size(); ++i) {
        if (i > 0) text.value += ' ';
        // One token stands where it is used; a list of arguments where it was written.
        const bool several = values[i].text.value.find_first_of(" \n{") != std::string::npos;
        if (several) {
          text.append(values[i].text);
        } else {
          text.append(values[i].text.value, part.line);
        }
      }
      grow(text.value.size(), part.line);
      return text;
    }
    case ShellPart::Kind::kOther:
      break;
  }
  known = false;
  return {std::string(1, kUnknown), part.line};
}

Word ShellEvaluator::joined(const ShellWord& word) {
  Word out;
  out.text.marks.push_back({0, word.line});
  for (const ShellPart& part : word.parts) {
    bool known = true;
    const Text text = part_text(part, known);
    if (part.kind != ShellPart::Kind::kLiteral) out.literal = false;
    note_dollar(part, out);
    if (text.marks.size() == 1 || text.value.empty()) {
      out.text.append(text.value, text.line());
    } else {
      out.text.append(text);
    }
  }
  return out;
}

void ShellEvaluator::note_dollar(const ShellPart& part, Word& word) {
  if (!part.single) return;
  for (std::size_t i = 0; i + 1 < part.text.size(); ++i) {
    if (part.text[i] == '$' && (part.text[i + 1] == '{' || is_shell_name(part.text.substr(i + 1, 1)))) {
      word.single_quoted_dollar = true;
    }
  }
}

void ShellEvaluator::expand(const ShellWord& word, std::vector<Word>& out) {
  if (word.parts.size() == 1 && word.parts[0].kind == ShellPart::Kind::kVariable && word.parts[0].all) {
    expand_all(word.parts[0], out);
    return;
  }
  // Quotes alone in front of an array expansion: "${args[@]}" has an empty quoted literal first.
  if (word.parts.size() == 2 && word.parts[0].kind == ShellPart::Kind::kLiteral && word.parts[0].text.empty() &&
      word.parts[1].kind == ShellPart::Kind::kVariable && word.parts[1].all) {
    expand_all(word.parts[1], out);
    return;
  }
  if (braces(word, out)) return;
  Word current;
  current.text.marks.push_back({0, word.line});
  bool any = false;
  bool open = false;
  for (const ShellPart& part : word.parts) {
    bool known = true;
    const Text text = part_text(part, known);
    note_dollar(part, current);
    if (part.kind == ShellPart::Kind::kLiteral) {
      current.text.append(text.value, part.line);
      any = any || part.quoted || !text.value.empty();
      continue;
    }
    current.literal = false;
    if (!known && !part.quoted && word.parts.size() == 1) open = true;
    if (part.quoted || !known) {
      current.text.append(text);
      any = true;
      continue;
    }
    std::size_t begin = 0;
    while (begin < text.value.size()) {
      const std::size_t gap = text.value.find_first_of(" \t\n", begin);
      const std::size_t end = std::min(gap, text.value.size());
      if (end > begin) {
        current.text.append(text.sub(begin, end - begin));
        any = true;
      }
      if (gap == std::string::npos) break;
      if (any) push(std::move(current), out);
      current = Word{};
      current.literal = false;
      any = false;
      begin = gap + 1;
    }
  }
  current.open = open;
  if (any) push(std::move(current), out);
}

void ShellEvaluator::push(Word word, std::vector<Word>& out) {
  if (word.text.marks.size() > 1 && word.text.marks[1].offset == 0) word.text.marks.erase(word.text.marks.begin());
  grow(word.text.value.size() + 16, word.line());
  if (failed()) return;
  out.push_back(std::move(word));
}

void ShellEvaluator::expand_all(const ShellPart& part, std::vector<Word>& out) {
  bool known = true;
  std::vector<Word> values = lookup(part, known);
  if (!known) {
    Word word;
    word.text = Text(std::string(1, kUnknown), part.line);
    word.open = true;
    word.literal = false;
    out.push_back(std::move(word));
    return;
  }
  for (Word& value : values) push(std::move(value), out);
}

bool ShellEvaluator::braces(const ShellWord& word, std::vector<Word>& out) {
  if (word.parts.size() != 1 || word.parts[0].kind != ShellPart::Kind::kLiteral || word.parts[0].quoted) return false;
  const std::string& text = word.parts[0].text;
  const std::size_t open = text.find('{');
  const std::size_t close = text.find('}', open == std::string::npos ? 0 : open);
  if (open == std::string::npos || close == std::string::npos) return false;
  const std::string inside = text.substr(open + 1, close - open - 1);
  const std::string head = text.substr(0, open);
  const std::string tail = text.substr(close + 1);
  std::vector<std::string> items;
  const std::size_t dots = inside.find("..");
  if (dots != std::string::npos) {
    const auto first = shell_integer(inside.substr(0, dots));
    const auto last = shell_integer(inside.substr(dots + 2));
    if (!first || !last || *last < *first || *first < -100000 || *last > 100000 ||
        *last - *first > static_cast<std::int64_t>(kShellIterations)) {
      return false;
    }
    for (std::int64_t value = *first; value <= *last; ++value) items.push_back(std::to_string(value));
  } else if (inside.find(',') != std::string::npos && inside.find_first_of("\":{") == std::string::npos) {
    std::size_t begin = 0;
    while (begin <= inside.size()) {
      const std::size_t comma = std::min(inside.find(',', begin), inside.size());
      items.push_back(inside.substr(begin, comma - begin));
      begin = comma + 1;
    }
  } else {
    return false;
  }
  for (const std::string& item : items) {
    Word value;
    value.text = Text(head + item + tail, word.line);
    push(std::move(value), out);
  }
  return true;
}

}  // namespace perigee::planner
