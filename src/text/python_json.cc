#include "text/python_json.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "text/utf8.h"

namespace perigee {
namespace {

constexpr int kMaxDepth = 200;

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

int hex_value(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// The four hex digits after a \u, or -1.
int hex4(std::string_view text, std::size_t at) {
  if (at + 4 > text.size()) return -1;
  int value = 0;
  for (std::size_t i = at; i < at + 4; ++i) {
    const int digit = hex_value(text[i]);
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

// -?(0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)? at `at`; moves past it. A fraction or exponent that is cut short is not taken.
bool scan_number(std::string_view text, std::size_t& at, bool& is_float) {
  const auto digit = [&](std::size_t i) { return i < text.size() && is_digit(text[i]); };
  std::size_t end = at;
  if (end < text.size() && text[end] == '-') ++end;
  if (!digit(end)) return false;
  if (text[end] == '0') {
    ++end;
  } else {
    while (digit(end)) ++end;
  }
  is_float = false;
  if (end < text.size() && text[end] == '.' && digit(end + 1)) {
    is_float = true;
    for (++end; digit(end);) ++end;
  }
  if (end < text.size() && (text[end] == 'e' || text[end] == 'E')) {
    std::size_t exponent = end + 1;
    if (exponent < text.size() && (text[exponent] == '+' || text[exponent] == '-')) ++exponent;
    if (digit(exponent)) {
      is_float = true;
      while (digit(exponent)) ++exponent;
      end = exponent;
    }
  }
  at = end;
  return true;
}

double parse_float(std::string_view text) {
  double value = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), value).ec == std::errc{}) return value;
  // Out of range: beyond the largest, or nearer to zero than the smallest. The exponent of the first digit decides.
  const bool negative = text.front() == '-';
  const std::size_t e = text.find_first_of("eE");
  std::int64_t exponent = 0;
  bool huge = false;
  if (e != std::string_view::npos) {
    const std::string_view digits = text.substr(e + (text[e + 1] == '+' ? 2 : 1));
    huge = std::from_chars(digits.data(), digits.data() + digits.size(), exponent).ec != std::errc{};
    if (huge) exponent = digits.front() == '-' ? -1 : 1;
  }
  const std::string_view mantissa = text.substr(0, e);
  const std::size_t first = mantissa.find_first_of("123456789");
  const std::size_t dot = std::min(mantissa.find('.'), mantissa.size());
  const auto magnitude = static_cast<std::int64_t>(dot) - static_cast<std::int64_t>(first);
  exponent = std::clamp<std::int64_t>(exponent, -(std::int64_t{1} << 48), std::int64_t{1} << 48);
  const bool overflow = huge ? exponent > 0 : exponent + magnitude > 0;
  const double result = overflow ? std::numeric_limits<double>::infinity() : 0.0;
  return negative ? -result : result;
}

// Recursive descent with bounded depth. `failed` is set for text that is not JSON, `refusal` for JSON that we refuse.
class PythonParser {
 public:
  explicit PythonParser(std::string_view text) : text_(text) {}

  Result<std::optional<PythonValue>> run() {
    PythonValue value;
    const bool parsed = parse_value(value, 0);
    skip_space();
    if (!parsed || at_ != text_.size()) {
      // A document that is too deep was not read to its end, so nobody knows whether it is JSON.
      if (too_deep_) return invalid_argument("JSON nested deeper than {} levels", kMaxDepth);
      return std::optional<PythonValue>();
    }
    if (lone_surrogate_) return invalid_argument("JSON string with half of a surrogate pair");
    return std::optional<PythonValue>(std::move(value));
  }

 private:
  void skip_space() {
    while (at_ < text_.size() && is_space(text_[at_])) ++at_;
  }
  bool take(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  bool parse_value(PythonValue& value, int depth) {
    using Kind = PythonValue::Kind;
    skip_space();
    if (at_ >= text_.size()) return false;
    const char c = text_[at_];
    if (c == '"') {
      value.kind = Kind::kString;
      return parse_string(value.text);
    }
    if (c == '{' || c == '[') {
      if (depth >= kMaxDepth) {
        too_deep_ = true;
        return false;
      }
      return c == '{' ? parse_object(value, depth) : parse_array(value, depth);
    }
    if (take("null")) return true;
    if (c == 't' || c == 'f') {
      value.kind = Kind::kBool;
      value.boolean = c == 't';
      return take(value.boolean ? "true" : "false");
    }
    if (take("NaN")) return set_float(value, std::numeric_limits<double>::quiet_NaN());
    if (take("Infinity")) return set_float(value, std::numeric_limits<double>::infinity());
    if (take("-Infinity")) return set_float(value, -std::numeric_limits<double>::infinity());
    const std::size_t begin = at_;
    bool is_float = false;
    if (!scan_number(text_, at_, is_float)) return false;
    const std::string_view number = text_.substr(begin, at_ - begin);
    if (is_float) return set_float(value, parse_float(number));
    value.kind = Kind::kInteger;
    value.text = number == "-0" ? "0" : number;
    return true;
  }

  static bool set_float(PythonValue& value, double number) {
    value.kind = PythonValue::Kind::kFloat;
    value.number = number;
    return true;
  }

  bool parse_string(std::string& out) {
    for (++at_; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '"') {
        ++at_;
        return true;
      }
      if (static_cast<unsigned char>(c) < 0x20) return false;
      if (c != '\\') {
        out.push_back(c);
      } else if (++at_ >= text_.size() || !parse_escape(out)) {
        return false;
      }
    }
    return false;
  }

  // text_[at_] is the character after the backslash; stays on the escape's last character.
  bool parse_escape(std::string& out) {
    constexpr std::string_view kNames = "\"\\/bfnrt";
    constexpr std::string_view kValues = "\"\\/\b\f\n\r\t";
    if (const std::size_t name = kNames.find(text_[at_]); name != std::string_view::npos) {
      out.push_back(kValues[name]);
      return true;
    }
    if (text_[at_] != 'u') return false;
    const int unit = hex4(text_, at_ + 1);
    if (unit < 0) return false;
    at_ += 4;
    if (unit < 0xD800 || unit > 0xDFFF) {
      append_utf8(static_cast<char32_t>(unit), out);
      return true;
    }
    const int second = unit < 0xDC00 && text_.substr(at_ + 1, 2) == "\\u" ? hex4(text_, at_ + 3) : -1;
    if (second < 0xDC00 || second > 0xDFFF) {
      lone_surrogate_ = true;
      return true;
    }
    at_ += 6;
    append_utf8(static_cast<char32_t>(0x10000 + ((unit - 0xD800) << 10) + (second - 0xDC00)), out);
    return true;
  }

  bool parse_array(PythonValue& value, int depth) {
    value.kind = PythonValue::Kind::kArray;
    ++at_;
    skip_space();
    if (take("]")) return true;
    while (true) {
      if (!parse_value(value.items.emplace_back(), depth + 1)) return false;
      skip_space();
      if (take("]")) return true;
      if (!take(",")) return false;
    }
  }

  // A key that comes again keeps its first place and takes the last value.
  bool parse_object(PythonValue& value, int depth) {
    value.kind = PythonValue::Kind::kObject;
    ++at_;
    skip_space();
    if (take("}")) return true;
    std::unordered_map<std::string, std::size_t> places;
    while (true) {
      skip_space();
      std::string key;
      if (at_ >= text_.size() || text_[at_] != '"' || !parse_string(key)) return false;
      skip_space();
      if (!take(":")) return false;
      PythonValue item;
      if (!parse_value(item, depth + 1)) return false;
      const auto [place, fresh] = places.emplace(key, value.items.size());
      if (fresh) {
        value.keys.push_back(std::move(key));
        value.items.push_back(std::move(item));
      } else {
        value.items[place->second] = std::move(item);
      }
      skip_space();
      if (take("}")) return true;
      if (!take(",")) return false;
    }
  }

  std::string_view text_;
  std::size_t at_ = 0;
  bool lone_surrogate_ = false;
  bool too_deep_ = false;
};

struct Style {
  std::string_view comma;
  std::string_view colon;
  bool sorted;
};

void append_value(const PythonValue& value, const Style& style, std::string& out) {
  using Kind = PythonValue::Kind;
  switch (value.kind) {
    case Kind::kNull:
      out += "null";
      break;
    case Kind::kBool:
      out += value.boolean ? "true" : "false";
      break;
    case Kind::kInteger:
      out += value.text;
      break;
    case Kind::kFloat:
      out += python_float(value.number);
      break;
    case Kind::kString:
      out += '"';
      append_json_escaped(value.text, out);
      out += '"';
      break;
    case Kind::kArray:
      out += '[';
      for (std::size_t i = 0; i < value.items.size(); ++i) {
        if (i != 0) out += style.comma;
        append_value(value.items[i], style, out);
      }
      out += ']';
      break;
    case Kind::kObject: {
      std::vector<std::size_t> order(value.keys.size());
      std::iota(order.begin(), order.end(), std::size_t{0});
      // The order of UTF-8 bytes is the order of code points.
      if (style.sorted) {
        std::sort(order.begin(), order.end(),
                  [&](std::size_t a, std::size_t b) { return value.keys[a] < value.keys[b]; });
      }
      out += '{';
      for (std::size_t i = 0; i < order.size(); ++i) {
        if (i != 0) out += style.comma;
        out += '"';
        append_json_escaped(value.keys[order[i]], out);
        out += '"';
        out += style.colon;
        append_value(value.items[order[i]], style, out);
      }
      out += '}';
      break;
    }
  }
}

// One string of a strict JSON text, from its quote; moves past the closing one.
bool skip_json_string(std::string_view text, std::size_t& at) {
  for (++at; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '"') {
      ++at;
      return true;
    }
    if (static_cast<unsigned char>(c) < 0x20) return false;
    if (c != '\\') continue;
    if (++at >= text.size()) return false;
    if (text[at] == 'u') {
      if (hex4(text, at + 1) < 0) return false;
      at += 4;
    } else if (std::string_view("\"\\/bfnrt").find(text[at]) == std::string_view::npos) {
      return false;
    }
  }
  return false;
}

bool skip_json_scalar(std::string_view text, std::size_t& at) {
  if (text[at] == '"') return skip_json_string(text, at);
  for (const std::string_view word : {"true", "false", "null"}) {
    if (text.substr(at, word.size()) == word) {
      at += word.size();
      return true;
    }
  }
  bool is_float = false;
  return scan_number(text, at, is_float);
}

}  // namespace

bool PythonValue::truthy() const {
  switch (kind) {
    case Kind::kNull:
      return false;
    case Kind::kBool:
      return boolean;
    case Kind::kInteger:
      return text != "0";
    case Kind::kFloat:
      return number != 0;
    case Kind::kString:
      return !text.empty();
    default:
      return !items.empty();
  }
}

const PythonValue* PythonValue::find(std::string_view key) const {
  const auto found = std::find(keys.begin(), keys.end(), key);
  return found == keys.end() ? nullptr : &items[static_cast<std::size_t>(found - keys.begin())];
}

PythonValue to_python(const Json& json) {
  using Kind = PythonValue::Kind;
  PythonValue value;
  if (json.is_boolean()) {
    value.kind = Kind::kBool;
    value.boolean = json.get<bool>();
  } else if (json.is_number_integer()) {
    value.kind = Kind::kInteger;
    value.text = json.is_number_unsigned() ? std::to_string(json.get<std::uint64_t>())
                                           : std::to_string(json.get<std::int64_t>());
  } else if (json.is_number_float()) {
    value.kind = Kind::kFloat;
    value.number = json.get<double>();
  } else if (json.is_string()) {
    value.kind = Kind::kString;
    value.text = json.get_ref<const std::string&>();
  } else if (json.is_array()) {
    value.kind = Kind::kArray;
    value.items.reserve(json.size());
    for (const Json& item : json) value.items.push_back(to_python(item));
  } else if (json.is_object()) {
    value.kind = Kind::kObject;
    for (const auto& [key, item] : json.items()) {
      value.keys.push_back(key);
      value.items.push_back(to_python(item));
    }
  }
  return value;
}

Result<std::optional<PythonValue>> parse_python_json(std::string_view text) {
  return PythonParser(text).run();
}

std::string dump_python_json(const PythonValue& value) {
  std::string out;
  append_value(value, {", ", ": ", false}, out);
  return out;
}

std::string dump_sorted_json(const PythonValue& value) {
  std::string out;
  append_value(value, {",", ":", true}, out);
  return out;
}

std::string python_float(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  std::array<char, 32> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::scientific);
  const std::string_view shortest(buffer.data(), static_cast<std::size_t>(end.ptr - buffer.data()));
  const std::size_t e = shortest.find('e');
  int exponent = 0;
  std::from_chars(shortest.data() + e + (shortest[e + 1] == '+' ? 2 : 1), shortest.data() + shortest.size(), exponent);
  if (exponent < -4 || exponent >= 16) return std::string(shortest);  // to_chars also writes two exponent digits
  std::string digits;
  for (const char c : shortest.substr(0, e)) {
    if (is_digit(c)) digits.push_back(c);
  }
  std::string out = std::signbit(value) ? "-" : "";
  if (exponent < 0) return out + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  const auto whole = static_cast<std::size_t>(exponent) + 1;
  if (digits.size() < whole) digits.append(whole - digits.size(), '0');
  out += digits.substr(0, whole) + ".";
  return out + (digits.size() > whole ? digits.substr(whole) : "0");
}

void append_json_escaped(std::string_view text, std::string& out) {
  constexpr std::string_view kHex = "0123456789abcdef";
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += "\\u00";
          out += kHex[static_cast<unsigned char>(c) >> 4];
          out += kHex[static_cast<unsigned char>(c) & 15];
        } else {
          out += c;
        }
    }
  }
}

bool is_json(std::string_view text) {
  std::vector<bool> open;  // true: object
  std::size_t at = 0;
  const auto skip_space = [&] {
    while (at < text.size() && is_space(text[at])) ++at;
    return at < text.size();
  };
  const auto skip_key = [&] {
    if (!skip_space() || text[at] != '"' || !skip_json_string(text, at)) return false;
    if (!skip_space() || text[at] != ':') return false;
    ++at;
    return true;
  };
  while (true) {
    // A value is due.
    if (!skip_space()) return false;
    const char c = text[at];
    if (c == '{' || c == '[') {
      ++at;
      if (!skip_space()) return false;
      if (text[at] != (c == '{' ? '}' : ']')) {
        open.push_back(c == '{');
        if (c == '{' && !skip_key()) return false;
        continue;
      }
      ++at;
    } else if (!skip_json_scalar(text, at)) {
      return false;
    }
    // A value has ended: close what ends here, then a comma or the end of the text is due.
    while (true) {
      const bool more = skip_space();
      if (open.empty()) return !more;
      if (!more) return false;
      if (text[at] == ',') break;
      if (text[at] != (open.back() ? '}' : ']')) return false;
      ++at;
      open.pop_back();
    }
    ++at;
    if (open.back() && !skip_key()) return false;
  }
}

std::string_view trim_json(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

}  // namespace perigee
