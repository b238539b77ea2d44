// The index of the prefix cache: one tree per root over blocks and recurrent states, with a byte budget and one LRU
// list a tier (spec cache.md 1.4, "Index" and "Memory"). No IO, no clock, no threads: the owner locks.
//
// Blocks hang below the whole block before them. A state at p hangs below the whole blocks before it, with a tail of
// 1 to 256 tokens that a block beside it covers. Invariants:
//  - an object is on a tier, or held for a write, else it is not in the tree; so is everything above it;
//  - a state is covered by a block of the same parent;
//  - what is pinned is not a victim, and neither is anything above it.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <vector>

#include "cache/keys.h"
#include "cache/payload.h"

namespace perigee {

enum class ObjectKind : std::uint8_t { kRoot, kBlock, kState };
enum class Tier : std::uint8_t { kRam = 0, kDisk = 1 };
inline constexpr std::size_t kTierCount = 2;

struct CacheObject;
using ObjectRef = std::shared_ptr<CacheObject>;

// Lexicographic order of siblings (compare_tokens), so that the longest common head with a prompt is found beside the
// place where the prompt itself would stand.
struct TokenOrder {
  using is_transparent = void;
  bool operator()(const ObjectRef& a, const ObjectRef& b) const;
  bool operator()(const ObjectRef& a, const BlockTokensView& b) const;
  bool operator()(const BlockTokensView& a, const ObjectRef& b) const;
};
using Siblings = std::set<ObjectRef, TokenOrder>;

struct CacheObject {
  ObjectKind kind = ObjectKind::kRoot;
  CacheKey key{};
  BlockTokens tokens;             // of a block; of a state its tail
  std::int64_t end = 0;           // the position after its last token
  CacheObject* parent = nullptr;  // null: the root, or no longer in the tree
  Siblings blocks;                // below it
  Siblings states;

  PayloadRef payload;  // kept while it is in RAM or waits for its write
  std::vector<Section> sections;

  // Managed by the tree.
  std::array<std::int64_t, kTierCount> cost{};
  std::array<bool, kTierCount> on{};
  bool held = false;  // waits to be written: alive although it may be on no tier
  std::uint64_t stamp = 0;
  std::int32_t users = 0;
  ObjectRef successor;  // a partial block that went for a longer sibling: that one

  bool linked() const { return parent != nullptr || kind == ObjectKind::kRoot; }
  bool on_tier(Tier tier) const { return on[static_cast<std::size_t>(tier)]; }
};

struct TreeMatch {
  std::int64_t common = 0;      // L
  std::vector<ObjectRef> path;  // the whole blocks matched
  ObjectRef partial;            // the block that holds tokens [256 * path.size(), L), if any
  bool goes_on = false;         // some stored block goes on past L
  ObjectRef state;              // the deepest at or below L; null: none
};

// Keys of states that were dropped for space, until they are stored again. Bounded, oldest first to be forgotten.
class EvictedStates {
 public:
  explicit EvictedStates(std::size_t capacity) : capacity_(capacity) {}
  void remember(const CacheKey& parent, std::int64_t tail, const CacheKey& key);
  void forget(const CacheKey& parent, const CacheKey& key);
  // Is one of them a state of this prompt past `restored`? `keys` are prompt_keys() of it.
  bool any_past(std::int64_t restored, const CacheKey& root, std::span<const CacheKey> keys,
                std::span<const TokenId> tokens, std::span<const ImageSpan> images) const;
  bool empty() const { return entries_.empty(); }

 private:
  struct KeyHash {
    std::size_t operator()(const CacheKey& key) const;
  };
  struct Entry {
    std::int64_t tail = 0;
    CacheKey key{};
    std::uint64_t serial = 0;
  };
  std::size_t capacity_;
  std::uint64_t next_serial_ = 1;
  std::unordered_multimap<CacheKey, Entry, KeyHash> entries_;  // by parent
  std::deque<std::pair<CacheKey, std::uint64_t>> order_;       // (parent, serial), also of forgotten ones
};

class PrefixTree {
 public:
  struct Options {
    std::array<std::int64_t, kTierCount> budget{};  // bytes; 0: no limit
    std::size_t evicted_memory = 65536;
    // Called when an object leaves the disk tier.
    std::function<void(const CacheObject&)> left_disk;
  };
  enum class Cause : std::uint8_t { kSpace, kDamage, kDiscard };

  explicit PrefixTree(Options options);
  ~PrefixTree();
  PrefixTree(const PrefixTree&) = delete;
  PrefixTree& operator=(const PrefixTree&) = delete;

  ObjectRef root(const CacheKey& key);             // made when it is missing
  ObjectRef find_root(const CacheKey& key) const;  // null when it is missing
  void forget_empty_root(const CacheKey& key);

  TreeMatch match(const ObjectRef& root, std::span<const TokenId> tokens, std::span<const ImageSpan> images) const;
  // All states on the path of these tokens, ascending.
  std::vector<ObjectRef> states_on_path(const ObjectRef& root, std::span<const TokenId> tokens,
                                        std::span<const ImageSpan> images) const;
  // A block below `parent` that begins with these tokens, or the state with this tail; else null.
  ObjectRef find_covering(const CacheObject& parent, const BlockTokensView& tokens) const;
  // The same among the blocks that `accept` takes.
  template <typename Accept>
  static ObjectRef find_covering_if(const CacheObject& parent, const BlockTokensView& tokens, Accept accept) {
    const auto size = static_cast<std::int64_t>(tokens.tokens.size());
    for (auto it = parent.blocks.lower_bound(tokens); it != parent.blocks.end(); ++it) {
      if (compare_tokens((*it)->tokens, tokens).common < size) return nullptr;
      if (accept(*it)) return *it;
    }
    return nullptr;
  }
  ObjectRef find_state(const CacheObject& parent, const BlockTokensView& tail) const;
  bool covered_on_tier(const CacheObject& state, Tier tier) const;

  // A new object on `tier`, not pinned, with the newest stamp. Null, and nothing changed, when it would not fit even if
  // everything not in use went. The caller made sure that no equal object is there and that a state is covered.
  ObjectRef add(CacheObject& parent, ObjectKind kind, BlockTokens tokens, const CacheKey& key,
                std::array<std::int64_t, kTierCount> cost, Tier tier);
  // A new object on no tier: held for a write, or removed by the caller.
  ObjectRef add_held(CacheObject& parent, ObjectKind kind, BlockTokens tokens, const CacheKey& key,
                     std::array<std::int64_t, kTierCount> cost);
  // Puts an object on a further tier; false when it does not fit.
  bool admit(const ObjectRef& object, Tier tier);
  void hold(CacheObject& object);
  void release_hold(const ObjectRef& object);

  // From one tier, with what is below it there.
  void drop(const ObjectRef& object, Tier tier, Cause cause);
  // From the tree, with everything below it.
  void remove(const ObjectRef& object, Cause cause);
  // Drops the oldest object of a tier that is not in use; null when there is none.
  ObjectRef drop_oldest(Tier tier);

  void pin(CacheObject& object);
  void unpin(const ObjectRef& object);  // follows a superseded block to its successor
  void stamp(CacheObject& object, std::uint64_t stamp);
  std::uint64_t next_stamp() { return ++last_stamp_; }
  void start_stamps_at(std::uint64_t stamp) { last_stamp_ = std::max(last_stamp_, stamp); }

  // Changes a budget and drops the oldest objects until it holds.
  void set_budget(Tier tier, std::int64_t bytes);

  std::int64_t used(Tier tier) const { return used_[static_cast<std::size_t>(tier)]; }
  std::int64_t count(ObjectKind kind) const { return counts_[static_cast<std::size_t>(kind)]; }
  std::int64_t evicted() const { return evicted_count_; }
  const EvictedStates& evicted_states() const { return evicted_; }
  const std::map<CacheKey, ObjectRef>& roots() const { return roots_; }

 private:
  static void collect_below(const ObjectRef& object, std::vector<ObjectRef>& out);
  bool make_room(std::int64_t bytes, Tier tier);
  void enter(CacheObject& object, std::size_t tier);
  void leave(CacheObject& object, std::size_t tier);
  void index(CacheObject& object);
  void unindex(CacheObject& object);
  std::vector<ObjectRef> superseded_by(const CacheObject& block, Tier tier) const;
  std::vector<ObjectRef> states_within(const CacheObject& parent, const BlockTokensView& tokens) const;
  void supersede(const ObjectRef& partial, const ObjectRef& block, Tier tier);
  void unlink(const ObjectRef& object, Cause cause);

  Options options_;
  std::map<CacheKey, ObjectRef> roots_;
  std::array<std::map<std::uint64_t, CacheObject*>, kTierCount> lru_;  // not in use, by stamp
  std::array<std::int64_t, kTierCount> used_{};
  std::array<std::int64_t, kTierCount> pinned_{};
  std::array<std::int64_t, 3> counts_{};
  std::int64_t evicted_count_ = 0;
  std::uint64_t last_stamp_ = 0;
  EvictedStates evicted_;
};

}  // namespace perigee
