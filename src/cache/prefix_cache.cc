#include "cache/prefix_cache.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "cache/disk_tier.h"
#include "cache/object_format.h"
#include "cache/prefix_tree.h"
#include "cache/snapshot_plan.h"

namespace perigee {
namespace {

constexpr auto kRam = static_cast<std::size_t>(Tier::kRam);

class CacheImpl : public PrefixCache {
 public:
  CacheImpl(const PrefixCacheOptions& options, PayloadAllocator& allocator)
      : options_(options),
        allocator_(allocator),
        tree_({.budget = {options.ram_bytes, 0}, .left_disk = [this](const CacheObject& object) {
                 if (disk_) disk_->left_disk(object);
               }}) {
    // Stamps become file times, so they go on from the clock and stay ahead of those of earlier runs.
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    tree_.start_stamps_at(
        static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count()));
  }

  ~CacheImpl() override { disk_.reset(); }

  void open_disk() {
    if (options_.disk.directory.empty()) return;
    Result<std::unique_ptr<DiskTier>> disk = DiskTier::open(options_.disk, tree_, mutex_);
    if (!disk.ok()) {
      disk_status_ = disk.status();
      spdlog::warn("cache: running without the disk tier: {}", disk_status_.message());
      return;
    }
    disk_ = std::move(*disk);
    const std::lock_guard lock(mutex_);
    tree_.set_budget(Tier::kDisk, options_.disk.budget_bytes);
  }

  std::unique_ptr<CacheSession> begin(const CacheRoot& root, std::span<const TokenId> prompt,
                                      std::span<const ImageSpan> images, std::int64_t system_end) override;

  bool reclaim() override {
    const std::lock_guard lock(mutex_);
    return tree_.drop_oldest(Tier::kRam) != nullptr;
  }
  void flush() override {
    if (disk_) disk_->flush();
  }
  const Status& disk_status() const override { return disk_status_; }
  PrefixCacheStats stats() const override;
  Json debug_tree(std::size_t limit) const override;
  std::vector<std::int64_t> state_positions(const CacheRoot& root, std::span<const TokenId> tokens,
                                            std::span<const ImageSpan> images) const override;
  Result<ObjectLocation> locate(const CacheRoot& root, std::span<const TokenId> tokens,
                                std::span<const ImageSpan> images, std::int64_t position, bool state) const override;

 private:
  friend class SessionImpl;
  PrefixCacheOptions options_;
  PayloadAllocator& allocator_;
  mutable std::mutex mutex_;
  PrefixTree tree_;
  std::unique_ptr<DiskTier> disk_;
  Status disk_status_;
  PrefixCacheStats counters_;
};

class SessionImpl : public CacheSession {
 public:
  SessionImpl(CacheImpl& cache, const CacheRoot& root, std::span<const TokenId> prompt,
              std::span<const ImageSpan> images, std::int64_t system_end)
      : cache_(cache), root_key_(root_key(root)), images_(images.begin(), images.end()) {
    branches_.emplace_back();
    branches_[0].tokens.assign(prompt.begin(), prompt.end());
    look_up(system_end);
  }
  ~SessionImpl() override { finish(); }

  const CacheLookup& lookup() const override { return lookup_; }
  const std::vector<PayloadRef>& blocks() const override { return blocks_; }
  const PayloadRef& state() const override { return state_; }
  const std::vector<std::int64_t>& snapshot_positions() const override { return positions_; }

  void extend(int branch, std::span<const TokenId> tokens) override {
    Branch& b = at(branch);
    b.tokens.insert(b.tokens.end(), tokens.begin(), tokens.end());
  }
  bool wants_block(int branch, std::int64_t end) override {
    Branch& b = at(branch);
    const std::lock_guard lock(cache_.mutex_);
    return !ended_ && find_place(b, end).wanted;
  }
  bool add_block(int branch, std::int64_t end, PayloadRef payload) override;
  bool add_state(int branch, std::int64_t position, PayloadRef payload) override;
  bool wants_state_on_cancel(int branch, std::int64_t position) override {
    return snapshot_on_cancel(position, at(branch).last_state, images_);
  }
  void finish() override;
  void discard() override;

 private:
  struct Branch {
    std::vector<TokenId> tokens;
    std::vector<ObjectRef> path;  // whole blocks
    ObjectRef tail;               // the block that covers what follows them
    std::int64_t reached = 0;     // how far its blocks were computed or restored
    std::int64_t last_state = 0;
  };
  struct Place {
    CacheObject* parent = nullptr;  // null: a block before it is missing
    BlockTokens tokens;
    bool wanted = false;
  };

  Branch& at(int branch);
  void look_up(std::int64_t system_end);
  bool restore(const TreeMatch& match, std::unique_lock<std::mutex>& lock);
  bool load(const ObjectRef& object, PayloadRef& payload, std::unique_lock<std::mutex>& lock);
  MissReason reason(const TreeMatch& match) const;
  Place find_place(Branch& branch, std::int64_t end);
  void use(const ObjectRef& object);
  ObjectRef store(CacheObject& parent, ObjectKind kind, BlockTokens tokens, PayloadRef payload,
                  std::vector<Section> sections);
  void release();
  void stamp_path();
  void restore_resumed_tail();

  CacheImpl& cache_;
  CacheKey root_key_;
  std::vector<ImageSpan> images_;
  ObjectRef root_;
  CacheLookup lookup_;
  std::vector<PayloadRef> blocks_;
  PayloadRef state_;
  std::vector<std::int64_t> positions_;
  std::vector<Branch> branches_;
  std::vector<ObjectRef> pins_;
  std::set<const CacheObject*> pinned_;
  std::vector<ObjectRef> states_;  // restored and taken
  std::vector<ObjectRef> added_;
  ObjectRef resumed_tail_;  // the partial block under the state that this request resumed from
  bool corrupt_ = false;
  bool ended_ = false;
};

std::unique_ptr<CacheSession> CacheImpl::begin(const CacheRoot& root, std::span<const TokenId> prompt,
                                               std::span<const ImageSpan> images, std::int64_t system_end) {
  return std::make_unique<SessionImpl>(*this, root, prompt, images, system_end);
}

void SessionImpl::use(const ObjectRef& object) {
  if (!pinned_.insert(object.get()).second) return;
  cache_.tree_.pin(*object);
  pins_.push_back(object);
}

void SessionImpl::release() {
  for (const ObjectRef& object : pins_) cache_.tree_.unpin(object);
  pins_.clear();
  pinned_.clear();
}

void SessionImpl::look_up(std::int64_t system_end) {
  const std::vector<TokenId>& prompt = branches_[0].tokens;
  std::unique_lock lock(cache_.mutex_);
  TreeMatch match;
  while (true) {
    root_ = cache_.tree_.root(root_key_);
    match = cache_.tree_.match(root_, prompt, images_);
    for (const ObjectRef& block : match.path) use(block);
    if (match.state) {
      use(match.state);
      if (match.partial && match.state->parent->end == static_cast<std::int64_t>(match.path.size()) * kBlockTokens) {
        use(match.partial);
      }
    }
    if (restore(match, lock)) break;
    release();
  }
  const auto size = static_cast<std::int64_t>(prompt.size());
  const std::int64_t restored = state_ ? match.state->end : 0;
  lookup_ = {.prompt_tokens = size,
             .common_tokens = match.common,
             .whole_blocks = match.common / kBlockTokens,
             .restored_tokens = restored};
  lookup_.reason = reason(match);
  positions_ = plan_snapshots({.prompt_tokens = size,
                               .common_tokens = match.common,
                               .restored_tokens = restored,
                               .stored_goes_on = match.goes_on,
                               .branch_states = cache_.options_.branch_states,
                               .system_end = system_end,
                               .interval = cache_.options_.snapshot_interval,
                               .images = images_});
  Branch& branch = branches_[0];
  branch.path = match.path;
  branch.reached = restored;
  branch.last_state = restored;
  if (restored > static_cast<std::int64_t>(match.path.size()) * kBlockTokens) {
    branch.tail = match.partial;
    resumed_tail_ = match.partial;
  }
  if (state_) states_.push_back(match.state);
  ++cache_.counters_.lookups;
  cache_.counters_.prompt_tokens += size;
  cache_.counters_.restored_tokens += restored;
}

// Brings the state and the blocks before it into memory and checks them. False: one of them was bad and is gone, so
// the match must be made again. The lock is released while bytes are read and hashed; what is used is pinned.
bool SessionImpl::restore(const TreeMatch& match, std::unique_lock<std::mutex>& lock) {
  blocks_.clear();
  state_ = nullptr;
  if (!match.state) return true;
  PayloadRef state;
  if (!load(match.state, state, lock)) return false;
  if (!state) return true;  // no memory for it: computed anew
  const auto count = static_cast<std::size_t>((match.state->end + kBlockTokens - 1) / kBlockTokens);
  for (std::size_t i = 0; i < count; ++i) {
    const ObjectRef& block = i < match.path.size() ? match.path[i] : match.partial;
    PayloadRef payload;
    if (!load(block, payload, lock)) return false;
    if (!payload) {
      blocks_.clear();
      return true;
    }
    blocks_.push_back(std::move(payload));
  }
  state_ = std::move(state);
  return true;
}

bool SessionImpl::load(const ObjectRef& object, PayloadRef& payload, std::unique_lock<std::mutex>& lock) {
  PrefixTree& tree = cache_.tree_;
  payload = object->payload;
  lock.unlock();
  Status status;
  bool from_disk = false;
  if (payload) {
    if (!verify_sections(*payload, object->sections)) status = data_loss("a section's digest differs in memory");
  } else if (cache_.disk_ == nullptr) {
    status = make_error(StatusCode::kNotFound, "on no tier");
  } else {
    from_disk = true;
    while (true) {
      Result<PayloadRef> read = cache_.disk_->read(*object, cache_.allocator_);
      if (read.ok()) payload = std::move(*read);
      status = read.status();
      if (status.code() != StatusCode::kResourceExhausted) break;
      if (!cache_.reclaim()) {
        payload = nullptr;
        lock.lock();
        return true;
      }
    }
  }
  lock.lock();
  if (!status.ok()) {
    // Another session may have dropped it in the meantime; then this look-up saw no damage of its own.
    if (object->linked()) {
      spdlog::warn("cache: a {} that ends at {} is dropped: {}", object->kind == ObjectKind::kState ? "state" : "block",
                   object->end, status.message());
      corrupt_ = true;
      ++cache_.counters_.corrupt_objects;
      tree.remove(object, PrefixTree::Cause::kDamage);
    }
    payload = nullptr;
    return false;
  }
  if (from_disk && object->linked() && object->payload == nullptr) {
    object->payload = payload;
    object->cost[kRam] = payload->cost();
    if (!tree.admit(object, Tier::kRam)) object->payload = nullptr;
  }
  return true;
}

MissReason SessionImpl::reason(const TreeMatch& match) const {
  const std::int64_t restored = lookup_.restored_tokens;
  if (restored == lookup_.prompt_tokens) return MissReason::kFull;
  if (corrupt_) return MissReason::kCorrupt;
  const EvictedStates& evicted = cache_.tree_.evicted_states();
  if (!evicted.empty()) {
    const std::vector<TokenId>& prompt = branches_[0].tokens;
    std::vector<CacheKey> keys;
    for (const ObjectRef& block : match.path) keys.push_back(block->key);
    for (std::int64_t begin = static_cast<std::int64_t>(keys.size()) * kBlockTokens;
         begin + kBlockTokens <= lookup_.prompt_tokens; begin += kBlockTokens) {
      keys.push_back(block_key(keys.empty() ? root_key_ : keys.back(),
                               slice_tokens(prompt, images_, begin, begin + kBlockTokens)));
    }
    if (evicted.any_past(restored, root_key_, keys, prompt, images_)) return MissReason::kEvicted;
  }
  if (restored < lookup_.common_tokens) return MissReason::kNoState;
  return lookup_.common_tokens == 0 ? MissReason::kNothingStored : MissReason::kDiverges;
}

SessionImpl::Branch& SessionImpl::at(int branch) {
  const auto index = static_cast<std::size_t>(branch);
  while (branches_.size() <= index) {
    const auto prompt = static_cast<std::ptrdiff_t>(lookup_.prompt_tokens);
    const Branch& first = branches_[0];
    Branch fork;
    fork.tokens.assign(first.tokens.begin(), first.tokens.begin() + prompt);
    fork.path.assign(first.path.begin(), first.path.begin() + std::min(static_cast<std::ptrdiff_t>(first.path.size()),
                                                                       prompt / kBlockTokens));
    fork.reached = std::min(first.reached, lookup_.prompt_tokens);
    fork.last_state = std::min(first.last_state, lookup_.prompt_tokens);
    branches_.push_back(std::move(fork));
  }
  return branches_[index];
}

// Where the block that ends at `end` belongs. A block that is there already becomes part of the branch's path.
SessionImpl::Place SessionImpl::find_place(Branch& branch, std::int64_t end) {
  Place place;
  if (end < 1 || end > static_cast<std::int64_t>(branch.tokens.size())) return place;
  branch.reached = std::max(branch.reached, end);
  const auto level = static_cast<std::size_t>((end - 1) / kBlockTokens);
  if (level != branch.path.size()) return place;  // covered by a whole block, or one before it is missing
  CacheObject* parent = level == 0 ? root_.get() : branch.path.back().get();
  if (!parent->linked()) return place;
  place.parent = parent;
  place.tokens = slice_tokens(branch.tokens, images_, static_cast<std::int64_t>(level) * kBlockTokens, end);
  if (const ObjectRef there = cache_.tree_.find_covering(*parent, place.tokens)) {
    use(there);
    branch.tail = there;
    if (end % kBlockTokens == 0) {
      branch.path.push_back(there);
      branch.tail = nullptr;
    }
    return place;
  }
  place.wanted = true;
  return place;
}

// Into RAM, and to disk behind; where RAM has no room for it, straight to disk. Null: it is stored nowhere.
ObjectRef SessionImpl::store(CacheObject& parent, ObjectKind kind, BlockTokens tokens, PayloadRef payload,
                             std::vector<Section> sections) {
  PrefixTree& tree = cache_.tree_;
  const CacheKey key = block_key(parent.key, tokens);
  const std::array<std::int64_t, kTierCount> cost = {payload->cost(), 0};
  ObjectRef object = tree.add(parent, kind, tokens, key, cost, Tier::kRam);
  const bool in_ram = object != nullptr;
  if (!in_ram) {
    if (cache_.disk_ == nullptr) return nullptr;
    object = tree.add_held(parent, kind, std::move(tokens), key, cost);
    object->held = false;  // the queue holds it, if it takes it
  }
  object->payload = std::move(payload);
  object->sections = std::move(sections);
  if (cache_.disk_) cache_.disk_->enqueue(object);
  if (!in_ram && !object->held) {
    tree.remove(object, PrefixTree::Cause::kDiscard);
    return nullptr;
  }
  use(object);
  return object;
}

bool SessionImpl::add_block(int branch, std::int64_t end, PayloadRef payload) {
  Branch& b = at(branch);
  if (!wants_block(branch, end)) return false;
  std::vector<Section> sections = digest_sections(*payload);
  const std::lock_guard lock(cache_.mutex_);
  Place place = find_place(b, end);
  if (!place.wanted) return false;
  ObjectRef block =
      store(*place.parent, ObjectKind::kBlock, std::move(place.tokens), std::move(payload), std::move(sections));
  if (!block) return false;
  added_.push_back(block);
  if (end % kBlockTokens == 0) {
    b.path.push_back(std::move(block));
    b.tail = nullptr;
  } else {
    b.tail = std::move(block);
  }
  return true;
}

bool SessionImpl::add_state(int branch, std::int64_t position, PayloadRef payload) {
  Branch& b = at(branch);
  if (position < 1 || position > static_cast<std::int64_t>(b.tokens.size())) return false;
  std::vector<Section> sections = digest_sections(*payload);
  const PrefixTree& tree = cache_.tree_;
  const std::lock_guard lock(cache_.mutex_);
  const auto level = static_cast<std::size_t>((position - 1) / kBlockTokens);
  if (ended_ || level > b.path.size()) return false;
  CacheObject* parent = level == 0 ? root_.get() : b.path[level - 1].get();
  b.last_state = std::max(b.last_state, position);
  b.reached = std::max(b.reached, position);
  if (!parent->linked()) return false;
  BlockTokens tail = slice_tokens(b.tokens, images_, static_cast<std::int64_t>(level) * kBlockTokens, position);
  if (tree.find_state(*parent, tail) != nullptr || tree.find_covering(*parent, tail) == nullptr) return false;
  ObjectRef state = store(*parent, ObjectKind::kState, std::move(tail), std::move(payload), std::move(sections));
  if (!state) return false;
  added_.push_back(state);
  states_.push_back(std::move(state));
  return true;
}

// Blocks from last to first, then the states in ascending order; shallower states of the path are not stamped.
void SessionImpl::stamp_path() {
  PrefixTree& tree = cache_.tree_;
  const auto stamp = [&](const ObjectRef& object) {
    if (!object->linked()) return;
    tree.stamp(*object, tree.next_stamp());
    if (cache_.disk_ == nullptr) return;
    cache_.disk_->touched(*object);
  };
  for (auto branch = branches_.rbegin(); branch != branches_.rend(); ++branch) {
    const auto used = static_cast<std::size_t>((branch->reached + kBlockTokens - 1) / kBlockTokens);
    if (branch->tail && used > branch->path.size()) stamp(branch->tail);
    for (std::size_t i = std::min(used, branch->path.size()); i-- > 0;) stamp(branch->path[i]);
  }
  std::stable_sort(states_.begin(), states_.end(),
                   [](const ObjectRef& a, const ObjectRef& b) { return a->end < b->end; });
  for (const ObjectRef& state : states_) stamp(state);
  if (cache_.disk_ == nullptr) return;
  // What could not be written when it was made gets another chance, parents first.
  for (const Branch& branch : branches_) {
    for (const ObjectRef& block : branch.path) cache_.disk_->enqueue(block);
    if (branch.tail) cache_.disk_->enqueue(branch.tail);
  }
  for (const ObjectRef& state : states_) cache_.disk_->enqueue(state);
}

void SessionImpl::finish() {
  if (ended_) return;
  ended_ = true;
  const std::lock_guard lock(cache_.mutex_);
  stamp_path();
  release();
  branches_.clear();
  root_ = nullptr;
  cache_.tree_.forget_empty_root(root_key_);
}

// A partial block that went for one of ours comes back, since it covers the state that this request resumed from. One
// without such a state is no loss: nothing resumes there.
void SessionImpl::restore_resumed_tail() {
  if (!resumed_tail_ || resumed_tail_->linked()) return;
  const CacheObject& old = *resumed_tail_;
  const auto level = static_cast<std::size_t>((old.end - 1) / kBlockTokens);
  CacheObject& parent = level == 0 ? *root_ : *branches_[0].path[level - 1];
  if (!parent.linked()) return;
  const auto stays = [this](const ObjectRef& block) {
    return std::find(added_.begin(), added_.end(), block) == added_.end();
  };
  if (PrefixTree::find_covering_if(parent, old.tokens, stays) != nullptr) return;
  store(parent, ObjectKind::kBlock, old.tokens, blocks_.back(), old.sections);
}

void SessionImpl::discard() {
  if (ended_) return;
  {
    const std::lock_guard lock(cache_.mutex_);
    restore_resumed_tail();
    for (auto it = added_.rbegin(); it != added_.rend(); ++it) cache_.tree_.remove(*it, PrefixTree::Cause::kDiscard);
  }
  finish();
}

PrefixCacheStats CacheImpl::stats() const {
  const std::lock_guard lock(mutex_);
  PrefixCacheStats stats = counters_;
  stats.blocks = tree_.count(ObjectKind::kBlock);
  stats.states = tree_.count(ObjectKind::kState);
  stats.ram_bytes = tree_.used(Tier::kRam);
  stats.disk_bytes = tree_.used(Tier::kDisk);
  stats.evicted_objects = tree_.evicted();
  if (disk_) disk_->add_to(stats);
  return stats;
}

std::vector<std::int64_t> CacheImpl::state_positions(const CacheRoot& root, std::span<const TokenId> tokens,
                                                     std::span<const ImageSpan> images) const {
  const std::lock_guard lock(mutex_);
  std::vector<std::int64_t> positions;
  const ObjectRef tree_root = tree_.find_root(root_key(root));
  if (!tree_root) return positions;
  for (const ObjectRef& state : tree_.states_on_path(tree_root, tokens, images)) positions.push_back(state->end);
  return positions;
}

Result<ObjectLocation> CacheImpl::locate(const CacheRoot& root, std::span<const TokenId> tokens,
                                         std::span<const ImageSpan> images, std::int64_t position, bool state) const {
  const std::lock_guard lock(mutex_);
  const ObjectRef tree_root = tree_.find_root(root_key(root));
  ObjectRef found;
  if (tree_root && state) {
    for (const ObjectRef& each : tree_.states_on_path(tree_root, tokens, images)) {
      if (each->end == position) found = each;
    }
  } else if (tree_root && position >= 1) {
    const TreeMatch match = tree_.match(tree_root, tokens, images);
    const auto level = static_cast<std::size_t>((position - 1) / kBlockTokens);
    if (position <= match.common) found = level < match.path.size() ? match.path[level] : match.partial;
  }
  if (!found) {
    return make_error(StatusCode::kNotFound, "no {} at position {}", state ? "state" : "block", position);
  }
  ObjectLocation location{.payload = found->payload, .path = {}};
  if (disk_ && found->on_tier(Tier::kDisk)) {
    location.path = local_store_path(disk_->directory(), object_name(found->kind, found->key));
  }
  return location;
}

Json CacheImpl::debug_tree(std::size_t limit) const {
  const std::lock_guard lock(mutex_);
  Json roots = Json::array();
  std::size_t left = limit;
  const auto short_key = [](const CacheKey& key) { return to_hex(std::span(key).first(6)); };
  for (const auto& [key, root] : tree_.roots()) {
    Json objects = Json::array();
    std::vector<const CacheObject*> stack = {root.get()};
    while (!stack.empty() && left > 0) {
      const CacheObject* node = stack.back();
      stack.pop_back();
      if (node->kind != ObjectKind::kRoot) {
        --left;
        objects.push_back({{"kind", node->kind == ObjectKind::kState ? "state" : "block"},
                           {"key", short_key(node->key)},
                           {"parent", short_key(node->parent->key)},
                           {"end", node->end},
                           {"tokens", node->tokens.size()},
                           {"ram", node->on_tier(Tier::kRam)},
                           {"disk", node->on_tier(Tier::kDisk)},
                           {"writing", node->held},
                           {"users", node->users},
                           {"stamp", node->stamp}});
      }
      for (auto it = node->blocks.rbegin(); it != node->blocks.rend(); ++it) stack.push_back(it->get());
      for (auto it = node->states.rbegin(); it != node->states.rend(); ++it) stack.push_back(it->get());
    }
    roots.push_back({{"root", short_key(key)}, {"objects", std::move(objects)}});
  }
  return {{"blocks", tree_.count(ObjectKind::kBlock)},
          {"states", tree_.count(ObjectKind::kState)},
          {"ram_bytes", tree_.used(Tier::kRam)},
          {"disk_bytes", tree_.used(Tier::kDisk)},
          {"disk", disk_               ? "on"
                   : disk_status_.ok() ? "off"
                                       : disk_status_.message()},
          {"truncated", left == 0},
          {"roots", std::move(roots)}};
}

}  // namespace

const char* to_string(MissReason reason) {
  switch (reason) {
    case MissReason::kFull:
      return "full";
    case MissReason::kCorrupt:
      return "corrupt";
    case MissReason::kEvicted:
      return "evicted";
    case MissReason::kNoState:
      return "no_state";
    case MissReason::kNothingStored:
      return "nothing_stored";
    case MissReason::kDiverges:
      return "diverges";
  }
  return "unknown";
}

Result<std::unique_ptr<PrefixCache>> PrefixCache::open(const PrefixCacheOptions& options, PayloadAllocator& allocator) {
  if (options.ram_bytes < 0 || options.snapshot_interval < 0 || options.disk.budget_bytes < 0 ||
      options.disk.write_bytes_per_second < 0) {
    return invalid_argument("prefix cache: expected sizes and limits of at least 0");
  }
  auto cache = std::make_unique<CacheImpl>(options, allocator);
  cache->open_disk();
  return std::unique_ptr<PrefixCache>(std::move(cache));
}

}  // namespace perigee
