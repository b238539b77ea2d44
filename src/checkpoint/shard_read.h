// Whole files into memory by many parallel reads, past the page cache where the file system allows it.
#pragma once

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

}  // namespace perigee
