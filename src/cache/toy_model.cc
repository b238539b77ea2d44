#include "cache/toy_model.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace perigee {
namespace {

constexpr std::uint64_t kMask = (std::uint64_t{1} << 61) - 1;
constexpr std::uint64_t kOdd = 0x9E3779B97F4A7C15U & kMask;

std::span<std::byte> writable_bytes(std::vector<std::uint64_t>& words) {
  return std::as_writable_bytes(std::span(words));
}

}  // namespace

ToyPayload::ToyPayload(std::vector<std::uint64_t> words, std::int64_t cost)
    : words_(std::move(words)), cost_(cost), parts_{std::as_bytes(std::span(words_))} {}

std::shared_ptr<ToyPayload> ToyAllocator::block(std::vector<std::uint64_t> kv) const {
  const auto pages = (static_cast<std::int64_t>(kv.size()) + kPageTokens - 1) / kPageTokens;
  return std::make_shared<ToyPayload>(std::move(kv), pages * page_cost_);
}

std::shared_ptr<ToyPayload> ToyAllocator::state(std::uint64_t value) const {
  std::vector<std::uint64_t> words(static_cast<std::size_t>(state_words_));
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = value + i;
  return std::make_shared<ToyPayload>(std::move(words), state_cost_);
}

Result<PayloadDraft> ToyAllocator::allocate_block(std::int64_t tokens, std::int64_t bytes) {
  if (bytes != tokens * 8) return data_loss("toy block of {} tokens with {} bytes", tokens, bytes);
  const auto payload = block(std::vector<std::uint64_t>(static_cast<std::size_t>(tokens)));
  return PayloadDraft{.payload = payload, .parts = {writable_bytes(payload->mutable_words())}};
}

Result<PayloadDraft> ToyAllocator::allocate_state(std::int64_t bytes) {
  if (bytes != state_words_ * 8) return data_loss("toy state with {} bytes", bytes);
  const auto payload = state(0);
  return PayloadDraft{.payload = payload, .parts = {writable_bytes(payload->mutable_words())}};
}

std::vector<std::uint64_t> toy_states(std::span<const TokenId> tokens, std::span<const ImageSpan> images) {
  std::vector<std::uint64_t> states;
  states.reserve(tokens.size());
  std::uint64_t state = 1;
  std::size_t next = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto position = static_cast<std::int64_t>(i);
    while (next < images.size() && position >= images[next].begin + images[next].length) ++next;
    std::uint64_t input = static_cast<std::uint32_t>(tokens[i]);
    if (next < images.size() && position >= images[next].begin) {
      std::memcpy(&input, images[next].digest.data(), sizeof input);
      input += static_cast<std::uint64_t>(position - images[next].begin) * 2654435761U;
    }
    state = (state * kOdd + input) & kMask;
    states.push_back(state);
  }
  return states;
}

ToyRequest::ToyRequest(PrefixCache& cache, const ToyAllocator& allocator, const CacheRoot& root,
                       std::vector<TokenId> prompt, std::vector<ImageSpan> images, std::int64_t system_end)
    : allocator_(allocator),
      session_(cache.begin(root, prompt, images, system_end)),
      tokens_(std::move(prompt)),
      images_(std::move(images)),
      states_(toy_states(tokens_, images_)),
      prompt_tokens_(static_cast<std::int64_t>(tokens_.size())) {
  const std::int64_t restored = lookup().restored_tokens;
  if (restored == 0) {
    restored_right_ = session_->state() == nullptr && session_->blocks().empty();
    return;
  }
  const auto* state = dynamic_cast<const ToyPayload*>(session_->state().get());
  restored_right_ = state->words() == allocator_.state(states_[static_cast<std::size_t>(restored - 1)])->words();
  std::int64_t position = 0;
  for (const PayloadRef& block : session_->blocks()) {
    const auto& kv = dynamic_cast<const ToyPayload*>(block.get())->words();
    const std::int64_t count = std::min(kBlockTokens, restored - position);
    restored_right_ = restored_right_ && static_cast<std::int64_t>(kv.size()) >= count &&
                      std::equal(kv.begin(), kv.begin() + count, states_.begin() + position);
    position += count;
  }
  restored_right_ = restored_right_ && position == restored;
}

// Publishes the blocks of [from, to): whole ones, then the partial one at the end.
void ToyRequest::compute(int branch, std::span<const TokenId> tokens, std::span<const std::uint64_t> states,
                         std::int64_t& from, std::int64_t to) {
  for (std::int64_t begin = from / kBlockTokens * kBlockTokens; begin < to; begin += kBlockTokens) {
    const std::int64_t end = std::min({begin + kBlockTokens, to, static_cast<std::int64_t>(tokens.size())});
    if (!session_->wants_block(branch, end)) continue;
    session_->add_block(branch, end, allocator_.block({states.begin() + begin, states.begin() + end}));
  }
  from = to;
}

void ToyRequest::take(int branch, std::span<const std::uint64_t> states, std::int64_t position) {
  if (session_->add_state(branch, position, allocator_.state(states[static_cast<std::size_t>(position - 1)]))) {
    taken_.push_back(position);
  }
}

void ToyRequest::prefill(std::int64_t stop) {
  const std::int64_t end = stop < 0 ? prompt_tokens_ : std::min(stop, prompt_tokens_);
  std::int64_t at = lookup().restored_tokens;
  for (const std::int64_t position : session_->snapshot_positions()) {
    if (position > end) break;
    compute(0, tokens_, states_, at, position);
    take(0, states_, position);
  }
  compute(0, tokens_, states_, at, end);
  if (end < prompt_tokens_ && session_->wants_state_on_cancel(0, end)) take(0, states_, end);
}

void ToyRequest::generate(int branch, std::span<const TokenId> sampled, std::int64_t stop) {
  if (sampled.empty()) return;
  std::vector<TokenId> tokens(tokens_.begin(), tokens_.begin() + prompt_tokens_);
  std::vector<TokenId> fed(sampled.begin(), sampled.end() - 1);
  const bool cancelled = stop >= 0;
  if (cancelled) fed.resize(static_cast<std::size_t>(std::max<std::int64_t>(stop - prompt_tokens_, 0)));
  tokens.insert(tokens.end(), fed.begin(), fed.end());
  session_->extend(branch, fed);
  const std::vector<std::uint64_t> states = toy_states(tokens, images_);
  std::int64_t at = prompt_tokens_;
  const auto end = static_cast<std::int64_t>(tokens.size());
  compute(branch, tokens, states, at, end);
  if (end > prompt_tokens_ && (!cancelled || session_->wants_state_on_cancel(branch, end))) take(branch, states, end);
  if (branch == 0) tokens_ = std::move(tokens);
}

}  // namespace perigee
