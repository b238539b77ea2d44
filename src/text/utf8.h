// UTF-8 as the Unicode standard and Python decode it: every maximal ill-formed part is one U+FFFD.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace perigee {

struct CodePoint {
  char32_t value = 0xFFFD;
  std::uint8_t length = 1;  // bytes
  bool valid = false;
  bool incomplete = false;  // a well-formed start that the end of the text cuts off
};

// The code point at text[at]; when it is ill-formed, `length` is the maximal ill-formed part. at < text.size().
CodePoint decode_code_point(std::string_view text, std::size_t at);

void append_utf8(char32_t code_point, std::string& out);

// The text with every ill-formed part replaced.
std::string valid_utf8(std::string_view text);

// The same for text that comes in pieces cut anywhere. Output is always whole characters.
class Utf8Stream {
 public:
  void push(std::string_view bytes, std::string& out);
  void finish(std::string& out);

 private:
  std::string held_;  // at most 3 bytes
};

}  // namespace perigee
