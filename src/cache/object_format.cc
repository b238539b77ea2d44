#include "cache/object_format.h"

#include <cstring>
#include <type_traits>

namespace perigee {
namespace {

constexpr char kMagic[8] = {'P', 'G', 'C', 'A', 'C', 'H', 'E', '1'};
constexpr std::uint32_t kMaxSections = 1U << 15;

class Writer {
 public:
  template <typename T>
  void number(T value) {
    static_assert(std::is_integral_v<T>);
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      out.push_back(static_cast<char>(static_cast<std::make_unsigned_t<T>>(value) >> (8 * i)));
    }
  }
  void digest(const Sha256Digest& value) { out.append(reinterpret_cast<const char*>(value.data()), value.size()); }
  std::string out;
};

// Reads past the end give zeros and clear ok.
class Reader {
 public:
  explicit Reader(const std::string& bytes) : bytes_(bytes) {}
  template <typename T>
  T number() {
    std::make_unsigned_t<T> value = 0;
    if (!take(sizeof(T))) return 0;
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      value |= static_cast<std::make_unsigned_t<T>>(
          static_cast<std::make_unsigned_t<T>>(static_cast<unsigned char>(bytes_[at_ - sizeof(T) + i])) << (8 * i));
    }
    return static_cast<T>(value);
  }
  Sha256Digest digest() {
    Sha256Digest value{};
    if (take(value.size())) std::memcpy(value.data(), bytes_.data() + at_ - value.size(), value.size());
    return value;
  }
  bool ok() const { return ok_; }
  bool at_end() const { return at_ == bytes_.size(); }

 private:
  bool take(std::size_t count) {
    if (!ok_ || bytes_.size() - at_ < count) return ok_ = false;
    at_ += count;
    return true;
  }
  const std::string& bytes_;
  std::size_t at_ = 0;
  bool ok_ = true;
};

}  // namespace

std::string encode_manifest(const ObjectManifest& manifest) {
  Writer writer;
  writer.out.append(kMagic, sizeof kMagic);
  writer.number(static_cast<std::uint8_t>(manifest.kind));
  writer.digest(manifest.root);
  writer.digest(manifest.parent);
  writer.digest(manifest.key);
  writer.number(manifest.begin);
  writer.number(manifest.created);
  writer.number(static_cast<std::uint32_t>(manifest.tokens.tokens.size()));
  for (const TokenId token : manifest.tokens.tokens) writer.number(token);
  writer.number(static_cast<std::uint32_t>(manifest.tokens.images.size()));
  for (const BlockSpan& span : manifest.tokens.images) {
    writer.number(span.first);
    writer.number(span.length);
    writer.number(span.offset);
    writer.digest(span.digest);
  }
  writer.number(static_cast<std::uint32_t>(manifest.sections.size()));
  for (const Section& section : manifest.sections) {
    writer.number(section.bytes);
    writer.number(section.digest);
  }
  return std::move(writer.out);
}

Result<ObjectManifest> decode_manifest(const std::string& bytes) {
  if (bytes.size() < sizeof kMagic || std::memcmp(bytes.data(), kMagic, sizeof kMagic) != 0) {
    return data_loss("manifest: expected magic PGCACHE1");
  }
  Reader reader(bytes);
  for (std::size_t i = 0; i < sizeof kMagic; ++i) (void)reader.number<std::uint8_t>();
  ObjectManifest manifest;
  manifest.kind = static_cast<ObjectKind>(reader.number<std::uint8_t>());
  manifest.root = reader.digest();
  manifest.parent = reader.digest();
  manifest.key = reader.digest();
  manifest.begin = reader.number<std::int64_t>();
  manifest.created = reader.number<std::int64_t>();
  const auto tokens = reader.number<std::uint32_t>();
  if (manifest.kind != ObjectKind::kBlock && manifest.kind != ObjectKind::kState) {
    return data_loss("manifest: unknown kind of object");
  }
  if (tokens < 1 || tokens > kBlockTokens || manifest.begin < 0 || manifest.begin % kBlockTokens != 0) {
    return data_loss("manifest: expected 1 to 256 tokens at a multiple of 256, found {} at {}", tokens, manifest.begin);
  }
  for (std::uint32_t i = 0; i < tokens; ++i) manifest.tokens.tokens.push_back(reader.number<TokenId>());
  const auto images = reader.number<std::uint32_t>();
  if (images > tokens) return data_loss("manifest: {} image spans in {} tokens", images, tokens);
  std::uint32_t free_from = 0;
  for (std::uint32_t i = 0; i < images; ++i) {
    BlockSpan span;
    span.first = reader.number<std::uint32_t>();
    span.length = reader.number<std::uint32_t>();
    span.offset = reader.number<std::uint32_t>();
    span.digest = reader.digest();
    if (span.first < free_from || span.first >= tokens || span.length < 1 || span.length > tokens - span.first) {
      return data_loss("manifest: image span {} lies outside its block", i);
    }
    free_from = span.first + span.length;
    manifest.tokens.images.push_back(span);
  }
  const auto sections = reader.number<std::uint32_t>();
  if (sections > kMaxSections)
    return data_loss("manifest: expected at most {} sections, found {}", kMaxSections, sections);
  for (std::uint32_t i = 0; i < sections; ++i) {
    Section section;
    section.bytes = reader.number<std::int64_t>();
    section.digest = reader.number<std::uint64_t>();
    if (section.bytes < 1 || section.bytes > kSectionBytes)
      return data_loss("manifest: section {} has a wrong size", i);
    manifest.sections.push_back(section);
  }
  if (!reader.ok() || !reader.at_end()) return data_loss("manifest: its length differs from what it describes");
  if (block_key(manifest.parent, manifest.tokens) != manifest.key) {
    return data_loss("manifest: the key is not the hash of parent and tokens");
  }
  return manifest;
}

std::string object_name(ObjectKind kind, const CacheKey& key) {
  return (kind == ObjectKind::kBlock ? "b-" : "s-") + to_hex(key);
}

}  // namespace perigee
