#include "text/grammar_literals.h"

#include <algorithm>

namespace perigee {
namespace {

void set_bit(std::vector<std::uint32_t>& bits, TokenId id) {
  bits[static_cast<std::size_t>(id) / 32] |= 1U << (static_cast<unsigned>(id) % 32);
}

bool is_number(char c) {
  return c == LiteralMatcher::kCount || c == LiteralMatcher::kIndex;
}

}  // namespace

LiteralMatcher::LiteralMatcher(std::shared_ptr<const std::vector<std::string>> texts) : texts_(std::move(texts)) {
  for (std::uint32_t i = 0; i < texts_->size(); ++i) states_.push_back({i, 0, false, false});
}

bool LiteralMatcher::step(State& state, char byte) const {
  const std::string& text = (*texts_)[state.text];
  if (state.offset < text.size() && is_number(text[state.offset])) {
    const bool digit = byte >= '0' && byte <= '9';
    if (digit && !state.in_number) {
      if (byte == '0' && text[state.offset] == kCount) return false;
      state.in_number = true;
      state.zero = byte == '0';
      return true;
    }
    if (digit) return !state.zero;
    if (!state.in_number) return false;
    ++state.offset;
    state.in_number = false;
  }
  if (state.offset >= text.size() || text[state.offset] != byte) return false;
  ++state.offset;
  return true;
}

bool LiteralMatcher::accept(std::string_view bytes) {
  std::erase_if(states_, [&](State& state) {
    return !std::all_of(bytes.begin(), bytes.end(), [&](char byte) { return step(state, byte); });
  });
  return !states_.empty();
}

int LiteralMatcher::complete() const {
  for (const State& state : states_) {
    const std::size_t end = state.offset + (state.in_number ? 1 : 0);
    if (end == (*texts_)[state.text].size()) return static_cast<int>(state.text);
  }
  return -1;
}

// The literal bytes that come next, up to a number or the end.
std::string_view LiteralMatcher::rest(const State& state) const {
  std::string_view text = (*texts_)[state.text];
  text.remove_prefix(state.offset + (state.in_number ? 1 : 0));
  return text.substr(0, text.find_first_of(std::string_view("\x01\x02", 2)));
}

void LiteralMatcher::allow(const GrammarVocabulary& vocabulary, std::vector<std::uint32_t>& bits) const {
  bool count = false;
  bool index = false;
  bool more = false;
  std::vector<std::string_view> rests;
  for (const State& state : states_) {
    const std::string& text = (*texts_)[state.text];
    if (state.offset < text.size() && is_number(text[state.offset])) {
      (state.in_number ? more : text[state.offset] == kCount ? count : index) |= !state.zero;
      if (!state.in_number) continue;
    }
    rests.push_back(rest(state));
  }
  if (count || index || more) {
    for (const TokenId id : vocabulary.digit_tokens()) {
      const std::string_view digits = vocabulary.tokenizer().bytes(id);
      if (more || digits.front() != '0' ? true : index && digits.size() == 1) set_bit(bits, id);
    }
  }
  // Tokens that are prefixes of a rest. Rests are sorted, so that a prefix shared with the one before is skipped.
  std::sort(rests.begin(), rests.end());
  std::string_view before;
  for (const std::string_view text : rests) {
    const auto shared = std::mismatch(before.begin(), before.end(), text.begin(), text.end()).first - before.begin();
    for (std::size_t length = static_cast<std::size_t>(shared) + 1; length <= text.size(); ++length) {
      const auto found = vocabulary.find_prefix(text.substr(0, length));
      if (found.id >= 0) set_bit(bits, found.id);
      if (!found.extends) break;
    }
    before = text;
  }
}

}  // namespace perigee
