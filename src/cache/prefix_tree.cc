#include "cache/prefix_tree.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace perigee {
namespace {

constexpr std::size_t kRam = 0;
constexpr std::size_t kDisk = 1;

// Calls f with each sibling that is a head of `tokens` (all of it included), longest first, until f says false.
// Between a head and its continuation other siblings may stand, so each step looks again below the common part.
template <typename F>
void for_each_head(const Siblings& siblings, BlockTokens tokens, F&& f) {
  while (tokens.size() > 0) {
    auto it = siblings.upper_bound(BlockTokensView(tokens));
    if (it == siblings.begin()) return;
    --it;
    std::int64_t common = compare_tokens((*it)->tokens, tokens).common;
    if (common == (*it)->tokens.size()) {
      if (!f(*it)) return;
      --common;
    }
    tokens = tokens.head(common);
  }
}

}  // namespace

bool TokenOrder::operator()(const ObjectRef& a, const ObjectRef& b) const {
  return compare_tokens(a->tokens, b->tokens).order < 0;
}
bool TokenOrder::operator()(const ObjectRef& a, const BlockTokensView& b) const {
  return compare_tokens(a->tokens, b).order < 0;
}
bool TokenOrder::operator()(const BlockTokensView& a, const ObjectRef& b) const {
  return compare_tokens(a, b->tokens).order < 0;
}

std::size_t EvictedStates::KeyHash::operator()(const CacheKey& key) const {
  std::size_t hash = 0;
  std::memcpy(&hash, key.data(), sizeof hash);
  return hash;
}

void EvictedStates::remember(const CacheKey& parent, std::int64_t tail, const CacheKey& key) {
  forget(parent, key);
  entries_.emplace(parent, Entry{.tail = tail, .key = key, .serial = next_serial_});
  order_.emplace_back(parent, next_serial_++);
  while (order_.size() > capacity_) {
    const auto [oldest_parent, serial] = order_.front();
    order_.pop_front();
    auto [it, end] = entries_.equal_range(oldest_parent);
    it = std::find_if(it, end, [serial = serial](const auto& entry) { return entry.second.serial == serial; });
    if (it != end) entries_.erase(it);
  }
}

void EvictedStates::forget(const CacheKey& parent, const CacheKey& key) {
  auto [it, end] = entries_.equal_range(parent);
  it = std::find_if(it, end, [&](const auto& entry) { return entry.second.key == key; });
  if (it != end) entries_.erase(it);
}

bool EvictedStates::any_past(std::int64_t restored, const CacheKey& root, std::span<const CacheKey> keys,
                             std::span<const TokenId> tokens, std::span<const ImageSpan> images) const {
  const auto size = static_cast<std::int64_t>(tokens.size());
  for (std::int64_t begin = restored / kBlockTokens * kBlockTokens; begin < size; begin += kBlockTokens) {
    const CacheKey& parent = begin == 0 ? root : keys[static_cast<std::size_t>(begin / kBlockTokens - 1)];
    const auto [first, last] = entries_.equal_range(parent);
    for (auto it = first; it != last; ++it) {
      const std::int64_t position = begin + it->second.tail;
      if (position <= restored || position > size) continue;
      if (block_key(parent, slice_tokens(tokens, images, begin, position)) == it->second.key) return true;
    }
  }
  return false;
}

PrefixTree::PrefixTree(Options options) : options_(std::move(options)), evicted_(options_.evicted_memory) {}

PrefixTree::~PrefixTree() {
  // One by one: a chain of a million tokens would be freed by a deep recursion.
  std::vector<ObjectRef> all;
  for (auto& [key, root] : roots_) collect_below(root, all);
  for (const ObjectRef& object : all) {
    object->blocks.clear();
    object->states.clear();
    object->parent = nullptr;
  }
}

ObjectRef PrefixTree::root(const CacheKey& key) {
  ObjectRef& root = roots_[key];
  if (root == nullptr) {
    root = std::make_shared<CacheObject>();
    root->key = key;
  }
  return root;
}

ObjectRef PrefixTree::find_root(const CacheKey& key) const {
  const auto it = roots_.find(key);
  return it == roots_.end() ? nullptr : it->second;
}

void PrefixTree::forget_empty_root(const CacheKey& key) {
  const auto it = roots_.find(key);
  if (it == roots_.end() || !it->second->blocks.empty() || it->second.use_count() > 1) return;
  roots_.erase(it);
}

TreeMatch PrefixTree::match(const ObjectRef& root, std::span<const TokenId> tokens,
                            std::span<const ImageSpan> images) const {
  TreeMatch result;
  const auto size = static_cast<std::int64_t>(tokens.size());
  const CacheObject* node = root.get();
  std::int64_t begin = 0;
  while (true) {
    if (begin == size) {
      result.goes_on = !node->blocks.empty();
      break;
    }
    const BlockTokens query = slice_tokens(tokens, images, begin, std::min(size, begin + kBlockTokens));
    const auto after = node->blocks.lower_bound(BlockTokensView(query));
    std::int64_t best = 0;
    const auto consider = [&](const ObjectRef& block) {
      const std::int64_t common = compare_tokens(block->tokens, query).common;
      if (common < best) return;
      const bool goes_on = block->tokens.size() > common;
      result.goes_on = common > best ? goes_on : result.goes_on || goes_on;
      if (common > best) result.partial = block;
      best = common;
    };
    if (after != node->blocks.end()) consider(*after);
    if (after != node->blocks.begin()) consider(*std::prev(after));
    result.common = begin + best;
    if (best < kBlockTokens) break;
    result.path.push_back(std::move(result.partial));
    result.partial = nullptr;
    result.goes_on = false;
    node = result.path.back().get();
    begin += kBlockTokens;
  }
  // The deepest state: from the last level upwards.
  for (std::int64_t level = static_cast<std::int64_t>(result.path.size()); level >= 0 && !result.state; --level) {
    const CacheObject& parent = level == 0 ? *root : *result.path[static_cast<std::size_t>(level - 1)];
    const std::int64_t end = std::min(result.common, (level + 1) * kBlockTokens);
    if (parent.states.empty() || end <= level * kBlockTokens) continue;
    for_each_head(parent.states, slice_tokens(tokens, images, level * kBlockTokens, end), [&](const ObjectRef& state) {
      result.state = state;
      return false;
    });
  }
  return result;
}

std::vector<ObjectRef> PrefixTree::states_on_path(const ObjectRef& root, std::span<const TokenId> tokens,
                                                  std::span<const ImageSpan> images) const {
  const TreeMatch found = match(root, tokens, images);
  std::vector<ObjectRef> result;
  for (std::size_t level = 0; level <= found.path.size(); ++level) {
    const CacheObject& parent = level == 0 ? *root : *found.path[level - 1];
    const auto begin = static_cast<std::int64_t>(level) * kBlockTokens;
    const std::int64_t end = std::min(found.common, begin + kBlockTokens);
    if (end <= begin) break;
    std::vector<ObjectRef> here;
    for_each_head(parent.states, slice_tokens(tokens, images, begin, end), [&](const ObjectRef& state) {
      here.push_back(state);
      return true;
    });
    result.insert(result.end(), here.rbegin(), here.rend());
  }
  return result;
}

ObjectRef PrefixTree::find_covering(const CacheObject& parent, const BlockTokensView& tokens) const {
  return find_covering_if(parent, tokens, [](const ObjectRef&) { return true; });
}

ObjectRef PrefixTree::find_state(const CacheObject& parent, const BlockTokensView& tail) const {
  const auto it = parent.states.find(tail);
  return it == parent.states.end() ? nullptr : *it;
}

bool PrefixTree::covered_on_tier(const CacheObject& state, Tier tier) const {
  return find_covering_if(*state.parent, state.tokens,
                          [tier](const ObjectRef& block) { return block->on_tier(tier); }) != nullptr;
}

std::vector<ObjectRef> PrefixTree::superseded_by(const CacheObject& block, Tier tier) const {
  std::vector<ObjectRef> result;
  if (block.kind != ObjectKind::kBlock || block.tokens.size() < 2) return result;
  for_each_head(block.parent->blocks, block.tokens.head(block.tokens.size() - 1), [&](const ObjectRef& partial) {
    if (tier == Tier::kDisk || partial->on_tier(tier) || partial->held) result.push_back(partial);
    return true;
  });
  return result;
}

std::vector<ObjectRef> PrefixTree::states_within(const CacheObject& parent, const BlockTokensView& tokens) const {
  std::vector<ObjectRef> result;
  if (parent.states.empty()) return result;
  for_each_head(parent.states, BlockTokens(tokens), [&](const ObjectRef& state) {
    result.push_back(state);
    return true;
  });
  return result;
}

ObjectRef PrefixTree::add_held(CacheObject& parent, ObjectKind kind, BlockTokens tokens, const CacheKey& key,
                               std::array<std::int64_t, kTierCount> cost) {
  auto object = std::make_shared<CacheObject>();
  object->kind = kind;
  object->key = key;
  object->end = parent.end + tokens.size();
  object->tokens = std::move(tokens);
  object->cost = cost;
  object->parent = &parent;
  object->stamp = next_stamp();
  object->held = true;
  (kind == ObjectKind::kBlock ? parent.blocks : parent.states).insert(object);
  ++counts_[static_cast<std::size_t>(kind)];
  return object;
}

ObjectRef PrefixTree::add(CacheObject& parent, ObjectKind kind, BlockTokens tokens, const CacheKey& key,
                          std::array<std::int64_t, kTierCount> cost, Tier tier) {
  const auto t = static_cast<std::size_t>(tier);
  if (options_.budget[t] > 0 && cost[t] > options_.budget[t]) return nullptr;
  // Held while room is made: a victim's sweep must not take it for something that is on no tier.
  ObjectRef object = add_held(parent, kind, std::move(tokens), key, cost);
  if (!admit(object, tier)) {
    unlink(object, Cause::kDiscard);
    return nullptr;
  }
  object->held = false;
  if (kind == ObjectKind::kState) evicted_.forget(parent.key, key);
  return object;
}

void PrefixTree::hold(CacheObject& object) {
  object.held = true;
  if (object.kind == ObjectKind::kState) evicted_.forget(object.parent->key, object.key);
}

bool PrefixTree::admit(const ObjectRef& object, Tier tier) {
  const auto t = static_cast<std::size_t>(tier);
  if (object->on[t]) return true;
  const std::vector<ObjectRef> partials = superseded_by(*object, tier);
  std::int64_t freed_pinned = 0;
  for (const ObjectRef& partial : partials) {
    if (partial->on[t] && partial->users > 0) freed_pinned += partial->cost[t];
  }
  const std::int64_t budget = options_.budget[t];
  if (budget > 0 && pinned_[t] - freed_pinned + object->cost[t] > budget) return false;
  // It enters before anything leaves, so that a state which it covers stays covered, and pinned, so that it is no
  // victim.
  pin(*object);
  enter(*object, t);
  for (const ObjectRef& partial : partials) supersede(partial, object, tier);
  const bool fits = make_room(0, tier);
  unpin(object);
  if (!fits) leave(*object, t);
  return fits;
}

bool PrefixTree::make_room(std::int64_t bytes, Tier tier) {
  const auto t = static_cast<std::size_t>(tier);
  if (options_.budget[t] == 0) return true;
  while (used_[t] + bytes > options_.budget[t]) {
    if (drop_oldest(tier) == nullptr) return false;
  }
  return true;
}

void PrefixTree::set_budget(Tier tier, std::int64_t bytes) {
  options_.budget[static_cast<std::size_t>(tier)] = bytes;
  make_room(0, tier);
}

ObjectRef PrefixTree::drop_oldest(Tier tier) {
  const auto& lru = lru_[static_cast<std::size_t>(tier)];
  if (lru.empty()) return nullptr;
  CacheObject* victim = lru.begin()->second;
  Siblings& siblings = victim->kind == ObjectKind::kBlock ? victim->parent->blocks : victim->parent->states;
  ObjectRef object = *siblings.find(BlockTokensView(victim->tokens));
  drop(object, tier, Cause::kSpace);
  return object;
}

void PrefixTree::enter(CacheObject& object, std::size_t tier) {
  unindex(object);
  object.on[tier] = true;
  used_[tier] += object.cost[tier];
  if (object.users > 0) pinned_[tier] += object.cost[tier];
  index(object);
}

void PrefixTree::leave(CacheObject& object, std::size_t tier) {
  if (!object.on[tier]) return;
  unindex(object);
  object.on[tier] = false;
  used_[tier] -= object.cost[tier];
  if (object.users > 0) pinned_[tier] -= object.cost[tier];
  index(object);
  if (tier == kRam && !object.held) object.payload = nullptr;
  if (tier == kDisk && options_.left_disk) options_.left_disk(object);
}

void PrefixTree::index(CacheObject& object) {
  if (object.users > 0) return;
  for (std::size_t t = 0; t < kTierCount; ++t) {
    if (object.on[t]) lru_[t].emplace(object.stamp, &object);
  }
}

void PrefixTree::unindex(CacheObject& object) {
  if (object.users > 0) return;
  for (std::size_t t = 0; t < kTierCount; ++t) {
    if (object.on[t]) lru_[t].erase(object.stamp);
  }
}

void PrefixTree::pin(CacheObject& object) {
  unindex(object);
  if (object.users++ == 0) {
    for (std::size_t t = 0; t < kTierCount; ++t) {
      if (object.on[t]) pinned_[t] += object.cost[t];
    }
  }
}

void PrefixTree::unpin(const ObjectRef& object) {
  CacheObject* target = object.get();
  while (target->successor != nullptr) target = target->successor.get();
  if (--target->users > 0) return;
  for (std::size_t t = 0; t < kTierCount; ++t) {
    if (target->on[t]) pinned_[t] -= target->cost[t];
  }
  index(*target);
}

void PrefixTree::stamp(CacheObject& object, std::uint64_t stamp) {
  unindex(object);
  object.stamp = stamp;
  index(object);
}

void PrefixTree::supersede(const ObjectRef& partial, const ObjectRef& block, Tier tier) {
  // What is on disk stays until the longer block is there too: a crash in between must not lose it.
  leave(*partial, kRam);
  if (tier == Tier::kDisk) leave(*partial, kDisk);
  if (!partial->on[kDisk]) partial->held = false;
  if (partial->on[kRam] || partial->on[kDisk]) return;
  // Its pins pass on to the block that covers what it covered.
  const std::int32_t users = std::exchange(partial->users, 0);
  for (std::int32_t i = 0; i < users; ++i) pin(*block);
  unlink(partial, Cause::kDiscard);
  partial->successor = block;
}

void PrefixTree::collect_below(const ObjectRef& object, std::vector<ObjectRef>& out) {
  out.push_back(object);
  for (std::size_t next = out.size() - 1; next < out.size(); ++next) {
    // Indices, not iterators: the vector grows.
    const ObjectRef current = out[next];
    out.insert(out.end(), current->states.begin(), current->states.end());
    out.insert(out.end(), current->blocks.begin(), current->blocks.end());
  }
}

void PrefixTree::drop(const ObjectRef& object, Tier tier, Cause cause) {
  const auto t = static_cast<std::size_t>(tier);
  std::vector<ObjectRef> below;
  collect_below(object, below);
  std::vector<ObjectRef> uncovered;
  if (object->kind == ObjectKind::kBlock) uncovered = states_within(*object->parent, object->tokens);
  for (const ObjectRef& each : below) leave(*each, t);
  for (const ObjectRef& state : uncovered) {
    if (!covered_on_tier(*state, tier)) leave(*state, t);
  }
  if (!object->on[kRam] && !object->on[kDisk] && !object->held) {
    remove(object, cause);
  } else {
    for (auto it = below.rbegin(); it != below.rend(); ++it) {
      const CacheObject& each = **it;
      if (each.linked() && !each.on[kRam] && !each.on[kDisk] && !each.held) remove(*it, cause);
    }
  }
  for (const ObjectRef& state : uncovered) {
    if (state->linked() && !state->on[kRam] && !state->on[kDisk] && !state->held) remove(state, cause);
  }
}

void PrefixTree::remove(const ObjectRef& object, Cause cause) {
  if (!object->linked()) return;
  std::vector<ObjectRef> gone;
  collect_below(object, gone);
  CacheObject* parent = object->parent;
  const std::vector<ObjectRef> states =
      object->kind == ObjectKind::kBlock ? states_within(*parent, object->tokens) : std::vector<ObjectRef>();
  for (auto it = gone.rbegin(); it != gone.rend(); ++it) unlink(*it, cause);
  for (const ObjectRef& state : states) {
    if (find_covering(*parent, state->tokens) == nullptr) unlink(state, cause);
  }
}

void PrefixTree::unlink(const ObjectRef& object, Cause cause) {
  if (!object->linked() || object->parent == nullptr) return;
  object->held = false;
  leave(*object, kRam);
  leave(*object, kDisk);
  object->payload = nullptr;
  if (cause == Cause::kSpace) {
    ++evicted_count_;
    if (object->kind == ObjectKind::kState) {
      evicted_.remember(object->parent->key, object->tokens.size(), object->key);
    }
  }
  --counts_[static_cast<std::size_t>(object->kind)];
  const ObjectRef keep = object;  // the caller's reference may be the sibling set's own
  (object->kind == ObjectKind::kBlock ? object->parent->blocks : object->parent->states).erase(object);
  keep->parent = nullptr;
}

void PrefixTree::release_hold(const ObjectRef& object) {
  if (!object->held) return;
  object->held = false;
  if (!object->on[kRam]) object->payload = nullptr;
  if (object->linked() && !object->on[kRam] && !object->on[kDisk]) remove(object, Cause::kSpace);
}

}  // namespace perigee
