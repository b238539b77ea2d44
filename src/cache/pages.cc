#include "cache/pages.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "base/checked.h"

namespace perigee {

PageRef::PageRef(const PageRef& other) : pool_(other.pool_), index_(other.index_) {
  if (pool_ != nullptr) pool_->shares_[index_].fetch_add(1, std::memory_order_relaxed);
}

PageRef::PageRef(PageRef&& other) noexcept : pool_(std::exchange(other.pool_, nullptr)), index_(other.index_) {}

PageRef& PageRef::operator=(PageRef other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(index_, other.index_);
  return *this;
}

PageRef::~PageRef() {
  if (pool_ == nullptr) return;
  if (pool_->shares_[index_].fetch_sub(1, std::memory_order_acq_rel) == 1) pool_->release(index_);
}

std::byte* PageRef::data() const {
  return pool_->arena_ + static_cast<std::int64_t>(index_) * pool_->stride_;
}

bool PageRef::shared() const {
  return pool_->shares_[index_].load(std::memory_order_acquire) > 1;
}

Result<std::unique_ptr<PagePool>> PagePool::create(const Options& options) {
  if (options.page_bytes <= 0 || options.capacity_pages <= 0 ||
      options.capacity_pages > std::numeric_limits<std::uint32_t>::max()) {
    return invalid_argument("page pool: expected pages of at least 1 byte and 1 to 2^32-1 of them, found {} x {} bytes",
                            options.capacity_pages, options.page_bytes);
  }
  constexpr std::int64_t kSystemPage = 4096;
  const auto stride = checked_mul(ceil_div(options.page_bytes, kSystemPage), kSystemPage);
  const auto bytes = stride ? checked_mul(*stride, options.capacity_pages) : std::nullopt;
  if (!bytes) return invalid_argument("page pool: the size of {} pages overflows", options.capacity_pages);
  // Reserved without commitment: pages become real when they are first written.
  void* arena = ::mmap(nullptr, static_cast<std::size_t>(*bytes), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (arena == MAP_FAILED) {
    return make_error(StatusCode::kResourceExhausted, "page pool: cannot reserve {} bytes: {}", *bytes,
                      std::strerror(errno));
  }
  ::madvise(arena, static_cast<std::size_t>(*bytes), MADV_HUGEPAGE);
  return std::unique_ptr<PagePool>(new PagePool(options, static_cast<std::byte*>(arena), *stride));
}

PagePool::PagePool(const Options& options, std::byte* arena, std::int64_t stride)
    : page_bytes_(options.page_bytes),
      stride_(stride),
      capacity_(options.capacity_pages),
      poison_(options.poison),
      arena_(arena),
      shares_(std::make_unique<std::atomic<std::uint32_t>[]>(static_cast<std::size_t>(options.capacity_pages))) {
  free_.reserve(static_cast<std::size_t>(capacity_));
  // Taken from the back: low pages first, so a lightly used arena stays small.
  for (std::int64_t i = capacity_ - 1; i >= 0; --i) free_.push_back(static_cast<std::uint32_t>(i));
}

PagePool::~PagePool() {
  ::munmap(arena_, static_cast<std::size_t>(stride_ * capacity_));
}

PageRef PagePool::allocate() {
  std::uint32_t index = 0;
  {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return {};
    index = free_.back();
    free_.pop_back();
  }
  shares_[index].store(1, std::memory_order_relaxed);
  PageRef page(this, index);
  if (poison_) std::memset(page.data(), 0xFF, static_cast<std::size_t>(page_bytes_));
  return page;
}

PageRef PagePool::copy(const PageRef& page) {
  PageRef fresh = allocate();
  if (fresh) std::memcpy(fresh.data(), page.data(), static_cast<std::size_t>(page_bytes_));
  return fresh;
}

bool PagePool::make_private(PageRef& page) {
  if (!page.shared()) return true;
  PageRef fresh = copy(page);
  if (!fresh) return false;
  page = std::move(fresh);
  return true;
}

std::int64_t PagePool::free_pages() const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::int64_t>(free_.size());
}

void PagePool::release(std::uint32_t index) {
  // A reader that kept a stale pointer sees NaN, not the next owner's plausible rows.
  if (poison_)
    std::memset(arena_ + static_cast<std::int64_t>(index) * stride_, 0xFF, static_cast<std::size_t>(page_bytes_));
  const std::lock_guard lock(mutex_);
  free_.push_back(index);
}

PageBlock::PageBlock(std::vector<PageRef> pages, std::int64_t page_bytes)
    : pages_(std::move(pages)), page_bytes_(page_bytes) {
  parts_.reserve(pages_.size());
  for (const PageRef& page : pages_) parts_.emplace_back(page.data(), static_cast<std::size_t>(page_bytes_));
}

std::int64_t PageBlock::cost() const {
  return page_bytes_ * static_cast<std::int64_t>(pages_.size());
}

Result<PayloadDraft> PageAllocator::allocate_block(std::int64_t tokens, std::int64_t bytes) {
  const std::int64_t count = ceil_div(tokens, kPageTokens);
  if (tokens < 1 || tokens > kBlockTokens || bytes != count * pool_.page_bytes()) {
    return data_loss("cached block of {} tokens: expected {} bytes, found {}", tokens, count * pool_.page_bytes(),
                     bytes);
  }
  std::vector<PageRef> pages;
  PayloadDraft draft;
  for (std::int64_t i = 0; i < count; ++i) {
    PageRef page = pool_.allocate();
    if (!page) return make_error(StatusCode::kResourceExhausted, "no free page for a restored block");
    draft.parts.emplace_back(page.data(), static_cast<std::size_t>(pool_.page_bytes()));
    pages.push_back(std::move(page));
  }
  draft.payload = std::make_shared<PageBlock>(std::move(pages), pool_.page_bytes());
  return draft;
}

Result<PayloadDraft> PageAllocator::allocate_state(std::int64_t bytes) {
  if (bytes != state_bytes_) return data_loss("cached state: expected {} bytes, found {}", state_bytes_, bytes);
  PERIGEE_ASSIGN_OR_RETURN(auto buffer, BufferPayload::create(bytes));
  PayloadDraft draft;
  draft.parts.push_back(buffer->data());
  draft.payload = std::move(buffer);
  return draft;
}

}  // namespace perigee
