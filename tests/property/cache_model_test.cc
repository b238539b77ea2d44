// Model checking of the prefix cache: random chats, branches, edits, cancels, NaN endings, damage, byte limits and
// several requests at once, each answer compared with the oracle's, and restored bytes with a cold run's.
// PERIGEE_CACHE_OPERATIONS sets the number of requests (default 6,000; the long run takes 200,000).
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <random>

#include "cache/prefix_cache.h"
#include "cache/toy_model.h"
#include "cache_oracle.h"

namespace perigee {
namespace {

constexpr std::int64_t kPageCost = 3;
constexpr std::int64_t kStateCost = 40;

struct Text {
  std::vector<TokenId> tokens;
  std::vector<ImageSpan> images;
};

int operations() {
  const char* text = std::getenv("PERIGEE_CACHE_OPERATIONS");
  return text != nullptr ? std::atoi(text) : 6000;
}

Sha256Digest picture(int number) {
  Sha256Digest digest{};
  digest[0] = static_cast<std::byte>(number + 1);
  return digest;
}

// Tokens as numbers that tell image embeddings from text and sort like the index, for the oracle.
std::vector<std::int64_t> numbers(const Text& text) {
  std::vector<std::int64_t> result;
  for (const TokenId token : text.tokens) result.push_back(token * 1'000'000'000LL);
  for (const ImageSpan& span : text.images) {
    for (std::int64_t i = 0; i < span.length; ++i) {
      result[static_cast<std::size_t>(span.begin + i)] += (1 + static_cast<int>(span.digest[0])) * 100'000 + i;
    }
  }
  return result;
}

class ModelCheck {
 public:
  ModelCheck(std::uint64_t seed, std::int64_t budget, std::int64_t interval, bool disk)
      : random_(seed),
        disk_(disk),
        allocator_(kPageCost, kStateCost),
        oracle_(kPageCost, kStateCost, disk ? 0 : budget, interval) {
    spdlog::set_level(spdlog::level::off);  // it damages objects on purpose
    options_.ram_bytes = budget;
    options_.snapshot_interval = interval;
    if (disk) {
      const std::filesystem::path shared_memory = "/dev/shm";
      const auto base =
          std::filesystem::is_directory(shared_memory) ? shared_memory : std::filesystem::temp_directory_path();
      directory_ = (base / "perigee-model-XXXXXX").string();
      if (::mkdtemp(directory_.data()) == nullptr) std::abort();
      options_.disk.directory = directory_;
      options_.disk.write_bytes_per_day = 0;
    }
    open();
  }
  ~ModelCheck() {
    running_.clear();
    cache_ = nullptr;
    if (disk_) std::filesystem::remove_all(directory_);
  }

  void run(int count) {
    for (int i = 0; i < count && !::testing::Test::HasFailure(); ++i) {
      SCOPED_TRACE(fmt::format("operation {}", i));
      const int what = pick(100);
      if (what < 4 && !disk_) {
        damage();
      } else if (what < 6 && disk_ && running_.empty()) {
        open();
      } else if (!running_.empty() && (running_.size() >= 3 || pick(2) == 0)) {
        end(static_cast<std::size_t>(pick(static_cast<int>(running_.size()))));
      } else {
        start();
      }
      if (disk_) cache_->flush();
      const PrefixCacheStats stats = cache_->stats();
      ASSERT_EQ(stats.blocks, oracle_.count(false));
      ASSERT_EQ(stats.states, oracle_.count(true));
      if (!disk_) {
        ASSERT_EQ(stats.ram_bytes, oracle_.used());
      }
      ASSERT_TRUE(options_.ram_bytes == 0 || stats.ram_bytes <= options_.ram_bytes);
    }
    while (!running_.empty() && !::testing::Test::HasFailure()) end(0);
  }

 private:
  struct Running {
    std::unique_ptr<ToyRequest> real;
    oracle::Request model;
    Text text;
    CacheRoot root;
    int root_number = 0;
  };

  int pick(int below) { return static_cast<int>(random_() % static_cast<std::uint64_t>(below)); }

  void open() {
    cache_ = nullptr;
    auto cache = PrefixCache::open(options_, allocator_);
    ASSERT_TRUE(cache.ok());
    cache_ = std::move(*cache);
    ASSERT_TRUE(cache_->disk_status().ok()) << cache_->disk_status().message();
  }

  std::int64_t some_length() {
    switch (pick(5)) {
      case 0:
        return 1 + pick(20);
      case 1:
        return 256 * (1 + pick(4));
      case 2:
        return 254 + pick(5);
      default:
        return 1 + pick(900);
    }
  }

  void append_run(Text& text) {
    // Few streams, so that texts agree for a while and part anywhere.
    const TokenId stream = (1 + pick(4)) * 100'000;
    for (std::int64_t i = some_length(); i > 0; --i)
      text.tokens.push_back(stream + static_cast<TokenId>(text.tokens.size()));
  }

  Text some_prompt() {
    Text text;
    if (!pool_.empty() && pick(10) != 0) {
      text = pool_[static_cast<std::size_t>(pick(static_cast<int>(pool_.size())))];
      auto cut = static_cast<std::int64_t>(text.tokens.size());
      if (pick(3) == 0) cut = pick(static_cast<int>(cut)) + 1;
      if (pick(4) == 0) cut = std::max<std::int64_t>(1, cut / 256 * 256);
      for (const ImageSpan& span : text.images) {
        if (cut > span.begin && cut < span.begin + span.length) cut = span.begin;
      }
      text.tokens.resize(static_cast<std::size_t>(cut));
      std::erase_if(text.images, [&](const ImageSpan& span) { return span.begin >= cut; });
    }
    if (text.tokens.empty() || (pick(4) != 0 && text.tokens.size() < 4000)) append_run(text);
    if (pick(6) == 0) {
      const std::int64_t length = pick(2) == 0 ? 40 : 300;
      text.images.push_back(
          {.begin = static_cast<std::int64_t>(text.tokens.size()), .length = length, .digest = picture(pick(2))});
      text.tokens.insert(text.tokens.end(), static_cast<std::size_t>(length), 7);
      append_run(text);
    }
    return text;
  }

  void start() {
    Running run;
    run.root_number = pick(8) == 0 ? 1 : 0;
    run.root.cache_salt = run.root_number == 0 ? "" : "other";
    run.text = some_prompt();
    run.model.id = ++next_request_;
    run.model.tokens = numbers(run.text);
    run.model.prefix = oracle_.intern(run.root_number, run.model.tokens);
    const auto size = static_cast<std::int64_t>(run.text.tokens.size());
    const std::int64_t system_end = pick(3) == 0 ? pick(static_cast<int>(size)) : 0;
    std::vector<std::pair<std::int64_t, std::int64_t>> images;
    for (const ImageSpan& span : run.text.images) images.emplace_back(span.begin, span.begin + span.length);
    const oracle::Found expected = oracle_.begin(run.model, images, system_end);
    run.real =
        std::make_unique<ToyRequest>(*cache_, allocator_, run.root, run.text.tokens, run.text.images, system_end);
    const CacheLookup& found = run.real->lookup();
    ASSERT_EQ(found.common_tokens, expected.common);
    ASSERT_EQ(found.restored_tokens, expected.restored);
    ASSERT_EQ(to_string(found.reason), expected.reason);
    ASSERT_EQ(run.real->session().snapshot_positions(), expected.plan);
    ASSERT_TRUE(run.real->restored_right());
    const std::int64_t stop =
        pick(8) == 0 ? expected.restored + pick(static_cast<int>(size - expected.restored + 1)) : -1;
    run.real->prefill(stop);
    std::vector<std::int64_t> taken;
    const std::int64_t end = stop < 0 ? size : stop;
    std::int64_t at = expected.restored;
    std::int64_t last = expected.restored;
    for (const std::int64_t position : expected.plan) {
      if (position > end) break;
      compute(run.model, at, position);
      if (oracle_.add_state(run.model, position)) taken.push_back(position);
      last = position;
    }
    compute(run.model, at, end);
    const bool inside = std::any_of(images.begin(), images.end(),
                                    [&](const auto& span) { return end > span.first && end < span.second; });
    if (end < size && end - last > 512 && !inside && oracle_.add_state(run.model, end)) taken.push_back(end);
    ASSERT_EQ(run.real->taken(), taken);
    if (stop >= 0 && stop < size) {
      finish(run, /*discarded=*/false);
    } else {
      running_.push_back(std::move(run));
    }
  }

  void compute(oracle::Request& request, std::int64_t& from, std::int64_t to) {
    for (std::int64_t begin = from / 256 * 256; begin < to; begin += 256)
      oracle_.add_block(request, std::min(begin + 256, to));
    from = to;
  }

  void end(std::size_t index) {
    Running run = std::move(running_[index]);
    running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(index));
    // NaN endings only where no other request runs: what it added may be in use by the others.
    if (running_.empty() && pick(6) == 0) {
      finish(run, /*discarded=*/true);
      return;
    }
    if (pick(4) != 0) {
      Text answer;
      append_run(answer);
      const std::size_t before = run.real->taken().size();
      run.real->generate(0, answer.tokens);
      std::vector<std::int64_t> fed = numbers(answer);
      fed.pop_back();
      run.model.tokens.insert(run.model.tokens.end(), fed.begin(), fed.end());
      const std::vector<std::int64_t> more = oracle_.intern(run.root_number, fed, run.model.prefix.back());
      run.model.prefix.insert(run.model.prefix.end(), more.begin(), more.end());
      const auto stop = static_cast<std::int64_t>(run.model.prefix.size());
      std::int64_t at = run.model.prompt;
      compute(run.model, at, stop);
      const bool stored = !fed.empty() && oracle_.add_state(run.model, stop);
      ASSERT_EQ(run.real->taken().size() - before, stored ? 1U : 0U);
      run.text.tokens.insert(run.text.tokens.end(), answer.tokens.begin(), answer.tokens.end());
    }
    finish(run, /*discarded=*/false);
  }

  void finish(Running& run, bool discarded) {
    if (discarded) {
      run.real->discard();
      oracle_.discard(run.model);
    } else {
      run.real->finish();
      oracle_.finish(run.model);
    }
    ASSERT_EQ(cache_->state_positions(run.root, run.real->tokens(), run.text.images),
              oracle_.states_of(run.model.prefix));
    if (pool_.size() < 40) {
      pool_.push_back(run.text);
    } else {
      pool_[static_cast<std::size_t>(pick(40))] = run.text;
    }
    roots_[run.root_number] = run.root;
  }

  // Flips a bit of a stored object that some pooled text leads to.
  void damage() {
    if (pool_.empty() || !running_.empty()) return;
    const Text& text = pool_[static_cast<std::size_t>(pick(static_cast<int>(pool_.size())))];
    const int root_number = pick(2);
    const std::vector<std::int64_t> prefix = oracle_.intern(root_number, numbers(text));
    CacheRoot root;
    root.cache_salt = root_number == 0 ? "" : "other";
    const bool state = pick(2) == 0;
    for (const oracle::Ref& object : oracle_.objects()) {
      if (object->state != state || object->end() > static_cast<std::int64_t>(prefix.size()) || object->damaged)
        continue;
      if (prefix[static_cast<std::size_t>(object->end() - 1)] != object->id() || pick(3) != 0) continue;
      const auto found = cache_->locate(root, text.tokens, text.images, object->end(), state);
      ASSERT_TRUE(found.ok()) << found.status().message();
      const auto* payload = dynamic_cast<const ToyPayload*>(found->payload.get());
      // Of several blocks with this head the index may name another; those are left alone.
      if (!state && static_cast<std::int64_t>(payload->words().size()) != object->end() - object->begin) continue;
      const_cast<ToyPayload*>(payload)->mutable_words()[0] ^= 1;
      object->damaged = true;
      return;
    }
  }

  std::mt19937_64 random_;
  bool disk_;
  std::string directory_;
  PrefixCacheOptions options_;
  ToyAllocator allocator_;
  oracle::Oracle oracle_;
  std::unique_ptr<PrefixCache> cache_;
  std::vector<Text> pool_;
  std::vector<Running> running_;
  std::map<int, CacheRoot> roots_;
  int next_request_ = 0;
};

// `count` operations in pieces, each with a seed and a cache of its own: the oracle searches everything that it has
// seen, so one long run would spend its time there.
template <typename Make>
void check_in_pieces(int count, int pieces, Make make) {
  constexpr int kLongest = 2000;
  pieces = std::max(pieces, (count + kLongest - 1) / kLongest);
  for (int seed = 1; seed <= pieces; ++seed) {
    SCOPED_TRACE(seed);
    make(static_cast<std::uint64_t>(seed)).run(count / pieces);
    if (::testing::Test::HasFailure()) return;
  }
}

std::int64_t interval_of(std::uint64_t seed) {
  return seed % 2 == 0 ? 1024 : 0;
}

TEST(CacheModel, WithoutALimitEveryAnswerIsTheOracles) {
  check_in_pieces(operations() / 3, 4,
                  [](std::uint64_t seed) { return ModelCheck(seed, 0, interval_of(seed), false); });
}

TEST(CacheModel, WithAByteLimitEveryAnswerIsTheOracles) {
  check_in_pieces(operations() * 2 / 3, 8, [](std::uint64_t seed) {
    return ModelCheck(seed, 260 + static_cast<std::int64_t>((seed - 1) % 8) * 60, interval_of(seed), false);
  });
}

// RAM holds almost nothing; the disk has everything, over restarts too.
TEST(CacheModel, OnDiskTheCacheIsAnUnlimitedOne) {
  check_in_pieces(operations() / 20, 1, [](std::uint64_t seed) { return ModelCheck(seed, 300, 1024, true); });
}

}  // namespace
}  // namespace perigee
