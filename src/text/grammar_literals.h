// A finite set of texts, optionally with one decimal number in each, as a matcher over tokens: markup headers and
// enumerated values. No library, no compilation. Internal to src/text.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/grammar_library.h"

namespace perigee {

class LiteralMatcher {
 public:
  static constexpr char kCount = '\x01';  // stands for [1-9][0-9]* in a text
  static constexpr char kIndex = '\x02';  // stands for 0|[1-9][0-9]*

  LiteralMatcher() = default;
  explicit LiteralMatcher(std::shared_ptr<const std::vector<std::string>> texts);

  // Sets the bits of tokens that keep at least one text possible.
  void allow(const GrammarVocabulary& vocabulary, std::vector<std::uint32_t>& bits) const;
  // False: no text is possible any more.
  bool accept(std::string_view bytes);
  // The index of the text that is complete; -1: none.
  int complete() const;
  bool alive() const { return !states_.empty(); }

 private:
  struct State {
    std::uint32_t text;
    std::uint32_t offset;
    bool in_number;  // at a number with at least one digit
    bool zero;       // the number is 0: no digit may follow
  };
  bool step(State& state, char byte) const;
  std::string_view rest(const State& state) const;

  std::shared_ptr<const std::vector<std::string>> texts_;
  std::vector<State> states_;
};

}  // namespace perigee
