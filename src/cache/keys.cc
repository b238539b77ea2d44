#include "cache/keys.h"

#include <algorithm>
#include <bit>
#include <string_view>

namespace perigee {
namespace {

void update_u32(Sha256& hash, std::uint32_t value) {
  const std::byte bytes[4] = {static_cast<std::byte>(value), static_cast<std::byte>(value >> 8),
                              static_cast<std::byte>(value >> 16), static_cast<std::byte>(value >> 24)};
  hash.update(bytes);
}

void update_field(Sha256& hash, std::string_view field) {
  update_u32(hash, static_cast<std::uint32_t>(field.size()));
  hash.update(field);
}

// The image token at `index` of a block: which image and where in it.
struct ImageToken {
  const BlockSpan* span = nullptr;
  std::uint32_t offset = 0;
};

// Walks the spans of one block along with its tokens.
class SpanCursor {
 public:
  explicit SpanCursor(std::span<const BlockSpan> spans) : spans_(spans) {}
  ImageToken at(std::uint32_t index) {
    while (next_ < spans_.size() && index >= spans_[next_].first + spans_[next_].length) ++next_;
    if (next_ == spans_.size() || index < spans_[next_].first) return {};
    return {&spans_[next_], spans_[next_].offset + (index - spans_[next_].first)};
  }

 private:
  std::span<const BlockSpan> spans_;
  std::size_t next_ = 0;
};

std::strong_ordering compare_images(const ImageToken& a, const ImageToken& b) {
  if (a.span == nullptr || b.span == nullptr) return (a.span != nullptr) <=> (b.span != nullptr);
  if (const auto order = a.span->digest <=> b.span->digest; order != 0) return order;
  return a.offset <=> b.offset;
}

}  // namespace

BlockTokens::BlockTokens(const BlockTokensView& view)
    : tokens(view.tokens.begin(), view.tokens.end()), images(view.images.begin(), view.images.end()) {}

BlockTokens BlockTokens::head(std::int64_t count) const {
  BlockTokens result;
  result.tokens.assign(tokens.begin(), tokens.begin() + count);
  for (const BlockSpan& span : images) {
    if (span.first >= count) break;
    result.images.push_back(span);
    result.images.back().length = std::min(span.length, static_cast<std::uint32_t>(count) - span.first);
  }
  return result;
}

BlockTokens slice_tokens(std::span<const TokenId> tokens, std::span<const ImageSpan> images, std::int64_t begin,
                         std::int64_t end) {
  BlockTokens result;
  result.tokens.assign(tokens.begin() + begin, tokens.begin() + end);
  auto image = std::lower_bound(images.begin(), images.end(), begin, [](const ImageSpan& span, std::int64_t position) {
    return span.begin + span.length <= position;
  });
  for (; image != images.end() && image->begin < end; ++image) {
    const std::int64_t first = std::max(begin, image->begin);
    const std::int64_t last = std::min(end, image->begin + image->length);
    if (first >= last) continue;
    result.images.push_back({.first = static_cast<std::uint32_t>(first - begin),
                             .length = static_cast<std::uint32_t>(last - first),
                             .offset = static_cast<std::uint32_t>(first - image->begin),
                             .digest = image->digest});
  }
  return result;
}

TokenComparison compare_tokens(const BlockTokensView& a, const BlockTokensView& b) {
  const std::size_t shorter = std::min(a.tokens.size(), b.tokens.size());
  std::size_t common = static_cast<std::size_t>(
      std::mismatch(a.tokens.begin(), a.tokens.begin() + static_cast<std::ptrdiff_t>(shorter), b.tokens.begin()).first -
      a.tokens.begin());
  if (!a.images.empty() || !b.images.empty()) {
    SpanCursor cursor_a(a.images);
    SpanCursor cursor_b(b.images);
    for (std::size_t i = 0; i < common; ++i) {
      const auto order =
          compare_images(cursor_a.at(static_cast<std::uint32_t>(i)), cursor_b.at(static_cast<std::uint32_t>(i)));
      if (order != 0) return {.common = static_cast<std::int64_t>(i), .order = order};
    }
  }
  const auto order = common == shorter ? a.tokens.size() <=> b.tokens.size() : a.tokens[common] <=> b.tokens[common];
  return {.common = static_cast<std::int64_t>(common), .order = order};
}

CacheKey root_key(const CacheRoot& root) {
  Sha256 hash;
  hash.update("perigee-cache-1");
  update_field(hash, root.model_digest);
  update_field(hash, root.numerics_id);
  update_field(hash, root.tenant);
  update_field(hash, root.cache_salt);
  return hash.finish();
}

CacheKey block_key(const CacheKey& parent, const BlockTokensView& block) {
  Sha256 hash;
  hash.update(parent);
  update_u32(hash, static_cast<std::uint32_t>(block.tokens.size()));
  static_assert(std::endian::native == std::endian::little && sizeof(TokenId) == 4);
  hash.update(std::as_bytes(block.tokens));
  update_u32(hash, static_cast<std::uint32_t>(block.images.size()));
  for (const BlockSpan& span : block.images) {
    update_u32(hash, span.first);
    update_u32(hash, span.length);
    update_u32(hash, span.offset);
    hash.update(span.digest);
  }
  return hash.finish();
}

std::vector<CacheKey> prompt_keys(const CacheKey& root, std::span<const TokenId> tokens,
                                  std::span<const ImageSpan> images) {
  std::vector<CacheKey> keys;
  const auto size = static_cast<std::int64_t>(tokens.size());
  keys.reserve(static_cast<std::size_t>(size / kBlockTokens + 1));
  for (std::int64_t begin = 0; begin < size; begin += kBlockTokens) {
    const BlockTokens block = slice_tokens(tokens, images, begin, std::min(size, begin + kBlockTokens));
    keys.push_back(block_key(keys.empty() ? root : keys.back(), block));
  }
  return keys;
}

}  // namespace perigee
