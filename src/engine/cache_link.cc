#include "engine/cache_link.h"

#include <algorithm>
#include <cstring>

#include "base/checked.h"

namespace perigee {
namespace {

const float* floats_of(const Payload& payload) {
  return reinterpret_cast<const float*>(payload.parts().front().data());
}

}  // namespace

void CacheLink::restore(Request& request, const CacheRoot& root, bool audit) const {
  Branch& branch = *request.branches.front();
  branch.start_state(layout_);
  branch.known = static_cast<std::int64_t>(branch.tokens.size());
  branch.stored = 0;
  request.next_snapshot = 0;
  request.audit_position = 0;
  if (!request.reported) request.report.prompt_tokens = branch.known;
  if (cache_ == nullptr) return;

  request.session = cache_->begin(root, branch.tokens, {}, request.ask.system_tokens);
  const CacheLookup& lookup = request.session->lookup();
  const std::int64_t position = lookup.restored_tokens;
  branch.stored = position / kBlockTokens * kBlockTokens;
  if (!request.reported) {
    request.report = {.prompt_tokens = lookup.prompt_tokens,
                      .common_tokens = lookup.common_tokens,
                      .whole_blocks = lookup.whole_blocks,
                      .restored_tokens = position,
                      .reason = to_string(lookup.reason)};
  }
  if (position == 0) return;
  if (audit) {
    request.audit_position = position;
    return;
  }
  for (const PayloadRef& payload : request.session->blocks()) {
    for (const PageRef& page : static_cast<const PageBlock&>(*payload).pages()) {
      branch.pages.push_back(page);
      branch.page_pointers.push_back(page.data());
    }
  }
  const auto needed = static_cast<std::size_t>(ceil_div(position, kPageTokens));
  branch.pages.resize(needed);
  branch.page_pointers.resize(needed);
  const float* state = floats_of(*request.session->state());
  std::copy_n(state, layout_.recurrent_floats, branch.recurrent.data());
  branch.final_row.assign(state + layout_.recurrent_floats, state + layout_.recurrent_floats + hidden_);
  branch.computed = position;
}

PayloadRef CacheLink::make_block(const Branch& branch, std::int64_t end) const {
  const std::int64_t begin = (end - 1) / kBlockTokens * kBlockTokens;
  std::vector<PageRef> pages;
  for (std::int64_t page = begin / kPageTokens; page * kPageTokens < end; ++page) {
    const PageRef& own = branch.pages[static_cast<std::size_t>(page)];
    // A page that the branch goes on writing is copied; a full one is shared.
    PageRef share = (page + 1) * kPageTokens > end ? pool_.copy(own) : own;
    if (!share) return nullptr;
    pages.push_back(std::move(share));
  }
  return std::make_shared<PageBlock>(std::move(pages), pool_.page_bytes());
}

void CacheLink::store_progress(Request& request, Branch& branch) const {
  if (request.session == nullptr) return;
  if (branch.computed > branch.known) {
    request.session->extend(branch.index, std::span(branch.tokens)
                                              .subspan(static_cast<std::size_t>(branch.known),
                                                       static_cast<std::size_t>(branch.computed - branch.known)));
    branch.known = branch.computed;
  }
  while (branch.stored + kBlockTokens <= branch.computed) {
    const std::int64_t end = branch.stored + kBlockTokens;
    if (request.session->wants_block(branch.index, end)) {
      if (PayloadRef block = make_block(branch, end)) request.session->add_block(branch.index, end, std::move(block));
    }
    branch.stored = end;
  }
}

void CacheLink::store_state(Request& request, Branch& branch) const {
  if (request.session == nullptr || branch.final_row.empty()) return;
  const std::int64_t position = branch.computed;
  if (position % kBlockTokens != 0 && request.session->wants_block(branch.index, position)) {
    if (PayloadRef block = make_block(branch, position)) {
      request.session->add_block(branch.index, position, std::move(block));
    }
  }
  auto buffer = BufferPayload::create(state_bytes(layout_, hidden_));
  if (!buffer.ok()) return;  // no memory for a snapshot: the cache just knows less
  auto* floats = reinterpret_cast<float*>((*buffer)->data().data());
  std::copy_n(branch.recurrent.data(), layout_.recurrent_floats, floats);
  std::copy(branch.final_row.begin(), branch.final_row.end(), floats + layout_.recurrent_floats);
  request.session->add_state(branch.index, position, *buffer);
}

void CacheLink::store_end(Request& request, Branch& branch) const {
  if (request.session == nullptr || branch.computed == 0) return;
  store_progress(request, branch);
  if (branch.sampled > 1) {
    store_state(request, branch);
    return;
  }
  const std::int64_t end = branch.computed;
  if (end % kBlockTokens == 0 || !request.session->wants_block(branch.index, end)) return;
  if (PayloadRef block = make_block(branch, end)) request.session->add_block(branch.index, end, std::move(block));
}

bool CacheLink::audit_matches(const Request& request) const {
  const Branch& branch = *request.branches.front();
  const float* stored = floats_of(*request.session->state());
  const auto same = [](const void* a, const void* b, std::int64_t floats) {
    return std::memcmp(a, b, static_cast<std::size_t>(floats) * 4) == 0;
  };
  if (!same(stored, branch.recurrent.data(), layout_.recurrent_floats)) return false;
  if (!same(stored + layout_.recurrent_floats, branch.final_row.data(), hidden_)) return false;
  std::size_t at = 0;
  for (const PayloadRef& payload : request.session->blocks()) {
    for (const PageRef& page : static_cast<const PageBlock&>(*payload).pages()) {
      // The last page may hold rows of another continuation; whole pages must be equal.
      const bool whole = static_cast<std::int64_t>(at + 1) * kPageTokens <= branch.computed;
      if (whole &&
          std::memcmp(page.data(), branch.page_pointers[at], static_cast<std::size_t>(pool_.page_bytes())) != 0) {
        return false;
      }
      ++at;
    }
  }
  return true;
}

}  // namespace perigee
