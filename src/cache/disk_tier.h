// The disk tier: a write-behind thread over a BlobStore, its limits, and the restore on start.
//
// An object is written only after the blocks above it (and, for a state, a block that covers it), so what a crash
// leaves is a tree again. Members marked [locked] are called with the owner's mutex held, the others without.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/status.h"
#include "cache/blob_store.h"
#include "cache/prefix_cache.h"
#include "cache/prefix_tree.h"

namespace perigee {

// Bytes written a day (UTC), remembered in a file so that a restart does not begin anew.
class WriteQuota {
 public:
  WriteQuota(std::string path, std::int64_t bytes_per_day);  // 0: no limit
  bool allows(std::int64_t bytes);                           // today
  void take(std::int64_t bytes);

 private:
  std::string path_;
  std::int64_t limit_;
  std::int64_t day_ = 0;
  std::int64_t written_ = 0;
};

class DiskTier {
 public:
  // `tree` and `mutex` outlive the tier. Opens the directory, removes what is damaged and fills the tree.
  static Result<std::unique_ptr<DiskTier>> open(const DiskTierOptions& options, PrefixTree& tree, std::mutex& mutex);
  ~DiskTier();  // writes what is queued
  DiskTier(const DiskTier&) = delete;
  DiskTier& operator=(const DiskTier&) = delete;

  void enqueue(const ObjectRef& object);      // [locked] no-op for what is there already
  void left_disk(const CacheObject& object);  // [locked] removes its file
  void touched(const CacheObject& object);    // [locked] persists its stamp
  void flush();
  // Reads and verifies. kResourceExhausted: the allocator has no room; any other error: the object is bad.
  Result<PayloadRef> read(const CacheObject& object, PayloadAllocator& allocator);

  void add_to(PrefixCacheStats& stats) const;  // [locked]
  const std::string& directory() const { return options_.directory; }

 private:
  struct Batch;
  DiskTier(const DiskTierOptions& options, std::unique_ptr<BlobStore> store, std::int64_t write_limit, PrefixTree& tree,
           std::mutex& mutex);
  void load(BlobScan scan);
  void run();
  static bool ready(const CacheObject& object, bool& wait);
  void fill_batch(Batch& batch);
  void write_batch(Batch& batch, std::unique_lock<std::mutex>& lock);
  void pace(std::int64_t bytes);

  DiskTierOptions options_;
  std::unique_ptr<BlobStore> store_;
  PrefixTree& tree_;
  std::mutex& mutex_;
  WriteQuota quota_;
  std::condition_variable wake_;
  std::condition_variable idle_;
  std::deque<ObjectRef> queue_;
  std::int64_t queue_bytes_ = 0;
  std::vector<std::string> erase_;
  std::vector<std::pair<std::string, std::uint64_t>> touch_;
  bool busy_ = false;
  bool stop_ = false;
  std::atomic<bool> hurry_ = false;  // stopping: no pacing
  double next_write_ = 0;            // seconds, for the pace
  double failed_until_ = 0;          // after a full disk: no writes before
  PrefixCacheStats counters_;        // the disk_* and corrupt fields
  std::atomic<std::int64_t> restores_ = 0;
  std::thread thread_;
};

}  // namespace perigee
