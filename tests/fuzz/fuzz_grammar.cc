// The JSON-schema layer and the request layer's way into it: any document is compiled or refused, and what compiles
// gives masks for bytes that it allows until it is complete or 64 steps are done.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "text/grammar.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace perigee;
  static const Tokenizer tokenizer = Tokenizer::plain_bytes(SpecialTable::kK3);
  static const GrammarCompiler compiler(kDialectK3, tokenizer, 16);
  if (size < 1) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  GrammarRules rules;
  rules.start = Channel::kResponse;
  const auto document = parse_json(text, {.bytes = 1 << 16, .depth = 64, .keys_per_object = 256, .values = 4096});
  switch (data[0] % 4) {
    case 0:
      if (!document.ok() || !document->is_object()) return 0;
      rules.format = {.kind = FormatKind::kJsonSchema,
                      .schema = std::make_shared<const Json>(*document),
                      .strict = true,
                      .text = "",
                      .param = "schema"};
      break;
    case 1:
      if (!document.ok() || !document->is_object()) return 0;
      rules.tools = std::make_shared<const Json>(Json::array(
          {{{"type", "function"}, {"function", {{"name", "f"}, {"parameters", *document}, {"strict", true}}}}}));
      rules.tool_choice.kind = ToolChoiceKind::kRequired;
      break;
    case 2:
      rules.format = {
          .kind = FormatKind::kRegex, .schema = nullptr, .strict = true, .text = std::string(text), .param = "regex"};
      break;
    default:
      rules.format = {
          .kind = FormatKind::kGrammar, .schema = nullptr, .strict = true, .text = std::string(text), .param = "ebnf"};
      break;
  }
  auto constraint = compiler.compile(rules);
  if (!constraint.ok()) return 0;
  const auto words = (static_cast<std::size_t>(tokenizer.vocab()) + 31) / 32;
  for (int step = 0; step < 64; ++step) {
    std::vector<std::uint32_t> mask(words, ~0U);
    if (!(*constraint)->mask(mask)) break;
    TokenId chosen = -1;
    // Prefers what the input's bytes point at, so that the fuzzer steers the walk.
    const TokenId first = data[static_cast<std::size_t>(step) % size];
    for (TokenId i = 0; i < tokenizer.vocab() && chosen < 0; ++i) {
      const TokenId id = (first + i) % tokenizer.vocab();
      if ((mask[static_cast<std::size_t>(id) / 32] >> (static_cast<unsigned>(id) % 32) & 1U) != 0) chosen = id;
    }
    if (chosen < 0) break;
    (*constraint)->accept(chosen);
  }
  return 0;
}
