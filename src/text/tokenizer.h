// Text to token ids and back (spec chat.md 1). Byte-level BPE over the pieces of the splitter; the last 256 ids of a
// vocabulary are specials, which ordinary text can never produce. Invalid UTF-8 is encoded byte for byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/special.h"
#include "text/utf8.h"

namespace perigee {

using TokenId = std::int32_t;

class Vocabulary;

enum class SpecialText : std::uint8_t { kKeep, kDrop };  // spell specials, or give no bytes for them

// A cheap copyable handle on a shared vocabulary and a special table. All methods are thread-safe.
class Tokenizer {
 public:
  // `model` is the content of a tiktoken.model file: lines of base64(bytes), space, rank, with ranks 0, 1, 2, ...
  // `vocab` is the number of ids of the model, specials included. Errors name the line.
  static Result<Tokenizer> load(std::string_view model, std::int64_t vocab, SpecialTable table);

  // The released Kimi vocabulary of 163,840 ids, which is part of this program.
  static Tokenizer embedded(SpecialTable table);

  // 512 ids: 0..255 are the bytes themselves, then the specials. For generated test models.
  static Tokenizer plain_bytes(SpecialTable table);

  // The tokenizer of a checkpoint folder: its tiktoken.model; without one, the embedded vocabulary or plain bytes
  // where `vocab` fits.
  static Result<Tokenizer> for_checkpoint(const std::string& directory, std::int64_t vocab, SpecialTable table);

  // Ordinary text: no special is ever matched. Time is O(n log n) for any input.
  std::vector<TokenId> encode(std::string_view text) const;
  void encode(std::string_view text, std::vector<TokenId>& out) const;

  // Every special's spelling becomes its id. Never for text that comes from a request, unless the client asked.
  std::vector<TokenId> encode_with_specials(std::string_view text) const;

  // The same with smaller limits than those of the reference, for its vectors (spec 1.2): `run` characters of one
  // class and `slice` characters between two cuts.
  struct ChunkLimits {
    std::size_t run = 25'000;
    std::size_t slice = 400'000;
  };
  void encode(std::string_view text, bool specials, const ChunkLimits& limits, std::vector<TokenId>& out) const;

  // The bytes of an ordinary token, the spelling of a special, nothing for any other id.
  std::string_view bytes(TokenId id) const;
  bool is_special(TokenId id) const { return id >= first_special_ && id < vocab_; }

  std::string decode_bytes(std::span<const TokenId> ids, SpecialText specials) const;
  // UTF-8: each maximal ill-formed part of the bytes is one U+FFFD.
  std::string decode(std::span<const TokenId> ids, SpecialText specials) const;

  TokenId special(Special special) const { return first_special_ + static_cast<TokenId>(special); }
  TokenId first_special() const { return first_special_; }
  TokenId vocab() const { return vocab_; }
  SpecialTable table() const;

 private:
  Tokenizer(std::shared_ptr<const Vocabulary> vocabulary, SpecialTable table, TokenId vocab);

  struct Specials;
  std::shared_ptr<const Vocabulary> vocabulary_;
  std::shared_ptr<const Specials> specials_;
  TokenId vocab_ = 0;
  TokenId first_special_ = 0;
};

// Decodes one id at a time: an incomplete UTF-8 sequence at the end is held back until it can be judged.
class StreamDecoder {
 public:
  StreamDecoder(Tokenizer tokenizer, SpecialText specials) : tokenizer_(std::move(tokenizer)), specials_(specials) {}

  std::string push(TokenId id);
  std::string finish();  // what was held back becomes U+FFFD

 private:
  Tokenizer tokenizer_;
  SpecialText specials_;
  Utf8Stream stream_;
};

}  // namespace perigee
