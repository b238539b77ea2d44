#include "cache/disk_tier.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <unordered_map>

#include "cache/object_format.h"

namespace perigee {
namespace {

constexpr std::int64_t kBatchBytes = std::int64_t{64} << 20;
constexpr std::size_t kBatchObjects = 256;
constexpr double kPauseAfterFullDisk = 10;
constexpr auto kDisk = static_cast<std::size_t>(Tier::kDisk);

double monotonic_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// A twentieth of the file system a day: five years of it are 91 times the capacity, below what any consumer drive is
// rated for (docs/cache.md).
Result<std::int64_t> default_daily_writes(const std::string& directory) {
  struct statvfs info{};
  if (::statvfs(directory.c_str(), &info) != 0) {
    return make_error(StatusCode::kUnavailable, "{}: cannot read the size of its file system", directory);
  }
  return static_cast<std::int64_t>(info.f_blocks * info.f_frsize / 20);
}

const CacheObject& root_of(const CacheObject& object) {
  const CacheObject* node = &object;
  while (node->parent != nullptr) node = node->parent;
  return *node;
}

}  // namespace

WriteQuota::WriteQuota(std::string path, std::int64_t bytes_per_day) : path_(std::move(path)), limit_(bytes_per_day) {
  if (std::FILE* file = std::fopen(path_.c_str(), "re")) {
    long long day = 0;
    long long written = 0;
    if (std::fscanf(file, "%lld %lld", &day, &written) == 2 && written >= 0) {
      day_ = day;
      written_ = written;
    }
    std::fclose(file);
  }
}

bool WriteQuota::allows(std::int64_t bytes) {
  if (limit_ == 0) return true;
  const std::int64_t today = std::time(nullptr) / 86400;
  if (today != day_) {
    day_ = today;
    written_ = 0;
  }
  return bytes <= limit_ - written_;
}

void WriteQuota::take(std::int64_t bytes) {
  written_ += bytes;
  // Counted before the write, so a crash can only count too much. A torn line reads as a fresh day.
  if (std::FILE* file = std::fopen(path_.c_str(), "we")) {
    std::fprintf(file, "%lld %lld\n", static_cast<long long>(day_), static_cast<long long>(written_));
    std::fclose(file);
  }
}

struct DiskTier::Batch {
  std::vector<ObjectRef> objects;
  std::vector<BlobWrite> writes;
  std::vector<PayloadRef> payloads;  // kept while the store reads them
  std::int64_t bytes = 0;
};

Result<std::unique_ptr<DiskTier>> DiskTier::open(const DiskTierOptions& options, PrefixTree& tree, std::mutex& mutex) {
  PERIGEE_ASSIGN_OR_RETURN(auto store, open_local_store(options.directory));
  std::int64_t limit = options.write_bytes_per_day;
  if (limit < 0) {
    PERIGEE_ASSIGN_OR_RETURN(limit, default_daily_writes(options.directory));
  }
  PERIGEE_ASSIGN_OR_RETURN(BlobScan scan, store->scan());
  std::unique_ptr<DiskTier> tier(new DiskTier(options, std::move(store), limit, tree, mutex));
  tier->load(std::move(scan));
  tier->thread_ = std::thread([raw = tier.get()] { raw->run(); });
  return tier;
}

DiskTier::DiskTier(const DiskTierOptions& options, std::unique_ptr<BlobStore> store, std::int64_t write_limit,
                   PrefixTree& tree, std::mutex& mutex)
    : options_(options),
      store_(std::move(store)),
      tree_(tree),
      mutex_(mutex),
      quota_(options.directory + "/writes", write_limit) {}

DiskTier::~DiskTier() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    hurry_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void DiskTier::load(BlobScan scan) {
  struct Found {
    ObjectManifest manifest;
    BlobInfo info;
  };
  std::vector<Found> found;
  const auto reject = [&](const BlobInfo& info, const std::string& why) {
    spdlog::warn("cache: {} dropped: {}", info.name, why);
    ++counters_.corrupt_objects;
    if (Status status = store_->erase(info.name); !status.ok()) spdlog::warn("cache: {}", status.message());
  };
  for (const std::string& damaged : scan.damaged) {
    spdlog::warn("cache: dropped: {}", damaged);
    ++counters_.corrupt_objects;
  }
  for (BlobInfo& info : scan.objects) {
    Result<ObjectManifest> manifest = decode_manifest(info.manifest);
    if (!manifest.ok()) {
      reject(info, manifest.status().message());
      continue;
    }
    std::int64_t bytes = 0;
    for (const Section& section : manifest->sections) bytes += section.bytes;
    if (bytes != info.payload_bytes || object_name(manifest->kind, manifest->key) != info.name) {
      reject(info, "name or size differs from the manifest");
      continue;
    }
    found.push_back({std::move(*manifest), std::move(info)});
  }
  // Parents first; of siblings the longer first, so that a superseded partial block is seen as such; then states.
  std::sort(found.begin(), found.end(), [](const Found& a, const Found& b) {
    if (a.manifest.kind != b.manifest.kind) return a.manifest.kind < b.manifest.kind;
    if (a.manifest.begin != b.manifest.begin) return a.manifest.begin < b.manifest.begin;
    return a.manifest.tokens.size() > b.manifest.tokens.size();
  });
  std::map<CacheKey, ObjectRef> blocks;
  const std::lock_guard lock(mutex_);
  for (Found& each : found) {
    ObjectManifest& manifest = each.manifest;
    ObjectRef parent;
    if (manifest.begin == 0 && manifest.parent == manifest.root) parent = tree_.root(manifest.root);
    if (const auto it = blocks.find(manifest.parent); manifest.begin > 0 && it != blocks.end()) parent = it->second;
    const bool fits = parent != nullptr && parent->end == manifest.begin && root_of(*parent).key == manifest.root;
    const bool covered = fits && tree_.find_covering(*parent, manifest.tokens) != nullptr;
    if (!fits || covered != (manifest.kind == ObjectKind::kState)) {
      // What a crash between two renames, or an erased parent, leaves behind. Not damage: no wrong bytes.
      if (Status status = store_->erase(each.info.name); !status.ok()) spdlog::warn("cache: {}", status.message());
      continue;
    }
    const std::int64_t cost =
        store_->stored_size(static_cast<std::int64_t>(each.info.manifest.size()), each.info.payload_bytes);
    const ObjectRef object =
        tree_.add(*parent, manifest.kind, std::move(manifest.tokens), manifest.key, {0, cost}, Tier::kDisk);
    object->sections = std::move(manifest.sections);
    tree_.stamp(*object, each.info.last_used);
    tree_.start_stamps_at(each.info.last_used);
    if (manifest.kind == ObjectKind::kBlock) blocks.emplace(object->key, object);
  }
}

void DiskTier::enqueue(const ObjectRef& object) {
  if (object->held || object->on_tier(Tier::kDisk) || !object->linked() || object->payload == nullptr) return;
  const std::int64_t bytes = object->payload->bytes();
  if (queue_bytes_ + bytes > options_.queue_bytes) {
    ++counters_.disk_skipped_queue;
    return;
  }
  queue_bytes_ += bytes;
  tree_.hold(*object);
  queue_.push_back(object);
  wake_.notify_one();
}

void DiskTier::left_disk(const CacheObject& object) {
  erase_.push_back(object_name(object.kind, object.key));
  wake_.notify_one();
}

void DiskTier::touched(const CacheObject& object) {
  if (!object.on_tier(Tier::kDisk)) return;
  touch_.emplace_back(object_name(object.kind, object.key), object.stamp);
  wake_.notify_one();
}

void DiskTier::flush() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [&] { return !busy_ && queue_.empty() && erase_.empty() && touch_.empty(); });
}

void DiskTier::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [&] { return stop_ || !queue_.empty() || !erase_.empty() || !touch_.empty(); });
    if (queue_.empty() && erase_.empty() && touch_.empty()) return;
    busy_ = true;
    // Erasures first: an object that was dropped and stored again has its write behind its erasure.
    const std::vector<std::string> erase = std::exchange(erase_, {});
    const auto touch = std::exchange(touch_, {});
    Batch batch;
    fill_batch(batch);
    lock.unlock();
    for (const std::string& name : erase) {
      if (Status status = store_->erase(name); !status.ok()) spdlog::warn("cache: {}", status.message());
    }
    for (const auto& [name, stamp] : touch) store_->touch(name, stamp);
    lock.lock();
    if (!batch.objects.empty()) write_batch(batch, lock);
    busy_ = false;
    idle_.notify_all();
  }
}

// Is everything above the object on disk, or in the batch being filled? `wait`: not yet, but it is on its way.
bool DiskTier::ready(const CacheObject& object, bool& wait) {
  const auto there = [](const CacheObject& other) { return other.on_tier(Tier::kDisk); };
  wait = false;
  const CacheObject& parent = *object.parent;
  if (parent.kind != ObjectKind::kRoot && !there(parent)) {
    wait = parent.held;
    return false;
  }
  if (object.kind != ObjectKind::kState) return true;
  for (auto it = parent.blocks.lower_bound(BlockTokensView(object.tokens)); it != parent.blocks.end(); ++it) {
    if (compare_tokens((*it)->tokens, object.tokens).common < object.tokens.size()) break;
    if (there(**it)) return true;
    wait = wait || (*it)->held;
  }
  return false;
}

void DiskTier::fill_batch(Batch& batch) {
  std::vector<ObjectRef> waiting;
  while (!queue_.empty() && batch.bytes < kBatchBytes && batch.objects.size() < kBatchObjects) {
    const ObjectRef object = std::move(queue_.front());
    queue_.pop_front();
    if (!object->linked() || !object->held) {
      // It was dropped, or superseded by a longer block, before its turn.
      for (const Section& section : object->sections) queue_bytes_ -= section.bytes;
      continue;
    }
    bool wait = false;
    if (!ready(*object, wait)) {
      if (wait) {
        waiting.push_back(object);
        continue;
      }
      queue_bytes_ -= object->payload->bytes();
      ++counters_.disk_skipped_limit;
      tree_.release_hold(object);
      continue;
    }
    ObjectManifest manifest{.kind = object->kind,
                            .root = root_of(*object).key,
                            .parent = object->parent->key,
                            .key = object->key,
                            .begin = object->end - object->tokens.size(),
                            .tokens = object->tokens,
                            .sections = object->sections,
                            .created = std::time(nullptr)};
    BlobWrite write{
        .name = object_name(object->kind, object->key), .manifest = encode_manifest(manifest), .chunks = {}};
    const std::int64_t bytes = object->payload->bytes();
    queue_bytes_ -= bytes;
    object->cost[kDisk] = store_->stored_size(static_cast<std::int64_t>(write.manifest.size()), bytes);
    const bool pausing = monotonic_seconds() < failed_until_;
    if (pausing || !quota_.allows(object->cost[kDisk]) || !tree_.admit(object, Tier::kDisk)) {
      ++counters_.disk_skipped_limit;
      tree_.release_hold(object);
      continue;
    }
    quota_.take(object->cost[kDisk]);
    for (std::span<const std::byte> part : object->payload->parts()) {
      for (; !part.empty(); part = part.subspan(std::min(part.size(), static_cast<std::size_t>(kChunkBytes)))) {
        write.chunks.push_back(part.first(std::min(part.size(), static_cast<std::size_t>(kChunkBytes))));
      }
    }
    batch.objects.push_back(object);
    batch.payloads.push_back(object->payload);
    batch.writes.push_back(std::move(write));
    batch.bytes += bytes;
  }
  for (ObjectRef& object : waiting) queue_.push_back(std::move(object));
}

void DiskTier::write_batch(Batch& batch, std::unique_lock<std::mutex>& lock) {
  lock.unlock();
  const std::vector<Status> results = store_->put(batch.writes, [this](std::int64_t bytes) { pace(bytes); });
  batch.writes.clear();
  lock.lock();
  for (std::size_t i = 0; i < batch.objects.size(); ++i) {
    const ObjectRef& object = batch.objects[i];
    if (results[i].ok()) {
      ++counters_.disk_written_objects;
      counters_.disk_written_bytes += object->cost[kDisk];
    } else {
      ++counters_.disk_failed_writes;
      spdlog::warn("cache: not written: {}", results[i].message());
      if (results[i].code() == StatusCode::kResourceExhausted)
        failed_until_ = monotonic_seconds() + kPauseAfterFullDisk;
      // Whatever counted on it leaves the disk tier too.
      if (object->linked()) tree_.drop(object, Tier::kDisk, PrefixTree::Cause::kSpace);
    }
    tree_.release_hold(object);
  }
}

void DiskTier::pace(std::int64_t bytes) {
  if (options_.write_bytes_per_second == 0) return;
  const double now = monotonic_seconds();
  next_write_ = std::max(next_write_, now);
  while (!hurry_ && monotonic_seconds() < next_write_) {
    const double left = next_write_ - monotonic_seconds();
    std::this_thread::sleep_for(std::chrono::duration<double>(std::clamp(left, 0.0, 0.05)));
  }
  next_write_ += static_cast<double>(bytes) / static_cast<double>(options_.write_bytes_per_second);
}

Result<PayloadRef> DiskTier::read(const CacheObject& object, PayloadAllocator& allocator) {
  std::int64_t bytes = 0;
  for (const Section& section : object.sections) bytes += section.bytes;
  auto draft = object.kind == ObjectKind::kBlock ? allocator.allocate_block(object.tokens.size(), bytes)
                                                 : allocator.allocate_state(bytes);
  if (!draft.ok()) return draft.status();
  const std::string name = object_name(object.kind, object.key);
  PERIGEE_RETURN_IF_ERROR(store_->get(name, draft->parts));
  if (!verify_sections(*draft->payload, object.sections)) return data_loss("{}: a section's digest differs", name);
  ++restores_;
  return std::move(draft->payload);
}

void DiskTier::add_to(PrefixCacheStats& stats) const {
  stats.corrupt_objects += counters_.corrupt_objects;
  stats.disk_restores += restores_;
  stats.disk_written_objects += counters_.disk_written_objects;
  stats.disk_written_bytes += counters_.disk_written_bytes;
  stats.disk_skipped_limit += counters_.disk_skipped_limit;
  stats.disk_skipped_queue += counters_.disk_skipped_queue;
  stats.disk_failed_writes += counters_.disk_failed_writes;
}

}  // namespace perigee
