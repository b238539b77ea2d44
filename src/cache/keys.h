// Names of cached prefixes (spec cache.md 1.4): a SHA-256 chain over blocks of 256 tokens below a root that holds
// everything that could change a bit or must not be shared. Pure functions, thread-safe.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/sha256.h"
#include "base/tokens.h"

namespace perigee {

inline constexpr std::int64_t kBlockTokens = 256;

using CacheKey = Sha256Digest;

// What parts the trees. Prompts below different roots never share anything and never learn of each other.
struct CacheRoot {
  std::string model_digest;
  std::string numerics_id;
  std::string tenant;
  std::string cache_salt;
};

// An image of a prompt: `length` pad tokens from token `begin` on. The digest covers the decoded pixels, the
// size, the colour mode and the preprocessor; never a URL or an id that a client sent.
struct ImageSpan {
  std::int64_t begin = 0;
  std::int64_t length = 0;
  Sha256Digest digest{};
};

// The part of an image that lies in one block: tokens [first, first + length) of the block are embeddings
// [offset, offset + length) of the image.
struct BlockSpan {
  std::uint32_t first = 0;
  std::uint32_t length = 0;
  std::uint32_t offset = 0;
  Sha256Digest digest{};
  bool operator==(const BlockSpan&) const = default;
};

// 1 to 256 tokens with the image parts among them, spans in ascending order.
struct BlockTokensView {
  std::span<const TokenId> tokens;
  std::span<const BlockSpan> images;
};

struct BlockTokens {
  std::vector<TokenId> tokens;
  std::vector<BlockSpan> images;

  BlockTokens() = default;
  explicit BlockTokens(const BlockTokensView& view);
  // The first `count` tokens.
  BlockTokens head(std::int64_t count) const;
  std::int64_t size() const { return static_cast<std::int64_t>(tokens.size()); }
  operator BlockTokensView() const { return {tokens, images}; }  // NOLINT(google-explicit-constructor)
};

// Tokens [begin, end) of a prompt whose images are `images` (ascending, apart).
BlockTokens slice_tokens(std::span<const TokenId> tokens, std::span<const ImageSpan> images, std::int64_t begin,
                         std::int64_t end);

// Where two runs first differ and how they compare there: by id, then text before image, then digest, then offset
// in the image; a run that ends comes before its continuation. A pad id without an image equals no image token.
struct TokenComparison {
  std::int64_t common = 0;
  std::strong_ordering order = std::strong_ordering::equal;
};
TokenComparison compare_tokens(const BlockTokensView& a, const BlockTokensView& b);

CacheKey root_key(const CacheRoot& root);
CacheKey block_key(const CacheKey& parent, const BlockTokensView& block);

// The keys of the whole blocks of a prompt and of the partial one at its end.
std::vector<CacheKey> prompt_keys(const CacheKey& root, std::span<const TokenId> tokens,
                                  std::span<const ImageSpan> images);

}  // namespace perigee
