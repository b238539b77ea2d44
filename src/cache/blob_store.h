// A store of immutable objects: chunks of at most 4 MiB and a manifest that is written last, so that an object is
// either whole or absent. The local directory is the first implementation; Redis and Mooncake come behind the same
// interface. Callers verify digests themselves; a missing or damaged object is a miss, never an error to a user.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace perigee {

inline constexpr std::int64_t kChunkBytes = std::int64_t{4} << 20;

struct BlobWrite {
  std::string name;      // [0-9a-z-]+, at most 128 characters
  std::string manifest;  // at most 1 MiB
  std::vector<std::span<const std::byte>> chunks;
};

struct BlobInfo {
  std::string name;
  std::string manifest;
  std::int64_t payload_bytes = 0;  // of all chunks
  std::int64_t stored_bytes = 0;   // what it takes from the budget
  std::uint64_t last_used = 0;     // as given to touch(); grows with time
};

struct BlobScan {
  std::vector<BlobInfo> objects;
  std::vector<std::string> damaged;  // "name: reason"; these were removed
};

// Thread-safe.
class BlobStore {
 public:
  virtual ~BlobStore() = default;

  // Writes objects; one Status each. Where it is ok the object survives a crash. `pace` is called before each chunk
  // with its size and may sleep.
  virtual std::vector<Status> put(std::span<const BlobWrite> objects,
                                  const std::function<void(std::int64_t bytes)>& pace) = 0;
  // Fills `parts` in order with the payload; their sizes must add up to payload_bytes.
  virtual Status get(const std::string& name, std::span<const std::span<std::byte>> parts) = 0;
  // Everything that is stored. Objects that are not whole are removed and named.
  virtual Result<BlobScan> scan() = 0;
  virtual Status erase(const std::string& name) = 0;
  // Remembers when an object was last used, across restarts. Best effort.
  virtual void touch(const std::string& name, std::uint64_t last_used) = 0;
  // Bytes that an object of this shape will take.
  virtual std::int64_t stored_size(std::int64_t manifest_bytes, std::int64_t payload_bytes) const = 0;
};

// A directory of one file an object (format: docs/cache.md). The directory is created; `flock` keeps a second owner
// out: kUnavailable.
Result<std::unique_ptr<BlobStore>> open_local_store(const std::string& directory);

// Reads a directory that another process may own; changes nothing.
Result<BlobScan> inspect_local_store(const std::string& directory);

// Where the local store keeps an object.
std::string local_store_path(const std::string& directory, const std::string& name);

}  // namespace perigee
