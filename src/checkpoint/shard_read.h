// Whole files into memory by many parallel reads, past the page cache where the file system allows it; or the pages of
// mapped files into the page cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"
#include "checkpoint/progress.h"
#include "checkpoint/region.h"

namespace perigee {

// The region is the file's size rounded up to 4096; `bytes` of the result is the file's size.
struct ReadShard {
  MemoryRegion region;
  std::size_t bytes = 0;
};
Result<ReadShard> read_shard(const std::string& path, Progress& progress);

// Brings the pages of a mapping into memory.
void read_ahead(std::span<const std::byte> mapping, Progress& progress);

// Memory that the system could give to this process now, in bytes; 0 where it cannot be told.
std::int64_t available_memory();

}  // namespace perigee
