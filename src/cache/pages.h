// KV pages: slots of 64 tokens (latent rows and index keys of all MLA layers) from one budgeted arena, shared by
// reference count between running sequences and the cache.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/status.h"
#include "cache/keys.h"
#include "cache/payload.h"

namespace perigee {

class PagePool;

// A share in one page; empty or valid. Copying takes another share, the last one gives the page back. The pool
// outlives its pages. Distinct handles may be used from distinct threads.
class PageRef {
 public:
  PageRef() = default;
  PageRef(const PageRef& other);
  PageRef(PageRef&& other) noexcept;
  PageRef& operator=(PageRef other) noexcept;
  ~PageRef();

  explicit operator bool() const { return pool_ != nullptr; }
  // page_bytes() bytes, 4096-aligned. Only a handle that is the single one may write.
  std::byte* data() const;
  bool shared() const;
  std::uint32_t index() const { return index_; }

 private:
  friend class PagePool;
  PageRef(PagePool* pool, std::uint32_t index) : pool_(pool), index_(index) {}
  PagePool* pool_ = nullptr;
  std::uint32_t index_ = 0;
};

// Thread-safe. The arena is reserved at once and touched as pages are used; huge pages are asked for.
class PagePool {
 public:
  struct Options {
    std::int64_t page_bytes = 0;
    std::int64_t capacity_pages = 0;
    bool poison = false;  // fill freed pages with 0xFF: NaN in f32, bf16 and fp8
  };
  static Result<std::unique_ptr<PagePool>> create(const Options& options);
  ~PagePool();
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  // Contents are unspecified. An empty handle when the pool is exhausted.
  PageRef allocate();
  // A private copy of a page; empty when the pool is exhausted.
  PageRef copy(const PageRef& page);
  // Copy-on-write: after this the handle is the only one of its page. False when the pool is exhausted.
  bool make_private(PageRef& page);

  std::int64_t page_bytes() const { return page_bytes_; }
  std::int64_t capacity_pages() const { return capacity_; }
  std::int64_t free_pages() const;

 private:
  friend class PageRef;
  PagePool(const Options& options, std::byte* arena, std::int64_t stride);
  void release(std::uint32_t index);

  std::int64_t page_bytes_;
  std::int64_t stride_;
  std::int64_t capacity_;
  bool poison_;
  std::byte* arena_;
  std::unique_ptr<std::atomic<std::uint32_t>[]> shares_;
  mutable std::mutex mutex_;
  std::vector<std::uint32_t> free_;
};

// A cache block: the 1 to 4 pages of up to 256 tokens. The last page of a partial block is a copy that nobody writes.
class PageBlock : public Payload {
 public:
  explicit PageBlock(std::vector<PageRef> pages, std::int64_t page_bytes);
  std::int64_t cost() const override;
  const std::vector<std::span<const std::byte>>& parts() const override { return parts_; }
  const std::vector<PageRef>& pages() const { return pages_; }

 private:
  std::vector<PageRef> pages_;
  std::int64_t page_bytes_;
  std::vector<std::span<const std::byte>> parts_;
};

// Restores blocks into pages and states into buffers of the one size that the model has.
class PageAllocator : public PayloadAllocator {
 public:
  PageAllocator(PagePool& pool, std::int64_t state_bytes) : pool_(pool), state_bytes_(state_bytes) {}
  Result<PayloadDraft> allocate_block(std::int64_t tokens, std::int64_t bytes) override;
  Result<PayloadDraft> allocate_state(std::int64_t bytes) override;

 private:
  PagePool& pool_;
  std::int64_t state_bytes_;
};

}  // namespace perigee
