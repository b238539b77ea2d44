// Text that remembers the source lines it came from. A shell word or a YAML scalar is put together from pieces
// of several lines, and a finding has to name the line where the wrong token stands.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

namespace perigee::planner {

// Stands for an expansion whose value is not known before the script runs ($1, $(hostname)). Input that holds
// this byte itself is refused by the readers, so it cannot be forged.
inline constexpr char kUnknown = '\x01';

struct Text {
  struct Mark {
    std::size_t offset = 0;
    int line = 0;
  };

  std::string value;
  std::vector<Mark> marks;  // ascending offsets; a mark holds up to the next one

  Text() = default;
  Text(std::string text, int line) : value(std::move(text)), marks{{0, line}} {}

  int line_at(std::size_t offset) const {
    const auto next = std::upper_bound(marks.begin(), marks.end(), offset,
                                       [](std::size_t at, const Mark& mark) { return at < mark.offset; });
    if (next == marks.begin()) return line();
    return std::prev(next)->line;
  }
  int line() const { return marks.empty() ? 0 : marks.front().line; }
  int last_line() const { return marks.empty() ? 0 : marks.back().line; }

  // A whole file, or the lines of one from `first_line` on.
  static Text of_lines(std::string content, int first_line) {
    Text text;
    text.marks.push_back({0, first_line});
    int line = first_line;
    for (std::size_t i = 0; i < content.size(); ++i) {
      if (content[i] == '\n') text.marks.push_back({i + 1, ++line});
    }
    text.value = std::move(content);
    return text;
  }

  void append(std::string_view piece, int line) {
    if (marks.empty() || marks.back().line != line) marks.push_back({value.size(), line});
    value += piece;
  }
  void append(const Text& piece) {
    if (piece.marks.empty()) {
      value += piece.value;
      return;
    }
    for (const Mark& mark : piece.marks) {
      if (marks.empty() || marks.back().line != mark.line) marks.push_back({value.size() + mark.offset, mark.line});
    }
    value += piece.value;
  }

  // The same marks, cut to [begin, begin + count).
  Text sub(std::size_t begin, std::size_t count) const {
    Text part;
    part.value = value.substr(begin, count);
    part.marks.push_back({0, line_at(begin)});
    for (const Mark& mark : marks) {
      if (mark.offset > begin && mark.offset < begin + part.value.size()) {
        part.marks.push_back({mark.offset - begin, mark.line});
      }
    }
    return part;
  }

  bool unknown() const { return value.find(kUnknown) != std::string::npos; }
};

}  // namespace perigee::planner
