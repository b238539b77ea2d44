#include "cache/payload.h"

#include <sys/mman.h>
#include <xxhash.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace perigee {
namespace {

constexpr std::size_t kAlignment = 4096;
constexpr std::size_t kHugePage = std::size_t{2} << 20;

// Calls f with each section of the payload until f says false.
template <typename F>
bool for_each_section(const Payload& payload, F&& f) {
  for (std::span<const std::byte> part : payload.parts()) {
    while (!part.empty()) {
      const std::size_t size = std::min(part.size(), static_cast<std::size_t>(kSectionBytes));
      if (!f(part.first(size))) return false;
      part = part.subspan(size);
    }
  }
  return true;
}

}  // namespace

std::int64_t Payload::bytes() const {
  std::int64_t total = 0;
  for (const auto& part : parts()) total += static_cast<std::int64_t>(part.size());
  return total;
}

Result<std::shared_ptr<BufferPayload>> BufferPayload::create(std::int64_t bytes) {
  if (bytes < 0) return invalid_argument("state buffer: expected a size of at least 0, found {}", bytes);
  const std::size_t alignment = static_cast<std::size_t>(bytes) >= kHugePage ? kHugePage : kAlignment;
  const std::size_t padded = (static_cast<std::size_t>(bytes) / alignment + 1) * alignment;
  auto* data = static_cast<std::byte*>(std::aligned_alloc(alignment, padded));
  if (data == nullptr) return make_error(StatusCode::kResourceExhausted, "state buffer: no memory for {} bytes", bytes);
  if (alignment == kHugePage) ::madvise(data, padded, MADV_HUGEPAGE);
  std::memset(data, 0, static_cast<std::size_t>(bytes));
  return std::shared_ptr<BufferPayload>(new BufferPayload(data, bytes));
}

BufferPayload::BufferPayload(std::byte* data, std::int64_t bytes)
    : data_(data), bytes_(bytes), parts_{{data, static_cast<std::size_t>(bytes)}} {}

BufferPayload::~BufferPayload() {
  std::free(data_);
}

std::vector<Section> digest_sections(const Payload& payload) {
  std::vector<Section> sections;
  for_each_section(payload, [&](std::span<const std::byte> bytes) {
    sections.push_back(
        {.bytes = static_cast<std::int64_t>(bytes.size()), .digest = XXH3_64bits(bytes.data(), bytes.size())});
    return true;
  });
  return sections;
}

bool verify_sections(const Payload& payload, std::span<const Section> sections) {
  std::size_t next = 0;
  const bool same = for_each_section(payload, [&](std::span<const std::byte> bytes) {
    if (next == sections.size()) return false;
    const Section& section = sections[next++];
    return section.bytes == static_cast<std::int64_t>(bytes.size()) &&
           section.digest == XXH3_64bits(bytes.data(), bytes.size());
  });
  return same && next == sections.size();
}

}  // namespace perigee
