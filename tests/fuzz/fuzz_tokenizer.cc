// Bytes -> ids -> the same bytes; ordinary text gives no special; a tiktoken file of any content is refused or works.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "text/tokenizer.h"

using namespace perigee;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Tokenizer tokenizer = Tokenizer::embedded(SpecialTable::kK3);
  const std::string text(reinterpret_cast<const char*>(data), size);
  Tokenizer::ChunkLimits limits;
  if (size > 0 && data[0] < 8) limits = {std::size_t{1} + data[0], 16};
  std::vector<TokenId> ids;
  tokenizer.encode(text, false, limits, ids);
  for (const TokenId id : ids) {
    if (tokenizer.is_special(id)) std::abort();
  }
  if (tokenizer.decode_bytes(ids, SpecialText::kDrop) != text) std::abort();
  ids.clear();
  tokenizer.encode(text, true, limits, ids);
  if (tokenizer.decode_bytes(ids, SpecialText::kKeep) != text) std::abort();
  StreamDecoder decoder(tokenizer, SpecialText::kKeep);
  std::string streamed;
  for (const TokenId id : ids) streamed += decoder.push(id);
  if (streamed + decoder.finish() != tokenizer.decode(ids, SpecialText::kKeep)) std::abort();
  if (text.starts_with("IQ==")) static_cast<void>(Tokenizer::load(text, 1280, SpecialTable::kK3));
  return 0;
}
