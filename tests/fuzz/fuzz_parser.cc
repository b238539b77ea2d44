// Any ids keep the parsers' promises. Bytes below 0xE0 are text, others a special each; the first two are options.
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>

#include "text/answer_invariants_testing.h"

using namespace perigee;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::uint8_t flags = data[0];
  const Dialect& dialect = (flags & 1) != 0 ? kDialectK3 : kDialectK2Thinking;
  const Tokenizer tokenizer = Tokenizer::embedded(dialect.specials);
  ParserOptions options;
  options.start = (flags & 2) != 0 ? Channel::kThink : Channel::kResponse;
  options.drop_calls = (flags & 4) != 0 && (flags & 8) != 0;
  options.include_stop = (flags & 16) != 0;
  if ((flags & 32) != 0) options.stop = {"ab", "STOP", "b\n"};
  std::vector<TokenId> ids;
  std::string text;
  const auto flush = [&] {
    tokenizer.encode(text, ids);
    text.clear();
  };
  for (std::size_t i = 2; i < size; ++i) {
    if (data[i] < 0xE0) {
      text += static_cast<char>(data[i]);
    } else {
      flush();
      ids.push_back(tokenizer.first_special() + (data[i] - 0xE0));
    }
  }
  flush();
  const bool json = dialect.format == PromptFormat::kXtml &&
                    tokenizer.decode_bytes(ids, SpecialText::kDrop).find("json") == std::string::npos;
  const std::string wrong =
      broken_invariant(dialect, tokenizer, options, ids, std::size_t{1} + data[1], (flags & 64) != 0, json);
  if (wrong.empty()) return 0;
  std::cerr << wrong << "\n";
  std::abort();
}
