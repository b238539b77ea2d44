// A naive restatement of spec cache.md 1.4 (index, memory, reasons) for one RAM tier: whole token prefixes as interned
// numbers, flat lists, linear searches. Slow and simple on purpose; shares no code with the index.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace perigee::oracle {

constexpr std::int64_t kBlock = 256;

struct Object {
  bool state = false;
  std::int64_t begin = 0;  // the multiple of 256 before its last token
  std::vector<std::int64_t> tokens;
  std::vector<std::int64_t> prefix;  // number of the prefix after 1, 2, ... tokens
  std::int64_t cost = 0;
  std::uint64_t stamp = 0;
  std::set<int> users;
  bool alive = true;
  bool damaged = false;
  std::int64_t end() const { return static_cast<std::int64_t>(prefix.size()); }
  std::int64_t id() const { return prefix.back(); }
  bool starts_with(const Object& other) const {
    return end() >= other.end() && prefix[other.prefix.size() - 1] == other.id();
  }
};
using Ref = std::shared_ptr<Object>;

struct Found {
  std::int64_t common = 0;
  std::int64_t restored = 0;
  std::string reason;
  std::vector<std::int64_t> plan;  // positions of states in the prompt
};

// A running request.
struct Request {
  int id = 0;
  std::vector<std::int64_t> tokens;
  std::vector<std::int64_t> prefix;
  std::int64_t prompt = 0;
  std::vector<Ref> path;
  Ref tail;
  std::vector<Ref> states;
  std::vector<Ref> added;
  Ref resumed_tail;  // the partial block under the state that it resumed from
  std::int64_t reached = 0;
};

class Oracle {
 public:
  // A partial block costs page_cost for each 64 tokens. budget 0: no limit.
  Oracle(std::int64_t page_cost, std::int64_t state_cost, std::int64_t budget, std::int64_t interval)
      : page_cost_(page_cost), state_cost_(state_cost), budget_(budget), interval_(interval) {}

  std::vector<std::int64_t> intern(int root, const std::vector<std::int64_t>& tokens, std::int64_t before = 0) {
    std::vector<std::int64_t> prefix;
    std::int64_t node = before != 0 ? before : -1 - root;
    for (const std::int64_t token : tokens) {
      std::int64_t& next = numbers_[{node, token}];
      if (next == 0) next = ++last_number_;
      prefix.push_back(node = next);
    }
    return prefix;
  }

  // `images`: [begin, end) of each image of the prompt.
  Found begin(Request& request, const std::vector<std::pair<std::int64_t, std::int64_t>>& images,
              std::int64_t system_end) {
    const std::int64_t size = request.prompt = static_cast<std::int64_t>(request.prefix.size());
    Found found;
    bool corrupt = false;
    Ref state;
    while (true) {
      found.common = 0;
      for (const Ref& block : objects_) {
        if (block->state) continue;
        std::int64_t common = 0;
        while (common < std::min(block->end(), size) && block->prefix[at(common)] == request.prefix[at(common)])
          ++common;
        if (common > block->begin) found.common = std::max(found.common, common);
      }
      state = nullptr;
      for (const Ref& each : objects_) {
        if (each->state && each->end() <= found.common && request.prefix[at(each->end() - 1)] == each->id() &&
            (!state || each->end() > state->end())) {
          state = each;
        }
      }
      Ref bad;
      if (state && state->damaged) bad = state;
      for (std::int64_t begin = 0; state && !bad && begin < state->end(); begin += kBlock) {
        const Ref block = holder(request, begin, found.common);
        if (block->damaged) bad = block;
      }
      if (!bad) break;
      corrupt = true;
      drop(bad, false);
    }
    found.restored = state ? state->end() : 0;
    for (std::int64_t begin = 0; begin + kBlock <= found.common; begin += kBlock) {
      request.path.push_back(holder(request, begin, found.common));
      request.path.back()->users.insert(request.id);
    }
    const auto whole = static_cast<std::int64_t>(request.path.size()) * kBlock;
    if (state) {
      state->users.insert(request.id);
      request.states.push_back(state);
      if (state->end() > whole) {
        request.tail = holder(request, whole, found.common);
        request.tail->users.insert(request.id);
        request.resumed_tail = request.tail;
      }
    }
    request.reached = found.restored;
    found.reason = reason(request, found, corrupt);
    bool goes_on = false;
    for (const Ref& block : objects_) {
      goes_on = goes_on ||
                (!block->state && block->end() > found.common && block->begin <= found.common &&
                 (found.common == 0 || block->prefix[at(found.common - 1)] == request.prefix[at(found.common - 1)]));
    }
    std::set<std::int64_t> middle;
    const auto propose = [&](std::int64_t p) {
      if (p <= found.restored || p >= size) return;
      for (const auto& [first, last] : images) {
        if (p > first && p < last) p = first;
      }
      middle.insert(p);
    };
    propose(system_end);
    if (goes_on && found.common - found.restored > 512) propose(found.common);
    for (std::int64_t p = interval_; interval_ > 0 && p < size; p += interval_) propose(p);
    std::int64_t last = found.restored;
    for (const std::int64_t p : middle) {
      if (p - last > 512) found.plan.push_back(last = p);
    }
    if (found.restored < size) found.plan.push_back(size);
    return found;
  }

  bool add_block(Request& request, std::int64_t end) {
    request.reached = std::max(request.reached, end);
    const std::int64_t begin = (end - 1) / kBlock * kBlock;
    if (begin != static_cast<std::int64_t>(request.path.size()) * kBlock) return false;
    if (begin > 0 && !request.path.back()->alive) return false;
    auto block = std::make_shared<Object>();
    block->begin = begin;
    block->prefix.assign(request.prefix.begin(), request.prefix.begin() + end);
    block->tokens.assign(request.tokens.begin(), request.tokens.begin() + end);
    block->cost = (end - begin + 63) / 64 * page_cost_;
    Ref covering;
    for (const Ref& each : siblings(*block)) {
      if (each->starts_with(*block) && (!covering || each->tokens < covering->tokens)) covering = each;
    }
    bool stored = false;
    if (!covering) {
      std::vector<Ref> shorter;
      std::int64_t freed = 0;
      std::int64_t freed_in_use = 0;
      for (const Ref& each : siblings(*block)) {
        if (!block->starts_with(*each)) continue;
        shorter.push_back(each);
        freed += each->cost;
        if (!each->users.empty()) freed_in_use += each->cost;
      }
      if (budget_ > 0 && in_use() - freed_in_use + block->cost > budget_) return false;
      for (const Ref& each : shorter) {
        block->users.insert(each->users.begin(), each->users.end());
        each->alive = false;
        std::erase(objects_, each);
      }
      objects_.push_back(block);
      make_room(block->cost, block);
      block->stamp = ++clock_;
      request.added.push_back(block);
      covering = block;
      stored = true;
    }
    covering->users.insert(request.id);
    if (end % kBlock == 0) {
      request.path.push_back(covering);
      request.tail = nullptr;
    } else {
      request.tail = covering;
    }
    return stored;
  }

  bool add_state(Request& request, std::int64_t end) {
    request.reached = std::max(request.reached, end);
    auto state = std::make_shared<Object>();
    state->state = true;
    state->begin = (end - 1) / kBlock * kBlock;
    state->prefix.assign(request.prefix.begin(), request.prefix.begin() + end);
    state->cost = state_cost_;
    if (state->begin > static_cast<std::int64_t>(request.path.size()) * kBlock) return false;
    if (state->begin > 0 && !request.path[at(state->begin / kBlock - 1)]->alive) return false;
    for (const Ref& each : objects_) {
      if (each->state && each->id() == state->id()) return false;
    }
    if (!covered(*state)) return false;
    if (budget_ > 0 && in_use() + state->cost > budget_) return false;
    objects_.push_back(state);
    make_room(state->cost, state);
    state->stamp = ++clock_;
    state->users.insert(request.id);
    request.added.push_back(state);
    request.states.push_back(state);
    evicted_.erase(state->id());
    return true;
  }

  void finish(Request& request) {
    const auto stamp = [&](const Ref& object) {
      if (object->alive) object->stamp = ++clock_;
    };
    const auto used = (request.reached + kBlock - 1) / kBlock;
    if (request.tail && used > static_cast<std::int64_t>(request.path.size())) stamp(request.tail);
    for (std::int64_t i = std::min<std::int64_t>(used, static_cast<std::int64_t>(request.path.size())); i-- > 0;) {
      stamp(request.path[at(i)]);
    }
    std::stable_sort(request.states.begin(), request.states.end(),
                     [](const Ref& a, const Ref& b) { return a->end() < b->end(); });
    for (const Ref& state : request.states) stamp(state);
    for (const Ref& object : objects_) object->users.erase(request.id);
  }

  void discard(Request& request) {
    const Ref& old = request.resumed_tail;
    if (old && !old->alive && !covered(*old, request.added) && (budget_ == 0 || in_use() + old->cost <= budget_)) {
      old->alive = true;
      old->users.clear();
      objects_.push_back(old);
      make_room(old->cost, old);
      old->stamp = ++clock_;
    }
    for (auto it = request.added.rbegin(); it != request.added.rend(); ++it) {
      if ((*it)->alive) drop(*it, false);
    }
    finish(request);
  }

  std::vector<std::int64_t> states_of(const std::vector<std::int64_t>& prefix) const {
    std::set<std::int64_t> ends;
    for (const Ref& each : objects_) {
      if (each->state && each->end() <= static_cast<std::int64_t>(prefix.size()) &&
          prefix[at(each->end() - 1)] == each->id()) {
        ends.insert(each->end());
      }
    }
    return {ends.begin(), ends.end()};
  }
  std::int64_t count(bool states) const {
    return std::count_if(objects_.begin(), objects_.end(), [&](const Ref& each) { return each->state == states; });
  }
  std::int64_t used() const {
    std::int64_t total = 0;
    for (const Ref& each : objects_) total += each->cost;
    return total;
  }
  const std::vector<Ref>& objects() const { return objects_; }

 private:
  static std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

  // The stored block that holds the prompt's tokens from `begin` up to `common` or its own end. Of several the first
  // that does not come before the prompt in the order of tokens, else the last that does.
  Ref holder(const Request& request, std::int64_t begin, std::int64_t common) const {
    const std::int64_t last = std::min(common, begin + kBlock);
    Ref before;
    Ref after;
    for (const Ref& block : objects_) {
      if (block->state || block->begin != begin || block->end() < last ||
          block->prefix[at(last - 1)] != request.prefix[at(last - 1)]) {
        continue;
      }
      if (last == begin + kBlock) return block;
      if (block->tokens >= request.tokens) {
        if (!after || block->tokens < after->tokens) after = block;
      } else if (!before || block->tokens > before->tokens) {
        before = block;
      }
    }
    return after ? after : before;
  }
  std::vector<Ref> siblings(const Object& object) const {
    std::vector<Ref> result;
    for (const Ref& each : objects_) {
      if (each->state || each->begin != object.begin) continue;
      if (object.begin == 0 || each->prefix[at(object.begin - 1)] == object.prefix[at(object.begin - 1)])
        result.push_back(each);
    }
    return result;
  }
  // By a block that is none of `others`.
  bool covered(const Object& object, const std::vector<Ref>& others = {}) const {
    for (const Ref& each : objects_) {
      if (!each->state && each->begin == object.begin && each->starts_with(object) &&
          std::find(others.begin(), others.end(), each) == others.end())
        return true;
    }
    return false;
  }
  std::int64_t in_use() const {
    std::int64_t total = 0;
    for (const Ref& each : objects_) total += each->users.empty() ? 0 : each->cost;
    return total;
  }
  // `fresh` is among the objects already and no victim.
  void make_room(std::int64_t cost, const Ref& fresh) {
    while (budget_ > 0 && used() > budget_) {
      Ref victim;
      for (const Ref& each : objects_) {
        if (each != fresh && each->users.empty() && (!victim || each->stamp < victim->stamp)) victim = each;
      }
      if (!victim) return;
      drop(victim, true);
    }
    (void)cost;
  }
  void drop(const Ref& gone, bool for_space) {
    std::vector<Ref> all = {gone};
    if (!gone->state) {
      for (const Ref& each : objects_) {
        if (each != gone && each->begin >= gone->end() && each->starts_with(*gone)) all.push_back(each);
      }
    }
    const auto forget = [&](const Ref& object) {
      object->alive = false;
      std::erase(objects_, object);
      if (object->state && for_space) evicted_.insert(object->id());
    };
    for (const Ref& each : all) forget(each);
    if (gone->state) return;
    std::vector<Ref> bare;
    for (const Ref& each : objects_) {
      if (each->state && each->begin == gone->begin && gone->starts_with(*each) && !covered(*each))
        bare.push_back(each);
    }
    for (const Ref& each : bare) forget(each);
  }
  std::string reason(const Request& request, const Found& found, bool corrupt) const {
    if (found.restored == request.prompt) return "full";
    if (corrupt) return "corrupt";
    for (std::int64_t p = found.restored + 1; p <= request.prompt; ++p) {
      if (evicted_.contains(request.prefix[at(p - 1)])) return "evicted";
    }
    if (found.restored < found.common) return "no_state";
    return found.common == 0 ? "nothing_stored" : "diverges";
  }

  std::int64_t page_cost_;
  std::int64_t state_cost_;
  std::int64_t budget_;
  std::int64_t interval_;
  std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> numbers_;
  std::int64_t last_number_ = 0;
  std::vector<Ref> objects_;
  std::set<std::int64_t> evicted_;
  std::uint64_t clock_ = 0;
};

}  // namespace perigee::oracle
