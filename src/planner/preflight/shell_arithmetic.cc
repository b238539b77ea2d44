#include <cctype>
#include <charconv>

#include "base/checked.h"
#include "planner/preflight/shell_eval.h"

namespace perigee::planner {

namespace {

class Arithmetic {
 public:
  Arithmetic(std::string_view text, const std::map<std::string, ShellVariable>& variables)
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
      if (const auto number = shell_integer(word)) return number;
    }
    const auto found = variables_.find(word);
    if (found == variables_.end() || found->second.values.empty()) return std::nullopt;
    return shell_integer(found->second.values[0].text.value);
  }

  std::string_view in_;
  std::size_t at_ = 0;
  const std::map<std::string, ShellVariable>& variables_;
};

}  // namespace

bool is_shell_name(std::string_view text) {
  if (text.empty() || (text[0] >= '0' && text[0] <= '9')) return false;
  for (const char c : text) {
    if ((c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_') return false;
  }
  return true;
}

std::optional<std::int64_t> shell_integer(std::string_view text) {
  std::int64_t out = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error != std::errc() || stop != text.data() + text.size() || text.empty()) return std::nullopt;
  return out;
}

std::optional<std::int64_t> shell_arithmetic(std::string_view text,
                                             const std::map<std::string, ShellVariable>& variables) {
  return Arithmetic(text, variables).value();
}

}  // namespace perigee::planner
