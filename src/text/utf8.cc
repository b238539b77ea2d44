#include "text/utf8.h"

#include <algorithm>
#include <cstddef>

namespace perigee {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// ED A0..BF at the end: the start of an encoded surrogate, ill-formed already. Python's decoder waits for the third
// byte all the same, and steps are compared with it.
bool starts_surrogate(std::string_view text, std::size_t at) {
  return text.size() - at == 2 && text[at] == '\xED' && static_cast<unsigned char>(text[at + 1]) >= 0xA0 &&
         static_cast<unsigned char>(text[at + 1]) <= 0xBF;
}

// Appends the valid form of `text`; the number of trailing bytes that may still become a character.
std::size_t append_valid(std::string_view text, bool final, std::string& out) {
  std::size_t at = 0;
  std::size_t copied = 0;  // text[copied, at) is valid and not yet in out
  while (at < text.size()) {
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    const CodePoint point = decode_code_point(text, at);
    if (point.valid) {
      at += point.length;
      continue;
    }
    out.append(text.substr(copied, at - copied));
    if (!final && (point.incomplete || starts_surrogate(text, at))) return text.size() - at;
    out.append(kReplacement);
    at += point.length;
    copied = at;
  }
  out.append(text.substr(copied));
  return 0;
}

}  // namespace

CodePoint decode_code_point(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const std::size_t left = text.size() - at;
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {lead, 1, true, false};
  std::size_t length = 0;
  unsigned char low = 0x80;  // bounds of the second byte: no overlong forms, surrogates or values above U+10FFFF
  unsigned char high = 0xBF;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return {};
  }
  char32_t value = lead & (0xFFU >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if (i >= left) return {0xFFFD, static_cast<std::uint8_t>(i), false, true};
    if (byte(i) < low || byte(i) > high) return {0xFFFD, static_cast<std::uint8_t>(i), false, false};
    value = value << 6 | (byte(i) & 0x3FU);
    low = 0x80;
    high = 0xBF;
  }
  return {value, static_cast<std::uint8_t>(length), true, false};
}

void append_utf8(char32_t code_point, std::string& out) {
  const auto put = [&](char32_t value) { out.push_back(static_cast<char>(value)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3F));
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

std::string valid_utf8(std::string_view text) {
  std::string out;
  append_valid(text, true, out);
  return out;
}

void Utf8Stream::push(std::string_view bytes, std::string& out) {
  // At most 3 held bytes and 3 new ones decide what the held ones are; the rest is judged without a copy.
  while (!held_.empty() && !bytes.empty()) {
    held_.push_back(bytes.front());
    bytes.remove_prefix(1);
    const std::size_t left = append_valid(held_, false, out);
    held_.erase(0, held_.size() - left);
  }
  if (bytes.empty()) return;
  const std::size_t left = append_valid(bytes, false, out);
  held_ = bytes.substr(bytes.size() - left);
}

void Utf8Stream::finish(std::string& out) {
  append_valid(held_, true, out);
  held_.clear();
}

}  // namespace perigee
