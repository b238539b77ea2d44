#include "text/tokenizer.h"

#include <filesystem>
#include <unordered_map>
#include <utility>

#include "base/file.h"
#include "text/splitter.h"
#include "text/vocabulary.h"

namespace perigee {
namespace {

constexpr std::int64_t kReleasedVocab = 163'840;
constexpr std::int64_t kPlainVocab = 256 + kSpecialIds;
constexpr std::size_t kModelFileLimit = std::size_t{64} << 20;

}  // namespace

struct Tokenizer::Specials {
  SpecialTable table;
  std::vector<std::string> spellings;
  std::unordered_map<std::string_view, std::int32_t> offsets;
  std::size_t longest = 0;

  explicit Specials(SpecialTable which) : table(which) {
    for (std::int32_t offset = 0; offset < kSpecialIds; ++offset) {
      spellings.push_back(special_spelling(which, offset));
      longest = std::max(longest, spellings.back().size());
    }
    for (std::int32_t offset = 0; offset < kSpecialIds; ++offset) offsets.emplace(spellings[offset], offset);
  }

  // The special that text[at] starts, or -1. Spellings are <...> or [...] with no such bracket inside.
  std::int32_t match(std::string_view text, std::size_t at, std::size_t& length) const {
    const std::string_view window = text.substr(at, longest);
    const std::size_t end = window.find(window.front() == '<' ? '>' : ']');
    if (end == std::string_view::npos) return -1;
    const auto found = offsets.find(window.substr(0, end + 1));
    if (found == offsets.end()) return -1;
    length = end + 1;
    return found->second;
  }
};

Tokenizer::Tokenizer(std::shared_ptr<const Vocabulary> vocabulary, SpecialTable table, TokenId vocab)
    : vocabulary_(std::move(vocabulary)), vocab_(vocab), first_special_(vocab - kSpecialIds) {
  static const auto k3 = std::make_shared<const Specials>(SpecialTable::kK3);
  static const auto k2 = std::make_shared<const Specials>(SpecialTable::kK2);
  specials_ = table == SpecialTable::kK3 ? k3 : k2;
}

Result<Tokenizer> Tokenizer::load(std::string_view model, std::int64_t vocab, SpecialTable table) {
  PERIGEE_ASSIGN_OR_RETURN(auto vocabulary, Vocabulary::parse(model));
  if (vocabulary->size() > vocab - kSpecialIds || vocab > INT32_MAX) {
    return invalid_argument("tiktoken file: expected at most {} tokens for a vocabulary of {} ids, found {}",
                            vocab - kSpecialIds, vocab, vocabulary->size());
  }
  return Tokenizer(std::move(vocabulary), table, static_cast<TokenId>(vocab));
}

Tokenizer Tokenizer::embedded(SpecialTable table) {
  // The file is part of the program and its parsing is tested, so the result is always there.
  static const auto vocabulary = std::move(Vocabulary::parse(embedded_vocabulary())).value();
  return {vocabulary, table, static_cast<TokenId>(kReleasedVocab)};
}

Tokenizer Tokenizer::plain_bytes(SpecialTable table) {
  static const auto vocabulary = Vocabulary::plain_bytes();
  return {vocabulary, table, static_cast<TokenId>(kPlainVocab)};
}

Result<Tokenizer> Tokenizer::for_checkpoint(const std::string& directory, std::int64_t vocab, SpecialTable table) {
  const std::string path = directory + "/tiktoken.model";
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored)) {
    PERIGEE_ASSIGN_OR_RETURN(const std::string model, read_file(path, kModelFileLimit));
    auto tokenizer = load(model, vocab, table);
    if (!tokenizer.ok()) return tokenizer.status().with_context(path);
    return tokenizer;
  }
  if (vocab == kReleasedVocab) return embedded(table);
  if (vocab == kPlainVocab) return plain_bytes(table);
  return make_error(StatusCode::kNotFound, "{}: expected this file, since no vocabulary of {} ids is built in", path,
                    vocab);
}

SpecialTable Tokenizer::table() const {
  return specials_->table;
}

void Tokenizer::encode(std::string_view text, bool specials, const ChunkLimits& limits,
                       std::vector<TokenId>& out) const {
  Chunker chunker(text, limits.run, limits.slice);
  const auto ordinary = [&](std::string_view part) {
    for (std::size_t begin = 0; begin < part.size();) {
      const std::size_t end = end_of_piece(part, begin);
      vocabulary_->encode_piece(part.substr(begin, end - begin), out);
      begin = end;
    }
  };
  for (std::string_view chunk; chunker.next(chunk);) {
    std::size_t begin = 0;  // of the ordinary text not yet encoded
    if (specials) {
      for (std::size_t at = chunk.find_first_of("<["); at != std::string_view::npos;
           at = chunk.find_first_of("<[", at)) {
        std::size_t length = 0;
        const std::int32_t offset = specials_->match(chunk, at, length);
        if (offset < 0) {
          ++at;
          continue;
        }
        ordinary(chunk.substr(begin, at - begin));
        out.push_back(first_special_ + offset);
        begin = at += length;
      }
    }
    ordinary(chunk.substr(begin));
  }
}

void Tokenizer::encode(std::string_view text, std::vector<TokenId>& out) const {
  encode(text, false, ChunkLimits{}, out);
}

std::vector<TokenId> Tokenizer::encode(std::string_view text) const {
  std::vector<TokenId> out;
  encode(text, false, ChunkLimits{}, out);
  return out;
}

std::vector<TokenId> Tokenizer::encode_with_specials(std::string_view text) const {
  std::vector<TokenId> out;
  encode(text, true, ChunkLimits{}, out);
  return out;
}

std::string_view Tokenizer::bytes(TokenId id) const {
  if (id >= 0 && id < vocabulary_->size()) return vocabulary_->bytes(id);
  if (is_special(id)) return specials_->spellings[id - first_special_];
  return {};
}

std::string Tokenizer::decode_bytes(std::span<const TokenId> ids, SpecialText specials) const {
  std::string out;
  for (const TokenId id : ids) {
    if (specials == SpecialText::kKeep || !is_special(id)) out += bytes(id);
  }
  return out;
}

std::string Tokenizer::decode(std::span<const TokenId> ids, SpecialText specials) const {
  return valid_utf8(decode_bytes(ids, specials));
}

std::string StreamDecoder::push(TokenId id) {
  std::string out;
  if (specials_ == SpecialText::kKeep || !tokenizer_.is_special(id)) stream_.push(tokenizer_.bytes(id), out);
  return out;
}

std::string StreamDecoder::finish() {
  std::string out;
  stream_.finish(out);
  return out;
}

}  // namespace perigee
