#include "text/vocabulary.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <limits>
#include <queue>

namespace perigee {
namespace {

constexpr std::size_t kMaxTokens = std::size_t{1} << 22;
constexpr std::size_t kShortPiece = 24;  // bytes; below this a scan beats a heap

constexpr std::array<std::uint8_t, 256> make_base64_values() {
  std::array<std::uint8_t, 256> values{};
  values.fill(255);
  constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (std::size_t i = 0; i < kAlphabet.size(); ++i) values[static_cast<unsigned char>(kAlphabet[i])] = i;
  return values;
}
constexpr std::array<std::uint8_t, 256> kBase64 = make_base64_values();

bool append_base64(std::string_view text, std::string& out) {
  if (text.empty() || text.size() % 4 != 0) return false;
  const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  for (std::size_t i = 0; i < text.size(); i += 4) {
    const bool last = i + 4 == text.size();
    std::uint32_t bits = 0;
    for (std::size_t j = 0; j < 4; ++j) {
      const bool pad = last && j >= 4 - padding;
      const std::uint8_t value = pad ? 0 : kBase64[static_cast<unsigned char>(text[i + j])];
      if (value == 255) return false;
      bits = bits << 6 | value;
    }
    const std::size_t count = last ? 3 - padding : 3;
    for (std::size_t j = 0; j < count; ++j) out.push_back(static_cast<char>(bits >> (16 - 8 * j) & 0xFF));
  }
  return true;
}

std::size_t hash_bytes(std::string_view bytes) {
  std::uint64_t hash = bytes.size() * 0x9E3779B97F4A7C15ULL;
  for (const char c : bytes) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
    hash ^= hash >> 29;
  }
  hash *= 0xBF58476D1CE4E5B9ULL;
  return hash ^ hash >> 32;
}

}  // namespace

Result<std::shared_ptr<const Vocabulary>> Vocabulary::parse(std::string_view model) {
  auto vocabulary = std::shared_ptr<Vocabulary>(new Vocabulary);
  vocabulary->blob_.reserve(model.size() / 2);
  for (std::size_t line = 1; !model.empty(); ++line) {
    const std::size_t end = std::min(model.find('\n'), model.size());
    std::string_view text = model.substr(0, end);
    model.remove_prefix(std::min(end + 1, model.size()));
    if (text.ends_with('\r')) text.remove_suffix(1);
    if (text.empty()) continue;
    const std::size_t space = text.find(' ');
    const std::string_view number = space == std::string_view::npos ? "" : text.substr(space + 1);
    std::int32_t rank = kNone;
    const auto parsed = std::from_chars(number.data(), number.data() + number.size(), rank);
    if (parsed.ec != std::errc{} || parsed.ptr != number.data() + number.size() || rank != vocabulary->size()) {
      return invalid_argument("tiktoken line {}: expected base64, a space and rank {}", line, vocabulary->size());
    }
    if (!append_base64(text.substr(0, space), vocabulary->blob_)) {
      return invalid_argument("tiktoken line {}: malformed base64", line);
    }
    if (vocabulary->offsets_.size() > kMaxTokens) {
      return invalid_argument("tiktoken line {}: expected at most {} tokens", line, kMaxTokens);
    }
    vocabulary->offsets_.push_back(static_cast<std::uint32_t>(vocabulary->blob_.size()));
  }
  PERIGEE_RETURN_IF_ERROR(vocabulary->index());
  return std::shared_ptr<const Vocabulary>(std::move(vocabulary));
}

std::shared_ptr<const Vocabulary> Vocabulary::plain_bytes() {
  auto vocabulary = std::shared_ptr<Vocabulary>(new Vocabulary);
  for (int byte = 0; byte < 256; ++byte) {
    vocabulary->blob_.push_back(static_cast<char>(byte));
    vocabulary->offsets_.push_back(byte + 1);
  }
  static_cast<void>(vocabulary->index());  // cannot fail: all bytes are there, once
  return vocabulary;
}

Status Vocabulary::index() {
  slots_.assign(std::bit_ceil(std::max<std::size_t>(offsets_.size() * 2, 512)), kNone);
  for (std::int32_t rank = 0; rank < size(); ++rank) {
    const std::string_view token = bytes(rank);
    longest_ = std::max(longest_, token.size());
    std::size_t slot = hash_bytes(token) & (slots_.size() - 1);
    while (slots_[slot] != kNone) {
      if (bytes(slots_[slot]) == token) {
        return invalid_argument("tiktoken ranks {} and {} have the same bytes", slots_[slot], rank);
      }
      slot = (slot + 1) & (slots_.size() - 1);
    }
    slots_[slot] = rank;
  }
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    if (find(std::string_view(&c, 1)) == kNone) {
      return invalid_argument("tiktoken file: expected a token for every byte, found none for byte {}", byte);
    }
  }
  return {};
}

std::int32_t Vocabulary::find(std::string_view text) const {
  if (text.size() > longest_) return kNone;
  for (std::size_t slot = hash_bytes(text) & (slots_.size() - 1); slots_[slot] != kNone;
       slot = (slot + 1) & (slots_.size() - 1)) {
    if (bytes(slots_[slot]) == text) return slots_[slot];
  }
  return kNone;
}

void Vocabulary::encode_piece(std::string_view piece, std::vector<std::int32_t>& out) const {
  if (piece.empty()) return;
  if (const std::int32_t rank = find(piece); rank != kNone) {
    out.push_back(rank);
  } else if (piece.size() <= kShortPiece) {
    merge_short(piece, out);
  } else {
    merge_long(piece, out);
  }
}

void Vocabulary::merge_short(std::string_view piece, std::vector<std::int32_t>& out) const {
  constexpr std::int32_t kNever = std::numeric_limits<std::int32_t>::max();
  struct Part {
    std::size_t begin;
    std::int32_t pair;  // rank of this part joined with the next
  };
  std::array<Part, kShortPiece + 1> parts{};
  std::size_t count = piece.size();
  const auto pair_rank = [&](std::size_t i) {
    if (i + 1 >= count) return kNever;
    const std::int32_t rank = find(piece.substr(parts[i].begin, parts[i + 2].begin - parts[i].begin));
    return rank == kNone ? kNever : rank;
  };
  for (std::size_t i = 0; i <= count; ++i) parts[i].begin = i;
  for (std::size_t i = 0; i < count; ++i) parts[i].pair = pair_rank(i);
  while (true) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < count; ++i) {
      if (parts[i].pair < parts[best].pair) best = i;
    }
    if (count < 2 || parts[best].pair == kNever) break;
    std::copy(parts.begin() + static_cast<std::ptrdiff_t>(best) + 2,
              parts.begin() + static_cast<std::ptrdiff_t>(count) + 1,
              parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    --count;
    parts[best].pair = pair_rank(best);
    if (best > 0) parts[best - 1].pair = pair_rank(best - 1);
  }
  for (std::size_t i = 0; i < count; ++i) {
    out.push_back(find(piece.substr(parts[i].begin, parts[i + 1].begin - parts[i].begin)));
  }
}

void Vocabulary::merge_long(std::string_view piece, std::vector<std::int32_t>& out) const {
  // Parts are a linked list over their first bytes; a heap holds the pairs, and a pair whose parts have changed since
  // it was pushed is skipped. A merge pushes at most two pairs: O(n log n) look-ups of at most `longest_` bytes.
  struct Pair {
    std::int32_t rank;
    std::uint32_t left;
    std::uint32_t end;  // where the joined part would end
    bool operator>(const Pair& other) const { return rank != other.rank ? rank > other.rank : left > other.left; }
  };
  const auto size = static_cast<std::uint32_t>(piece.size());
  std::vector<std::uint32_t> next(size);      // of the part that begins here: where it ends
  std::vector<std::uint32_t> previous(size);  // where the part before begins
  std::vector<bool> alive(size, true);
  for (std::uint32_t i = 0; i < size; ++i) {
    next[i] = i + 1;
    previous[i] = i == 0 ? size : i - 1;
  }
  std::vector<Pair> storage;
  storage.reserve(size);
  std::priority_queue<Pair, std::vector<Pair>, std::greater<>> heap(std::greater<>{}, std::move(storage));
  const auto push = [&](std::uint32_t left) {
    if (next[left] >= size) return;
    const std::uint32_t end = next[next[left]];
    const std::int32_t rank = find(piece.substr(left, end - left));
    if (rank != kNone) heap.push({rank, left, end});
  };
  for (std::uint32_t i = 0; i + 1 < size; ++i) push(i);
  while (!heap.empty()) {
    const Pair pair = heap.top();
    heap.pop();
    if (!alive[pair.left] || next[pair.left] >= size || next[next[pair.left]] != pair.end) continue;
    alive[next[pair.left]] = false;
    next[pair.left] = pair.end;
    if (pair.end < size) previous[pair.end] = pair.left;
    push(pair.left);
    if (previous[pair.left] != size) push(previous[pair.left]);
  }
  for (std::uint32_t i = 0; i < size; i = next[i]) out.push_back(find(piece.substr(i, next[i] - i)));
}

}  // namespace perigee
