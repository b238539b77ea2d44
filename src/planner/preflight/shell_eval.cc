#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <set>
#include <utility>

#include "base/checked.h"
#include "planner/preflight/shell.h"

namespace perigee::planner {

namespace {

constexpr std::size_t kMaxSteps = 200000;
constexpr std::size_t kMaxIterations = 10000;
constexpr std::size_t kMaxText = std::size_t{8} << 20;
constexpr std::size_t kMaxVariables = 4096;
constexpr int kMaxCalls = 32;

bool is_name(std::string_view text) {
  if (text.empty() || (text[0] >= '0' && text[0] <= '9')) return false;
  for (const char c : text) {
    if ((c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_') return false;
  }
  return true;
}

std::optional<std::int64_t> to_integer(std::string_view text) {
  std::int64_t out = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error != std::errc() || stop != text.data() + text.size() || text.empty()) return std::nullopt;
  return out;
}

struct Variable {
  std::vector<Word> values;  // one, or the elements of an array
  bool array = false;
  bool exported = false;
  int line = 0;
};

class Evaluator {
 public:
  Evaluator(const ShellHandlers& handlers, Environment& environment, ParseFailure& failure)
      : handlers_(handlers), exported_(environment), failure_(failure) {
    for (const auto& [name, setting] : environment) {
      Word word;
      word.text = setting.text;
      variables_[name] = {{word}, false, true, setting.line};
    }
  }

  void run(const ShellList& script) {
    walk(script, 0);
    // A function that nothing calls is still a launch command that someone may start.
    for (const auto& [name, function] : functions_) {
      if (called_.count(name) == 0) conditional([&] { walk(function->bodies[0], 1); });
    }
  }

 private:
  bool failed() const { return !failure_.message.empty(); }
  void fail(int line, std::string message) {
    if (!failed()) failure_ = {line, std::move(message)};
  }
  bool step(int line) {
    if (++steps_ <= kMaxSteps) return true;
    fail(line, "a script that takes too many steps to read");
    return false;
  }

  void walk(const ShellList& list, int depth) {
    for (const auto& node : list) {
      if (failed() || !step(node->line)) return;
      switch (node->kind) {
        case ShellNode::Kind::kSimple:
          simple(*node, depth);
          break;
        case ShellNode::Kind::kFor:
          loop(*node, depth);
          break;
        case ShellNode::Kind::kConditional:
          for (const ShellList& body : node->bodies) conditional([&] { walk(body, depth); });
          break;
        case ShellNode::Kind::kFunction:
          functions_[node->name] = node;
          break;
        case ShellNode::Kind::kGroup:
          for (const ShellList& body : node->bodies) walk(body, depth);
          break;
      }
    }
  }

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

  void set_unknown(const std::string& name, int line) {
    Variable& variable = variables_[name];
    Word word;
    word.text = Text(std::string(1, kUnknown), line);
    variable.values = {word};
    variable.array = false;
    if (variable.exported) exported_[name] = {variable.values[0].text, line};
  }

  void loop(const ShellNode& node, int depth) {
    std::vector<Word> items;
    for (const ShellWord& word : node.words) expand(word, items);
    bool known = !node.name.empty() && !items.empty();
    for (const Word& item : items) known = known && !item.text.unknown();
    if (!known) {
      conditional([&] {
        if (!node.name.empty()) assign_unknown(node.name, node.line);
        walk(node.bodies[0], depth);
      });
      return;
    }
    for (const Word& item : items) {
      if (failed()) return;
      if (++iterations_ > kMaxIterations) {
        fail(node.line, "loops with too many iterations");
        return;
      }
      assign(node.name, {item}, false, node.line);
      walk(node.bodies[0], depth);
    }
  }

  void assign_unknown(const std::string& name, int line) {
    Word word;
    word.text = Text(std::string(1, kUnknown), line);
    assign(name, {word}, false, line);
  }

  void assign(const std::string& name, std::vector<Word> values, bool array, int line) {
    if (variables_.size() >= kMaxVariables && variables_.count(name) == 0) {
      fail(line, fmt::format("more than {} variables", kMaxVariables));
      return;
    }
    if (conditional_ > 0 && assigned_.count(name) == 0) {
      const auto old = variables_.find(name);
      std::optional<std::string> before;
      if (old != variables_.end() && !old->second.array) before = old->second.values[0].text.value;
      assigned_.emplace(name, std::move(before));
    }
    Variable& variable = variables_[name];
    variable.values = std::move(values);
    variable.array = array;
    variable.line = line;
    variable.exported = variable.exported || export_all_;
    if (variable.exported) publish(name, variable);
  }

  void publish(const std::string& name, const Variable& variable) {
    if (variable.array || variable.values.empty()) return;
    exported_[name] = {variable.values[0].text, variable.line};
  }

  // "name=value" at the start of a command; returns the name.
  static std::optional<std::string> assignment(const ShellWord& word) {
    if (word.parts.empty() || word.parts[0].kind != ShellPart::Kind::kLiteral || word.parts[0].quoted) {
      return std::nullopt;
    }
    const std::string& text = word.parts[0].text;
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0) return std::nullopt;
    std::string name = text.substr(0, equals);
    if (name.back() == '+') name.pop_back();
    if (!is_name(name)) return std::nullopt;
    return name;
  }

  // The text behind "name=".
  Word assigned_value(const ShellWord& word) {
    ShellWord rest = word;
    std::string& text = rest.parts[0].text;
    text = text.substr(text.find('=') + 1);
    return joined(rest);
  }

  void do_assignment(const ShellWord& word, const std::string& name) {
    const std::string& text = word.parts[0].text;
    const bool add = text[text.find('=') - 1] == '+';
    std::vector<Word> values;
    if (word.is_array) {
      for (const ShellWord& item : word.array) expand(item, values);
    } else {
      values.push_back(assigned_value(word));
    }
    if (add && variables_.count(name) != 0) {
      const Variable& old = variables_[name];
      if (word.is_array || old.array) {
        std::vector<Word> all = old.values;
        all.insert(all.end(), values.begin(), values.end());
        values = std::move(all);
      } else {
        Word sum = old.values[0];
        sum.text.append(values[0].text);
        values = {std::move(sum)};
      }
    }
    assign(name, std::move(values), word.is_array, word.line);
  }

  void simple(const ShellNode& node, int depth) {
    std::size_t first = 0;
    Environment local;
    std::vector<std::pair<const ShellWord*, std::string>> prefix;
    while (first < node.words.size()) {
      const auto name = assignment(node.words[first]);
      if (!name) break;
      prefix.emplace_back(&node.words[first], *name);
      ++first;
    }
    if (first == node.words.size()) {
      for (const auto& [word, name] : prefix) do_assignment(*word, name);
      return;
    }
    for (const auto& [word, name] : prefix) {
      if (!word->is_array) local[name] = {assigned_value(*word).text, word->line};
    }
    const std::string program = literal_text(node.words[first]);
    if (program == "export" || program == "declare" || program == "local" || program == "readonly" ||
        program == "typeset") {
      declare(node, first + 1, program);
      return;
    }
    if (program == "unset") {
      for (std::size_t i = first + 1; i < node.words.size(); ++i) {
        const std::string name = literal_text(node.words[i]);
        if (conditional_ > 0) {
          if (variables_.count(name) != 0) assign_unknown(name, node.line);
          continue;
        }
        variables_.erase(name);
        exported_.erase(name);
      }
      return;
    }
    if (program == "read") {
      for (std::size_t i = first + 1; i < node.words.size(); ++i) {
        const std::string name = literal_text(node.words[i]);
        if (is_name(name)) assign_unknown(name, node.line);
      }
      return;
    }
    std::vector<Word> words;
    for (std::size_t i = first; i < node.words.size(); ++i) expand(node.words[i], words);
    if (failed() || words.empty()) return;
    if (builtin(node, program, words, depth)) return;
    ShellCommand command;
    command.words = std::move(words);
    command.exported = &exported_;
    command.local = std::move(local);
    command.first_line = node.line;
    command.last_line = node.last_line;
    command.conditional = conditional_ > 0;
    command.environment_open = environment_open_;
    for (const ShellWord& file : node.output_files) command.output_files.push_back(joined(file).text.value);
    for (const ShellHeredoc& heredoc : node.heredocs) command.heredocs.push_back(heredoc_text(heredoc));
    if (handlers_.command) handlers_.command(command);
  }

  void declare(const ShellNode& node, std::size_t first, const std::string& program) {
    bool exporting = program == "export";
    for (std::size_t i = first; i < node.words.size(); ++i) {
      const std::string text = literal_text(node.words[i]);
      if (!text.empty() && text[0] == '-') {
        exporting = exporting || text.find('x') != std::string::npos;
        continue;
      }
      const auto name = assignment(node.words[i]);
      if (name) {
        do_assignment(node.words[i], *name);
        if (exporting) mark_exported(*name);
        continue;
      }
      if (is_name(text) && exporting) mark_exported(text);
    }
  }

  void mark_exported(const std::string& name) {
    const auto found = variables_.find(name);
    if (found == variables_.end()) return;
    found->second.exported = true;
    publish(name, found->second);
  }

  // Commands of the shell itself. True when nothing else is to be done with it.
  bool builtin(const ShellNode& node, const std::string& program, const std::vector<Word>& words, int depth) {
    if (program == "set") {
      for (std::size_t i = 1; i < words.size(); ++i) {
        const std::string& text = words[i].text.value;
        if (text == "-a" || text == "allexport") export_all_ = true;
        if (text == "+a") export_all_ = false;
        if (text == "--") {
          positional_.assign(words.begin() + static_cast<std::ptrdiff_t>(i) + 1, words.end());
          positional_known_ = true;
          break;
        }
      }
      return true;
    }
    if (program == "source" || program == ".") {
      source(node, words, depth);
      return false;  // its path may name a version
    }
    const auto function = functions_.find(program);
    if (function != functions_.end() && depth < kMaxCalls) {
      called_.insert(program);
      const std::shared_ptr<ShellNode> body = function->second;
      std::vector<Word> arguments(words.begin() + 1, words.end());
      arguments.swap(positional_);
      const bool known = std::exchange(positional_known_, true);
      walk(body->bodies[0], depth + 1);
      positional_ = std::move(arguments);
      positional_known_ = known;
      return true;
    }
    return program == "shift" || program == "return" || program == "exit" || program == "trap" || program == "wait";
  }

  void source(const ShellNode& node, const std::vector<Word>& words, int depth) {
    if (words.size() < 2 || depth >= kMaxCalls) return;
    const std::string& name = words[1].text.value;
    const std::string* content = handlers_.source && !words[1].text.unknown() ? handlers_.source(name) : nullptr;
    if (content == nullptr) {
      // The vendors' set_env.sh scripts give paths only.
      if (name.find("set_env") == std::string::npos && name.find("bashrc") == std::string::npos) {
        environment_open_ = true;
      }
      return;
    }
    if (!sourced_.insert(name).second) return;
    ParseFailure failure;
    // Commands of the sourced file are read with that file itself; here only its variables count.
    const ShellList script = parse_shell(Text(*content, node.line), failure);
    sources_.push_back(script);
    const ShellHandlers silent;
    Environment inner = exported_;
    ParseFailure inner_failure;
    Evaluator evaluator(silent, inner, inner_failure);
    evaluator.variables_ = variables_;
    evaluator.sourcing_ = sourcing_ + 1;
    if (sourcing_ < 4) evaluator.run(script);
    for (auto& [variable_name, variable] : evaluator.variables_) {
      for (Word& word : variable.values) word.text = Text(word.text.value, node.line);
      if (variables_.count(variable_name) == 0 || variables_[variable_name].line != variable.line) {
        variable.line = node.line;
      }
    }
    variables_ = std::move(evaluator.variables_);
    for (auto& [variable_name, setting] : inner) {
      if (exported_.count(variable_name) == 0 || exported_[variable_name].text.value != setting.text.value) {
        exported_[variable_name] = {Text(setting.text.value, node.line), node.line};
      }
    }
  }

  static std::string literal_text(const ShellWord& word) {
    std::string text;
    for (const ShellPart& part : word.parts) {
      if (part.kind != ShellPart::Kind::kLiteral) return {};
      text += part.text;
    }
    return text;
  }

  Text heredoc_text(const ShellHeredoc& heredoc) {
    if (!heredoc.expand) return Text::of_lines(heredoc.content, heredoc.first_line);
    // The expansions of a here-document are those of a double-quoted word.
    std::string quoted = "\"";
    for (const char c : heredoc.content) {
      if (c == '"') quoted += '\\';
      quoted += c;
    }
    quoted += '"';
    ParseFailure failure;
    const ShellList list = parse_shell(Text::of_lines(quoted, heredoc.first_line), failure);
    if (!failure.message.empty() || list.size() != 1 || list[0]->words.size() != 1) {
      return Text::of_lines(heredoc.content, heredoc.first_line);
    }
    return joined(list[0]->words[0]).text;
  }

  // --- expansion -------------------------------------------------------------------------------------------------

  void grow(std::size_t bytes, int line) {
    text_ += bytes;
    if (text_ > kMaxText) fail(line, "a script whose expansions grow too large");
  }

  // The values of a variable reference; `known` false: nothing is known.
  std::vector<Word> lookup(const ShellPart& part, bool& known) {
    known = true;
    if (part.op == "?") {
      known = false;
      return {};
    }
    const std::string& name = part.text;
    const bool positional = name == "@" || name == "*" || to_integer(name).has_value();
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
      } else if (const auto index = to_integer(name); *index >= 1 && *index <= static_cast<int>(positional_.size())) {
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

  static std::vector<Word> select(const Variable& variable, const ShellPart& part, bool& known) {
    if (part.all || !variable.array) return variable.values;
    if (part.index.empty()) {
      if (variable.values.empty()) return {};
      return {variable.values[0]};
    }
    const auto index = to_integer(part.index);
    if (!index || *index < 0 || *index >= static_cast<std::int64_t>(variable.values.size())) {
      known = false;
      return {};
    }
    return {variable.values[static_cast<std::size_t>(*index)]};
  }

  std::vector<Word> operand(const ShellPart& part) {
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

  // The output words of $(...); only seq and echo are known.
  std::vector<Word> substitute(const ShellPart& part, bool& known) {
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

  std::vector<Word> sequence(const std::vector<Word>& words, int line, bool& known) {
    std::vector<std::int64_t> numbers;
    std::string separator;
    for (std::size_t i = 1; i < words.size(); ++i) {
      const std::string& text = words[i].text.value;
      if (text == "-s" && i + 1 < words.size()) {
        separator = words[++i].text.value;
      } else if (text.substr(0, 2) == "-s") {
        separator = text.substr(2);
      } else if (const auto number = to_integer(text)) {
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
      if (out.size() > kMaxIterations) return {};
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

  // Integer arithmetic with the usual precedence; nullopt when a name or operator is not known.
  class Arithmetic {
   public:
    Arithmetic(std::string_view text, const std::map<std::string, Variable>& variables)
        : in_(text), variables_(variables) {}
    std::optional<std::int64_t> value() {
      const auto result = sum(0);
      skip();
      if (at_ != in_.size()) return std::nullopt;
      return result;
    }

   private:
    void skip() {
      while (at_ < in_.size() && (in_[at_] == ' ' || in_[at_] == '\n' || in_[at_] == '\t')) ++at_;
    }
    char peek() {
      skip();
      return at_ < in_.size() ? in_[at_] : '\0';
    }
    std::optional<std::int64_t> sum(int depth) {
      auto left = product(depth);
      while (left && (peek() == '+' || peek() == '-')) {
        const char op = in_[at_++];
        const auto right = product(depth);
        if (!right) return std::nullopt;
        std::int64_t out = 0;
        const bool overflow =
            op == '+' ? __builtin_add_overflow(*left, *right, &out) : __builtin_sub_overflow(*left, *right, &out);
        if (overflow) return std::nullopt;
        left = out;
      }
      return left;
    }
    std::optional<std::int64_t> product(int depth) {
      auto left = factor(depth);
      while (left && (peek() == '*' || peek() == '/' || peek() == '%')) {
        const char op = in_[at_++];
        const auto right = factor(depth);
        if (!right) return std::nullopt;
        if (op == '*') {
          left = checked_mul(*left, *right);
        } else {
          if (*right <= 0) return std::nullopt;
          left = op == '/' ? *left / *right : *left % *right;
        }
      }
      return left;
    }
    std::optional<std::int64_t> factor(int depth) {
      if (depth > 32) return std::nullopt;
      const char c = peek();
      if (c == '(') {
        ++at_;
        const auto inside = sum(depth + 1);
        if (peek() != ')') return std::nullopt;
        ++at_;
        return inside;
      }
      if (c == '-') {
        ++at_;
        const auto inside = factor(depth + 1);
        if (!inside) return std::nullopt;
        std::int64_t out = 0;
        if (__builtin_sub_overflow(std::int64_t{0}, *inside, &out)) return std::nullopt;
        return out;
      }
      std::size_t begin = at_;
      if (c == '$') begin = ++at_;
      bool braces = false;
      if (at_ < in_.size() && c == '$' && in_[at_] == '{') {
        begin = ++at_;
        braces = true;
      }
      while (at_ < in_.size() && (std::isalnum(static_cast<unsigned char>(in_[at_])) != 0 || in_[at_] == '_')) ++at_;
      const std::string word(in_.substr(begin, at_ - begin));
      if (braces) {
        if (at_ >= in_.size() || in_[at_] != '}') return std::nullopt;
        ++at_;
      }
      if (c != '$') {
        if (const auto number = to_integer(word)) return number;
      }
      const auto found = variables_.find(word);
      if (found == variables_.end() || found->second.values.empty()) return std::nullopt;
      return to_integer(found->second.values[0].text.value);
    }

    std::string_view in_;
    std::size_t at_ = 0;
    const std::map<std::string, Variable>& variables_;
  };

  // The text of a part when it is not to be split, with the line where it stands.
  Text part_text(const ShellPart& part, bool& known) {
    known = true;
    switch (part.kind) {
      case ShellPart::Kind::kLiteral:
        return {part.text, part.line};
      case ShellPart::Kind::kArithmetic:
        if (const auto value = Arithmetic(part.text, variables_).value()) return {std::to_string(*value), part.line};
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

  Word joined(const ShellWord& word) {
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

  static void note_dollar(const ShellPart& part, Word& word) {
    if (!part.single) return;
    for (std::size_t i = 0; i + 1 < part.text.size(); ++i) {
      if (part.text[i] == '$' && (part.text[i + 1] == '{' || is_name(part.text.substr(i + 1, 1)))) {
        word.single_quoted_dollar = true;
      }
    }
  }

  // Word splitting as the shell does it: unquoted expansions are cut at blanks, "${a[@]}" gives one word each.
  void expand(const ShellWord& word, std::vector<Word>& out) {
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

  void push(Word word, std::vector<Word>& out) {
    if (word.text.marks.size() > 1 && word.text.marks[1].offset == 0) word.text.marks.erase(word.text.marks.begin());
    grow(word.text.value.size() + 16, word.line());
    if (failed()) return;
    out.push_back(std::move(word));
  }

  void expand_all(const ShellPart& part, std::vector<Word>& out) {
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

  // {0..15} and {a,b} in an unquoted literal word.
  bool braces(const ShellWord& word, std::vector<Word>& out) {
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
      const auto first = to_integer(inside.substr(0, dots));
      const auto last = to_integer(inside.substr(dots + 2));
      if (!first || !last || *last < *first || *first < -100000 || *last > 100000 ||
          *last - *first > static_cast<std::int64_t>(kMaxIterations)) {
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

  const ShellHandlers& handlers_;
  Environment& exported_;
  ParseFailure& failure_;
  std::map<std::string, Variable> variables_;
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

}  // namespace

void evaluate_shell(const ShellList& script, const ShellHandlers& handlers, Environment& environment,
                    ParseFailure& failure) {
  Evaluator(handlers, environment, failure).run(script);
}

}  // namespace perigee::planner
