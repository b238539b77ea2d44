// GBNF (llama.cpp) and the XML specification's EBNF are near enough to Lark for a token-wise translation.
#include <map>
#include <set>

#include "text/grammar.h"

namespace perigee {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{256} << 10;

class Translator {
 public:
  explicit Translator(std::string_view text) : text_(text) {}

  Result<std::string> run() {
    std::string out;
    std::string body;
    bool in_rule = false;
    while (skip_space(), at_ < text_.size()) {
      const std::size_t start = at_;
      if (is_name(text_[at_])) {
        const std::string_view name = take_name();
        skip_space();
        if (text_.substr(at_, 3) == "::=") {
          at_ += 3;
          if (in_rule) finish_rule(body, out);
          in_rule = true;
          if (!defined_.insert(std::string(name)).second)
            return fail(start, fmt::format("\"{}\" is defined twice", name));
          body = rule_name(name) + ":";
          expects_item_ = true;
        } else {
          add(body, rule_name(name));
        }
        continue;
      }
      if (!in_rule) return fail(start, "expected a rule: name ::= ...");
      PERIGEE_RETURN_IF_ERROR(take_item(body));
    }
    if (in_rule) finish_rule(body, out);
    if (!defined_.contains("root")) return invalid_argument("the grammar has no rule \"root\"");
    for (const auto& [name, used] : names_) {
      if (!defined_.contains(name)) return invalid_argument("the rule \"{}\" is used and not defined", name);
    }
    return out;
  }

 private:
  static bool is_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  }

  Status fail(std::size_t at, std::string_view message) const {
    std::size_t line = 1;
    for (const char c : text_.substr(0, at)) line += c == '\n' ? 1 : 0;
    return invalid_argument("line {}: {}", line, message);
  }

  void skip_space() {
    while (at_ < text_.size()) {
      if (text_[at_] == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r') {
        ++at_;
      } else {
        return;
      }
    }
  }

  std::string_view take_name() {
    const std::size_t start = at_;
    while (at_ < text_.size() && is_name(text_[at_])) ++at_;
    return text_.substr(start, at_ - start);
  }

  // Lark's rules are lower-case words; GBNF's may differ in case or hold dashes.
  std::string rule_name(std::string_view name) {
    if (name == "root") {
      names_.emplace("root", 0);
      return "start";
    }
    const auto [known, added] = names_.emplace(std::string(name), names_.size());
    return fmt::format("r{}", known->second);
  }

  void add(std::string& body, std::string_view item) {
    body += ' ';
    body += item;
    expects_item_ = false;
  }

  void close_alternative(std::string& body) {
    if (expects_item_) body += " \"\"";
  }

  void finish_rule(std::string& body, std::string& out) {
    close_alternative(body);
    out += body;
    out += '\n';
  }

  Status take_item(std::string& body) {
    const std::size_t start = at_;
    const char c = text_[at_];
    switch (c) {
      case '"':
      case '\'':
        return take_literal(c, body);
      case '[':
        return take_class(body);
      case '{': {
        const std::size_t end = text_.find('}', at_);
        if (end == std::string_view::npos) return fail(start, "a { is not closed");
        body += text_.substr(at_, end + 1 - at_);
        at_ = end + 1;
        return {};
      }
      case '(':
      case '|':
        if (c == '|') close_alternative(body);
        ++at_;
        add(body, std::string_view(&c, 1));
        expects_item_ = true;
        return {};
      case ')':
        close_alternative(body);
        ++at_;
        add(body, ")");
        return {};
      case '*':
      case '+':
      case '?':
        ++at_;
        body += c;
        return {};
      case '.':
        ++at_;
        add(body, "/(?s:.)/");
        return {};
      case ';':
        ++at_;
        return {};
      default:
        return fail(start, fmt::format("unexpected character \"{}\"", c));
    }
  }

  // As a regular expression: both languages have the escapes \n \r \t \\ \" \xHH \uHHHH.
  Status take_literal(char quote, std::string& body) {
    const std::size_t start = at_++;
    std::string out;
    while (at_ < text_.size() && text_[at_] != quote) {
      const char c = text_[at_++];
      if (c == '\n') return fail(start, "a string is not closed");
      if (c == '\\' && at_ < text_.size()) {
        out += c;
        out += text_[at_++];
      } else {
        const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                           static_cast<unsigned char>(c) >= 0x80;
        if (plain) {
          out += c;
        } else {
          out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
        }
      }
    }
    if (at_++ >= text_.size()) return fail(start, "a string is not closed");
    add(body, out.empty() ? "\"\"" : fmt::format("/{}/", out));
    return {};
  }

  Status take_class(std::string& body) {
    const std::size_t start = at_++;
    std::string out = "[";
    while (at_ < text_.size() && text_[at_] != ']') {
      const char c = text_[at_++];
      if (c == '\\' && at_ < text_.size()) {
        out += c;
        out += text_[at_++];
      } else if (c == '/' || c == '[' || c == '&' || c == '~') {
        out += '\\';
        out += c;
      } else if (c == '\n') {
        return fail(start, "a [ is not closed");
      } else {
        out += c;
      }
    }
    if (at_++ >= text_.size()) return fail(start, "a [ is not closed");
    add(body, fmt::format("/{}]/", out));
    return {};
  }

  std::string_view text_;
  std::size_t at_ = 0;
  bool expects_item_ = false;  // nothing stands in the current alternative yet
  std::map<std::string, std::size_t> names_;
  std::set<std::string> defined_;
};

}  // namespace

Result<std::string> lark_from_ebnf(std::string_view text) {
  if (text.size() > kMaxBytes) return invalid_argument("the grammar has more than {} bytes", kMaxBytes);
  return Translator(text).run();
}

}  // namespace perigee
