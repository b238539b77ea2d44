// The bytes of a cached object as the cache sees them: opaque, immutable, shared by reference count. A block's bytes
// are pages that running sequences go on reading; nothing is copied to put them into the cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"

namespace perigee {

// Immutable from the moment it is handed to the cache. Thread-safe to read.
class Payload {
 public:
  virtual ~Payload() = default;
  // What it costs against the byte budget of a tier.
  virtual std::int64_t cost() const = 0;
  // Its content, in order; each part is contiguous.
  virtual const std::vector<std::span<const std::byte>>& parts() const = 0;

  std::int64_t bytes() const;
};
using PayloadRef = std::shared_ptr<const Payload>;

// A payload that is still being filled (a restore from disk).
struct PayloadDraft {
  PayloadRef payload;
  std::vector<std::span<std::byte>> parts;  // the writable view of payload->parts()
};

// Where restored objects go. Implementations are thread-safe; the sizes come from a file header, so an
// implementation refuses a size that its model does not have.
class PayloadAllocator {
 public:
  virtual ~PayloadAllocator() = default;
  // A block of `tokens` tokens (its pages are ceil(tokens / 64)) that holds `bytes` bytes.
  virtual Result<PayloadDraft> allocate_block(std::int64_t tokens, std::int64_t bytes) = 0;
  virtual Result<PayloadDraft> allocate_state(std::int64_t bytes) = 0;
};

// One aligned buffer, on huge pages where it is large: recurrent states.
class BufferPayload : public Payload {
 public:
  // Zeroed. kResourceExhausted when the system has no memory.
  static Result<std::shared_ptr<BufferPayload>> create(std::int64_t bytes);
  ~BufferPayload() override;
  BufferPayload(const BufferPayload&) = delete;
  BufferPayload& operator=(const BufferPayload&) = delete;

  std::int64_t cost() const override { return bytes_; }
  const std::vector<std::span<const std::byte>>& parts() const override { return parts_; }
  // Writable until the payload is handed to the cache.
  std::span<std::byte> data() { return {data_, static_cast<std::size_t>(bytes_)}; }

 private:
  BufferPayload(std::byte* data, std::int64_t bytes);
  std::byte* data_;
  std::int64_t bytes_;
  std::vector<std::span<const std::byte>> parts_;
};

// xxh3-64 of each section of a payload; a section is at most 4 MiB of one part.
inline constexpr std::int64_t kSectionBytes = std::int64_t{4} << 20;
struct Section {
  std::int64_t bytes = 0;
  std::uint64_t digest = 0;
  bool operator==(const Section&) const = default;
};
std::vector<Section> digest_sections(const Payload& payload);
bool verify_sections(const Payload& payload, std::span<const Section> sections);

}  // namespace perigee
