// Commands of shell scripts, in order and without running any: assignments, loops, branches, builtins, sourced files.
#include "planner/preflight/shell_eval.h"

#include <fmt/format.h>

namespace perigee::planner {

namespace {

constexpr std::size_t kMaxSteps = 200000;
constexpr std::size_t kMaxVariables = 4096;
constexpr int kMaxCalls = 32;

}  // namespace

void ShellEvaluator::run(const ShellList& script) {
  walk(script, 0);
  // A function that nothing calls is still a launch command that someone may start.
  for (const auto& [name, function] : functions_) {
    if (called_.count(name) == 0) conditional([&] { walk(function->bodies[0], 1); });
  }
}

void ShellEvaluator::fail(int line, std::string message) {
  if (!failed()) failure_ = {line, std::move(message)};
}

bool ShellEvaluator::step(int line) {
  if (++steps_ <= kMaxSteps) return true;
  fail(line, "a script that takes too many steps to read");
  return false;
}

void ShellEvaluator::walk(const ShellList& list, int depth) {
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

void ShellEvaluator::set_unknown(const std::string& name, int line) {
  ShellVariable& variable = variables_[name];
  Word word;
  word.text = Text(std::string(1, kUnknown), line);
  variable.values = {word};
  variable.array = false;
  if (variable.exported) exported_[name] = {variable.values[0].text, line};
}

void ShellEvaluator::loop(const ShellNode& node, int depth) {
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
    if (++iterations_ > kShellIterations) {
      fail(node.line, "loops with too many iterations");
      return;
    }
    assign(node.name, {item}, false, node.line);
    walk(node.bodies[0], depth);
  }
}

void ShellEvaluator::assign_unknown(const std::string& name, int line) {
  Word word;
  word.text = Text(std::string(1, kUnknown), line);
  assign(name, {word}, false, line);
}

void ShellEvaluator::assign(const std::string& name, std::vector<Word> values, bool array, int line) {
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
  ShellVariable& variable = variables_[name];
  variable.values = std::move(values);
  variable.array = array;
  variable.line = line;
  variable.exported = variable.exported || export_all_;
  if (variable.exported) publish(name, variable);
}

void ShellEvaluator::publish(const std::string& name, const ShellVariable& variable) {
  if (variable.array || variable.values.empty()) return;
  exported_[name] = {variable.values[0].text, variable.line};
}

std::optional<std::string> ShellEvaluator::assignment(const ShellWord& word) {
  if (word.parts.empty() || word.parts[0].kind != ShellPart::Kind::kLiteral || word.parts[0].quoted) {
    return std::nullopt;
  }
  const std::string& text = word.parts[0].text;
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) return std::nullopt;
  std::string name = text.substr(0, equals);
  if (name.back() == '+') name.pop_back();
  if (!is_shell_name(name)) return std::nullopt;
  return name;
}

Word ShellEvaluator::assigned_value(const ShellWord& word) {
  ShellWord rest = word;
  std::string& text = rest.parts[0].text;
  text = text.substr(text.find('=') + 1);
  return joined(rest);
}

void ShellEvaluator::do_assignment(const ShellWord& word, const std::string& name) {
  const std::string& text = word.parts[0].text;
  const bool add = text[text.find('=') - 1] == '+';
  std::vector<Word> values;
  if (word.is_array) {
    for (const ShellWord& item : word.array) expand(item, values);
  } else {
    values.push_back(assigned_value(word));
  }
  if (add && variables_.count(name) != 0) {
    const ShellVariable& old = variables_[name];
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

void ShellEvaluator::simple(const ShellNode& node, int depth) {
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
      if (is_shell_name(name)) assign_unknown(name, node.line);
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

void ShellEvaluator::declare(const ShellNode& node, std::size_t first, const std::string& program) {
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
    if (is_shell_name(text) && exporting) mark_exported(text);
  }
}

void ShellEvaluator::mark_exported(const std::string& name) {
  const auto found = variables_.find(name);
  if (found == variables_.end()) return;
  found->second.exported = true;
  publish(name, found->second);
}

bool ShellEvaluator::builtin(const ShellNode& node, const std::string& program, const std::vector<Word>& words,
                             int depth) {
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

void ShellEvaluator::source(const ShellNode& node, const std::vector<Word>& words, int depth) {
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
  ShellEvaluator evaluator(silent, inner, inner_failure);
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

std::string ShellEvaluator::literal_text(const ShellWord& word) {
  std::string text;
  for (const ShellPart& part : word.parts) {
    if (part.kind != ShellPart::Kind::kLiteral) return {};
    text += part.text;
  }
  return text;
}

Text ShellEvaluator::heredoc_text(const ShellHeredoc& heredoc) {
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

void evaluate_shell(const ShellList& script, const ShellHandlers& handlers, Environment& environment,
                    ParseFailure& failure) {
  ShellEvaluator(handlers, environment, failure).run(script);
}

}  // namespace perigee::planner
