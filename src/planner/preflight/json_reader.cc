#include <fmt/format.h>

#include <charconv>
#include <set>

#include "planner/preflight/value.h"

namespace perigee::planner {

namespace {

constexpr int kJsonDepth = 64;
constexpr std::size_t kMaxKeys = 4096;
constexpr std::size_t kMaxValues = 200000;

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

class JsonReader {
 public:
  JsonReader(const Text& text, ParseFailure& failure) : text_(text), in_(text.value), failure_(failure) {}

  ValuePtr document() {
    ValuePtr root = value(0);
    if (root == nullptr) return nullptr;
    skip();
    if (at_ != in_.size()) return fail("text after the end of the JSON value");
    return root;
  }

 private:
  int line() const { return text_.line_at(at_ < in_.size() || in_.empty() ? at_ : in_.size() - 1); }

  ValuePtr fail(std::string message) {
    if (failure_.message.empty()) failure_ = {line(), std::move(message)};
    return nullptr;
  }

  void skip() {
    while (at_ < in_.size() && is_space(in_[at_])) ++at_;
  }

  std::string found() const {
    if (at_ >= in_.size()) return "the end";
    if (in_[at_] == kUnknown) return "an expansion";
    return fmt::format("\"{}\"", in_.substr(at_, 12));
  }

  ValuePtr value(int depth) {
    if (depth > kJsonDepth) return fail(fmt::format("JSON deeper than {} levels", kJsonDepth));
    if (++values_ > kMaxValues) return fail(fmt::format("JSON with more than {} values", kMaxValues));
    skip();
    if (at_ >= in_.size()) return fail("expected a JSON value, found the end");
    const char c = in_[at_];
    if (c == '{') return object(depth);
    if (c == '[') return list(depth);
    if (c == '"') return string();
    return scalar();
  }

  ValuePtr object(int depth) {
    auto out = std::make_shared<Value>();
    out->kind = ValueKind::kMap;
    out->line = line();
    std::set<std::string, std::less<>> keys;
    ++at_;
    skip();
    if (at_ < in_.size() && in_[at_] == '}') {
      out->last_line = line();
      ++at_;
      return out;
    }
    while (true) {
      skip();
      if (at_ >= in_.size() || in_[at_] != '"') {
        return fail(fmt::format("expected a quoted key, found {}", found()));
      }
      const int key_line = line();
      const ValuePtr key = string();
      if (key == nullptr) return nullptr;
      skip();
      if (at_ >= in_.size() || in_[at_] != ':') {
        return fail(fmt::format("expected \":\" after \"{}\", found {}", key->str(), found()));
      }
      ++at_;
      ValuePtr member = value(depth + 1);
      if (member == nullptr) return nullptr;
      if (keys.insert(key->str()).second) {
        out->members.push_back({key->str(), key_line, std::move(member)});
      } else {
        out->duplicates.push_back({key->str(), key_line, std::move(member)});
      }
      if (out->members.size() + out->duplicates.size() > kMaxKeys) {
        return fail(fmt::format("JSON object with more than {} keys", kMaxKeys));
      }
      skip();
      if (at_ < in_.size() && in_[at_] == ',') {
        ++at_;
        continue;
      }
      if (at_ < in_.size() && in_[at_] == '}') {
        out->last_line = line();
        ++at_;
        return out;
      }
      return fail(fmt::format("expected \",\" or \"}}\", found {}", found()));
    }
  }

  ValuePtr list(int depth) {
    auto out = std::make_shared<Value>();
    out->kind = ValueKind::kList;
    out->line = line();
    ++at_;
    skip();
    if (at_ < in_.size() && in_[at_] == ']') {
      out->last_line = line();
      ++at_;
      return out;
    }
    while (true) {
      ValuePtr item = value(depth + 1);
      if (item == nullptr) return nullptr;
      out->items.push_back(std::move(item));
      skip();
      if (at_ < in_.size() && in_[at_] == ',') {
        ++at_;
        continue;
      }
      if (at_ < in_.size() && in_[at_] == ']') {
        out->last_line = line();
        ++at_;
        return out;
      }
      return fail(fmt::format("expected \",\" or \"]\", found {}", found()));
    }
  }

  ValuePtr string() {
    auto out = std::make_shared<Value>();
    out->kind = ValueKind::kString;
    out->line = line();
    ++at_;
    while (true) {
      if (at_ >= in_.size()) return fail("a string without its closing quote");
      const char c = in_[at_];
      if (c == '"') break;
      if (c == '\n') return fail("a line break inside a JSON string");
      if (c != '\\') {
        out->text.append(in_.substr(at_, 1), line());
        ++at_;
        continue;
      }
      if (!escape(out->text)) return nullptr;
    }
    out->last_line = line();
    ++at_;
    if (out->text.marks.empty()) out->text.marks.push_back({0, out->line});
    return out;
  }

  bool escape(Text& out) {
    static constexpr std::string_view kNames = "\"\\/bfnrt";
    static constexpr std::string_view kValues = "\"\\/\b\f\n\r\t";
    if (at_ + 1 >= in_.size()) {
      fail("a backslash at the end");
      return false;
    }
    const char c = in_[at_ + 1];
    if (const auto index = kNames.find(c); index != std::string_view::npos) {
      out.append(kValues.substr(index, 1), line());
      at_ += 2;
      return true;
    }
    unsigned code = 0;
    const char* begin = in_.data() + at_ + 2;
    if (c == 'u' && at_ + 6 <= in_.size() && std::from_chars(begin, begin + 4, code, 16).ptr == begin + 4) {
      // Keys and values that rules look at are ASCII; anything else only has to survive as some text.
      out.append(code < 128 && code > 1 ? std::string(1, static_cast<char>(code)) : std::string("?"), line());
      at_ += 6;
      return true;
    }
    fail(fmt::format("unknown escape \"\\{}\"", c));
    return false;
  }

  ValuePtr scalar() {
    const std::size_t begin = at_;
    while (at_ < in_.size() && !is_space(in_[at_]) && in_[at_] != ',' && in_[at_] != '}' && in_[at_] != ']' &&
           in_[at_] != ':' && in_[at_] != '"' && in_[at_] != '{' && in_[at_] != '[') {
      ++at_;
    }
    const std::string_view word = in_.substr(begin, at_ - begin);
    auto out = std::make_shared<Value>();
    out->line = out->last_line = text_.line_at(begin);
    out->text = Text(std::string(word), out->line);
    if (word.find(kUnknown) != std::string_view::npos) {
      out->kind = ValueKind::kString;
    } else if (word == "true" || word == "false") {
      out->kind = ValueKind::kBool;
    } else if (word == "null") {
      out->kind = ValueKind::kNull;
    } else if (number(word)) {
      out->kind = ValueKind::kNumber;
    } else {
      at_ = begin;
      return fail(fmt::format("expected a JSON value, found {}", found()));
    }
    return out;
  }

  static bool number(std::string_view word) {
    std::size_t i = 0;
    if (i < word.size() && word[i] == '-') ++i;
    if (i >= word.size() || !is_digit(word[i])) return false;
    if (word[i] == '0' && i + 1 < word.size() && is_digit(word[i + 1])) return false;
    while (i < word.size() && is_digit(word[i])) ++i;
    if (i < word.size() && word[i] == '.') {
      ++i;
      if (i >= word.size() || !is_digit(word[i])) return false;
      while (i < word.size() && is_digit(word[i])) ++i;
    }
    if (i < word.size() && (word[i] == 'e' || word[i] == 'E')) {
      ++i;
      if (i < word.size() && (word[i] == '-' || word[i] == '+')) ++i;
      if (i >= word.size() || !is_digit(word[i])) return false;
      while (i < word.size() && is_digit(word[i])) ++i;
    }
    return i == word.size();
  }

  const Text& text_;
  std::string_view in_;
  ParseFailure& failure_;
  std::size_t at_ = 0;
  std::size_t values_ = 0;
};

}  // namespace

ValuePtr parse_located_json(const Text& text, ParseFailure& failure) {
  return JsonReader(text, failure).document();
}

const Value* Value::find(std::string_view key) const {
  const Member* found = member(key);
  return found == nullptr ? nullptr : found->value.get();
}

const Member* Value::member(std::string_view key) const {
  for (const Member& candidate : members) {
    if (candidate.key == key) return &candidate;
  }
  return nullptr;
}

std::optional<std::int64_t> Value::integer() const {
  if (kind != ValueKind::kNumber && kind != ValueKind::kString) return std::nullopt;
  std::int64_t out = 0;
  const char* end = text.value.data() + text.value.size();
  const auto [stop, error] = std::from_chars(text.value.data(), end, out);
  if (error != std::errc() || stop != end || text.value.empty()) return std::nullopt;
  return out;
}

std::optional<double> Value::number() const {
  if (kind != ValueKind::kNumber && kind != ValueKind::kString) return std::nullopt;
  double out = 0;
  const char* end = text.value.data() + text.value.size();
  const auto [stop, error] = std::from_chars(text.value.data(), end, out);
  if (error != std::errc() || stop != end || text.value.empty()) return std::nullopt;
  return out;
}

std::optional<bool> Value::boolean() const {
  if (kind == ValueKind::kNumber && (text.value == "0" || text.value == "1")) return text.value == "1";
  if (kind != ValueKind::kBool) return std::nullopt;
  return text.value == "true";
}

const Value* find_path(const Value* value, std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) {
    if (value == nullptr) return nullptr;
    value = value->find(key);
  }
  return value;
}

bool plain_text(std::string_view content, ParseFailure& failure) {
  int line = 1;
  for (std::size_t i = 0; i < content.size();) {
    const auto c = static_cast<unsigned char>(content[i]);
    if (c == '\n') ++line;
    if (c == 0 || c == static_cast<unsigned char>(kUnknown)) {
      failure = {line, fmt::format("byte 0x{:02x}: expected text", c)};
      return false;
    }
    std::size_t follow = 0;
    if (c >= 0xF5 || (c >= 0x80 && c < 0xC2)) {
      failure = {line, fmt::format("byte 0x{:02x}: expected UTF-8", c)};
      return false;
    }
    if (c >= 0xF0) {
      follow = 3;
    } else if (c >= 0xE0) {
      follow = 2;
    } else if (c >= 0xC2) {
      follow = 1;
    }
    for (std::size_t k = 1; k <= follow; ++k) {
      if (i + k >= content.size() || (static_cast<unsigned char>(content[i + k]) & 0xC0U) != 0x80U) {
        failure = {line, "expected UTF-8, found a broken sequence"};
        return false;
      }
    }
    i += follow + 1;
  }
  return true;
}

}  // namespace perigee::planner
