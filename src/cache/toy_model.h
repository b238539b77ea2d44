// A recurrence that stands in for a model in tests of the cache: state = state * odd + token mod 2^61, and the KV of a
// token is the state after it. Bytes that come from another prefix, position or token are never the right ones.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cache/keys.h"
#include "cache/payload.h"
#include "cache/prefix_cache.h"

namespace perigee {

class ToyPayload : public Payload {
 public:
  ToyPayload(std::vector<std::uint64_t> words, std::int64_t cost);
  std::int64_t cost() const override { return cost_; }
  const std::vector<std::span<const std::byte>>& parts() const override { return parts_; }
  const std::vector<std::uint64_t>& words() const { return words_; }
  std::vector<std::uint64_t>& mutable_words() { return words_; }

 private:
  std::vector<std::uint64_t> words_;
  std::int64_t cost_;
  std::vector<std::span<const std::byte>> parts_;
};

// Costs of toy objects; a partial block costs its 64-token pages. `state_words` pads states (the first word counts).
class ToyAllocator : public PayloadAllocator {
 public:
  ToyAllocator(std::int64_t page_cost, std::int64_t state_cost, std::int64_t state_words = 1)
      : page_cost_(page_cost), state_cost_(state_cost), state_words_(state_words) {}
  std::shared_ptr<ToyPayload> block(std::vector<std::uint64_t> kv) const;
  std::shared_ptr<ToyPayload> state(std::uint64_t value) const;
  Result<PayloadDraft> allocate_block(std::int64_t tokens, std::int64_t bytes) override;
  Result<PayloadDraft> allocate_state(std::int64_t bytes) override;

 private:
  std::int64_t page_cost_;
  std::int64_t state_cost_;
  std::int64_t state_words_;
};

// The states after 1, 2, ... tokens: what a cold run computes.
std::vector<std::uint64_t> toy_states(std::span<const TokenId> tokens, std::span<const ImageSpan> images);

// Drives one request as the engine does: stops at snapshot positions, blocks before states.
class ToyRequest {
 public:
  ToyRequest(PrefixCache& cache, const ToyAllocator& allocator, const CacheRoot& root, std::vector<TokenId> prompt,
             std::vector<ImageSpan> images, std::int64_t system_end = 0);

  const CacheLookup& lookup() const { return session_->lookup(); }
  CacheSession& session() { return *session_; }
  // Did the restored blocks and state hold exactly what a cold run computes?
  bool restored_right() const { return restored_right_; }
  // Prefill to the prompt's end, or to `stop` before it (cancelled: rule 6 applies there).
  void prefill(std::int64_t stop = -1);
  // Feeds `sampled` but its last id on a branch and takes the state at the end; `stop` as above.
  void generate(int branch, std::span<const TokenId> sampled, std::int64_t stop = -1);
  void finish() { session_->finish(); }
  void discard() { session_->discard(); }
  // Positions of the states that did not exist before, in the order taken.
  const std::vector<std::int64_t>& taken() const { return taken_; }
  // Prompt and what branch 0 was fed.
  const std::vector<TokenId>& tokens() const { return tokens_; }

 private:
  void compute(int branch, std::span<const TokenId> tokens, std::span<const std::uint64_t> states, std::int64_t& from,
               std::int64_t to);
  void take(int branch, std::span<const std::uint64_t> states, std::int64_t position);

  const ToyAllocator& allocator_;
  std::unique_ptr<CacheSession> session_;
  std::vector<TokenId> tokens_;
  std::vector<ImageSpan> images_;
  std::vector<std::uint64_t> states_;
  std::vector<std::int64_t> taken_;
  std::int64_t prompt_tokens_ = 0;
  bool restored_right_ = true;
};

}  // namespace perigee
