#include "text/splitter.h"

#include <array>
#include <cstdint>
#include <vector>

#include "text/utf8.h"

namespace perigee {
namespace {

enum Class : std::uint8_t {
  kHan = 1,      // Script=Han
  kUpper = 2,    // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]
  kLower = 4,    // [\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]
  kLetter = 8,   // \p{L}
  kNumber = 16,  // \p{N}
  kSpace = 32,   // \s
  kPythonSpace = 64,
};

struct Range {
  char32_t first;
  char32_t last;
  std::uint8_t bits;
};

constexpr Range kRanges[] = {
#include "text/unicode_ranges.inc"
};

const std::vector<std::uint8_t>& class_table() {
  static const std::vector<std::uint8_t> table = [] {
    std::vector<std::uint8_t> bits(0x110000, 0);
    for (const Range& range : kRanges) {
      for (char32_t point = range.first; point <= range.last; ++point) bits[point] = range.bits;
    }
    return bits;
  }();
  return table;
}

struct Char {
  char32_t value = 0;
  std::uint8_t length = 0;  // 0: end of text
  std::uint8_t bits = 0;
  bool is(std::uint8_t classes) const { return (bits & classes) != 0; }
  bool newline() const { return length != 0 && (value == '\n' || value == '\r'); }
  // [^\r\n\p{L}\p{N}]
  bool prefix() const { return length != 0 && !newline() && !is(kLetter | kNumber); }
  // [^\s\p{L}\p{N}]
  bool mark() const { return length != 0 && !is(kSpace | kLetter | kNumber); }
};

class Matcher {
 public:
  explicit Matcher(std::string_view text) : text_(text), classes_(class_table().data()) {}

  Char at(std::size_t position) const {
    if (position >= text_.size()) return {};
    const auto byte = static_cast<unsigned char>(text_[position]);
    if (byte < 0x80) return {byte, 1, classes_[byte]};
    const CodePoint point = decode_code_point(text_, position);
    // An ill-formed part is a run of characters of no class.
    return {point.value, point.length, point.valid ? classes_[point.value] : std::uint8_t{0}};
  }

  std::size_t skip(std::size_t position, std::uint8_t classes) const {
    for (Char c = at(position); c.is(classes); c = at(position)) position += c.length;
    return position;
  }

  // U* L+ from `position`; 0 when it does not match. U* is greedy and gives characters back until L+ has one.
  std::size_t lower_word(std::size_t position) const {
    std::size_t shared_end = 0;  // end of the last character of the run that is in both classes
    Char c = at(position);
    for (; c.is(kUpper); c = at(position)) {
      position += c.length;
      if (c.is(kLower)) shared_end = position;
    }
    return c.is(kLower) ? skip(position, kLower) : shared_end;
  }

  // U+ L* from `position`; 0 when it does not match.
  std::size_t upper_word(std::size_t position) const {
    return at(position).is(kUpper) ? skip(skip(position, kUpper), kLower) : 0;
  }

  // (?i:'s|'t|'re|'ve|'m|'ll|'d)?
  std::size_t contraction(std::size_t position) const {
    if (at(position).value != '\'') return position;
    const auto lower = [&](std::size_t i) -> char32_t {
      const char32_t c = at(i).value;
      return c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c;
    };
    const char32_t a = lower(position + 1);
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return position + 2;
    if (a == 0x17F) return position + 3;  // the pattern folds U+017F to s
    const char32_t b = lower(position + 2);
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return position + 3;
    return position;
  }

  std::size_t word(std::size_t begin, const Char& first) const {
    using Form = std::size_t (Matcher::*)(std::size_t) const;
    for (const Form form : {&Matcher::lower_word, &Matcher::upper_word}) {
      std::size_t end = first.prefix() ? (this->*form)(begin + first.length) : 0;
      if (end == 0 && first.is(kUpper | kLower)) end = (this->*form)(begin);
      if (end != 0) return contraction(end);
    }
    return 0;
  }

  std::size_t white_space(std::size_t begin) const {
    std::size_t end = begin;
    std::size_t newline_end = 0;  // \s*[\r\n]+ ends with the run's last line break
    std::size_t last = begin;     // start of the run's last character
    for (Char c = at(end); c.is(kSpace); c = at(end)) {
      last = end;
      end += c.length;
      if (c.newline()) newline_end = end;
    }
    if (newline_end != 0) return newline_end;
    // \s+(?!\S): all but the character before a word, unless it is the only one.
    return end == text_.size() || last == begin ? end : last;
  }

  std::size_t piece(std::size_t begin) const {
    const Char first = at(begin);
    if (first.is(kHan)) return skip(begin, kHan);
    if (const std::size_t end = word(begin, first); end != 0) return end;
    if (first.is(kNumber)) {
      std::size_t end = begin;
      for (int digits = 0; digits < 3; ++digits) {
        const Char c = at(end);
        if (!c.is(kNumber)) break;
        end += c.length;
      }
      return end;
    }
    std::size_t end = first.value == ' ' ? begin + 1 : begin;
    if (at(end).mark()) {
      for (Char c = at(end); c.mark(); c = at(end)) end += c.length;
      while (at(end).newline()) ++end;
      return end;
    }
    return white_space(begin);
  }

 private:
  std::string_view text_;
  const std::uint8_t* classes_;
};

}  // namespace

std::size_t end_of_piece(std::string_view text, std::size_t begin) {
  return Matcher(text).piece(begin);
}

bool Chunker::next(std::string_view& chunk) {
  if (begin_ >= text_.size()) return false;
  const Matcher matcher(text_);
  std::size_t end = begin_;
  while (end < text_.size()) {
    const Char c = matcher.at(end);
    const bool space = c.is(kPythonSpace);
    if (in_slice_ == slice_) {
      in_slice_ = 0;
      in_run_ = 0;
      if (end > begin_) break;
    }
    if (in_run_ != 0 && space == space_ && in_run_ == run_) {
      in_run_ = 0;
      break;
    }
    in_run_ = space == space_ ? in_run_ + 1 : 1;
    space_ = space;
    ++in_slice_;
    end += c.length;
  }
  chunk = text_.substr(begin_, end - begin_);
  begin_ = end;
  return true;
}

bool is_blank(std::string_view text) {
  return Matcher(text).skip(0, kPythonSpace) == text.size();
}

}  // namespace perigee
