// The prefix cache as the engine uses it: finds and restores the deepest usable position of a prompt, says where to
// take states, and keeps what a request made (spec cache.md 1.4).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "cache/keys.h"
#include "cache/payload.h"

namespace perigee {

struct DiskTierOptions {
  std::string directory;                    // empty: no disk tier
  std::int64_t budget_bytes = 0;            // 0: no limit
  std::int64_t write_bytes_per_day = -1;    // -1: a twentieth of the file system's size (docs/cache.md), 0: no limit
  std::int64_t write_bytes_per_second = 0;  // 0: no cap
  std::int64_t queue_bytes = std::int64_t{2} << 30;  // objects that wait to be written, beyond the RAM budget
};

struct PrefixCacheOptions {
  std::int64_t ram_bytes = 0;              // 0: no limit
  std::int64_t snapshot_interval = 32768;  // rule (5); 0: off
  bool branch_states = true;               // rule (4); off only to measure it
  DiskTierOptions disk;
};

enum class MissReason : std::uint8_t { kFull, kCorrupt, kEvicted, kNoState, kNothingStored, kDiverges };
const char* to_string(MissReason reason);

struct CacheLookup {
  std::int64_t prompt_tokens = 0;    // N
  std::int64_t common_tokens = 0;    // L
  std::int64_t whole_blocks = 0;     // floor(L / 256)
  std::int64_t restored_tokens = 0;  // p
  MissReason reason = MissReason::kNothingStored;
};

struct PrefixCacheStats {
  std::int64_t lookups = 0;
  std::int64_t prompt_tokens = 0;
  std::int64_t restored_tokens = 0;
  std::int64_t blocks = 0;  // on any tier
  std::int64_t states = 0;
  std::int64_t ram_bytes = 0;
  std::int64_t disk_bytes = 0;
  std::int64_t evicted_objects = 0;  // gone from the last tier for space
  std::int64_t corrupt_objects = 0;  // failed a check at a restore or at the start
  std::int64_t disk_restores = 0;    // objects read back
  std::int64_t disk_written_objects = 0;
  std::int64_t disk_written_bytes = 0;
  std::int64_t disk_skipped_limit = 0;  // stayed in RAM: daily limit, or no room on the disk tier
  std::int64_t disk_skipped_queue = 0;  // stayed in RAM: the queue was full
  std::int64_t disk_failed_writes = 0;
};

// One request, from its look-up to its end. Used by one thread at a time. Positions are counts of tokens.
//
// Tokens: branch 0 starts as the prompt; extend() appends what is fed after it (the last sampled id is never fed).
// A branch b > 0 starts as the prompt too, at its first use. Blocks of a branch are added in ascending order,
// computed from p on; a block that is stored already is not stored again.
class CacheSession {
 public:
  virtual ~CacheSession() = default;  // ends the request as finish() does

  virtual const CacheLookup& lookup() const = 0;
  // Payloads of the blocks that cover [0, p); of the last one only the first p % 256 tokens are meant (all when
  // that is 0). Rows past them belong to another continuation.
  virtual const std::vector<PayloadRef>& blocks() const = 0;
  // The state at p; null when p is 0.
  virtual const PayloadRef& state() const = 0;
  // Where the prefill must stop to take a state, ascending, all > p; the last is N. Empty when p = N.
  virtual const std::vector<std::int64_t>& snapshot_positions() const = 0;

  virtual void extend(int branch, std::span<const TokenId> tokens) = 0;
  // Is the block that ends at `end` (a multiple of 256: whole; else partial) not covered yet? Lets a caller skip the
  // copy of a partial page.
  virtual bool wants_block(int branch, std::int64_t end) = 0;
  // Stores the block that ends at `end` and begins at the multiple of 256 before it. Visible at once. False: it is
  // covered already, does not fit, or a block before it was not stored.
  virtual bool add_block(int branch, std::int64_t end, PayloadRef payload) = 0;
  // Stores the state at `position`; the block that covers its last token comes first. False: as above.
  virtual bool add_state(int branch, std::int64_t position, PayloadRef payload) = 0;
  // Rule (6) for a request that stops at `position` before its end.
  virtual bool wants_state_on_cancel(int branch, std::int64_t position) = 0;

  // The request ended: stamps what it used and lets go of it.
  virtual void finish() = 0;
  // The NaN guard ended it: what it added is removed from every tier.
  virtual void discard() = 0;
};

// Where an object lies; for tests that damage it and for people who look.
struct ObjectLocation {
  PayloadRef payload;  // null: not in RAM
  std::string path;    // empty: not on disk
};

// Thread-safe. Sessions must end before the cache.
class PrefixCache {
 public:
  // `allocator` outlives the cache. A disk tier that cannot be opened (another owner, bad directory) is no error: the
  // cache runs without it and `disk_status()` says why.
  static Result<std::unique_ptr<PrefixCache>> open(const PrefixCacheOptions& options, PayloadAllocator& allocator);
  virtual ~PrefixCache() = default;  // writes what is queued

  // Matches, restores and verifies. Reads the disk, so call it off the thread that runs steps where that matters.
  // `images` ascending and apart, inside the prompt; `system_end` 0: unknown.
  virtual std::unique_ptr<CacheSession> begin(const CacheRoot& root, std::span<const TokenId> prompt,
                                              std::span<const ImageSpan> images, std::int64_t system_end) = 0;

  // Drops the oldest object in RAM that no request uses (with what is below it): for a page pool that ran dry. False:
  // nothing is left. Pages of objects that wait for their write come back after it.
  virtual bool reclaim() = 0;
  // Waits until everything queued is on disk.
  virtual void flush() = 0;

  virtual const Status& disk_status() const = 0;
  virtual PrefixCacheStats stats() const = 0;
  // The tree as a document for /debug/cache: at most `limit` objects, keys shortened, no token ids.
  virtual Json debug_tree(std::size_t limit) const = 0;

  // Positions of the states on the path of a token sequence, ascending.
  virtual std::vector<std::int64_t> state_positions(const CacheRoot& root, std::span<const TokenId> tokens,
                                                    std::span<const ImageSpan> images) const = 0;
  // The state at `position`, or the block that holds the token before it.
  virtual Result<ObjectLocation> locate(const CacheRoot& root, std::span<const TokenId> tokens,
                                        std::span<const ImageSpan> images, std::int64_t position, bool state) const = 0;
};

}  // namespace perigee
