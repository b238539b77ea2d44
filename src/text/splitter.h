// The pre-tokeniser (spec chat.md 1.2): cuts text into the pieces that BPE may not join, as the reference pattern
// does. Hand-written over tables of Unicode 16.0; every scan is bounded by the piece that it ends in, so the whole
// is linear in the text.
#pragma once

#include <cstddef>
#include <string_view>

namespace perigee {

// The end of the piece that starts at text[begin]; begin < text.size(). The text's end counts as the end of input for
// the pattern's lookahead, so `text` must be one whole chunk.
std::size_t end_of_piece(std::string_view text, std::size_t begin);

// The reference cuts its input before it splits: a slice holds at most `slice` characters, and a chunk ends before a
// run of one class (Python's str.isspace or not) would pass `run` characters.
class Chunker {
 public:
  Chunker(std::string_view text, std::size_t run, std::size_t slice) : text_(text), run_(run), slice_(slice) {}
  bool next(std::string_view& chunk);

 private:
  std::string_view text_;
  std::size_t run_;
  std::size_t slice_;
  std::size_t begin_ = 0;
  std::size_t in_slice_ = 0;  // characters since the last slice cut
  std::size_t in_run_ = 0;
  bool space_ = false;
};

// Python's str.strip() leaves nothing.
bool is_blank(std::string_view text);

}  // namespace perigee
