// Finding the files of a checkpoint: a folder, or a Hugging Face cache folder whose snapshots are links.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"

namespace perigee {

// The folder with config.json: `path` itself, or of models--x--y the snapshot that refs/main names (else the only one).
Result<std::string> resolve_checkpoint_folder(const std::string& path);

struct ShardList {
  std::vector<std::string> files;  // plain names inside the folder, ascending
  // From the index: tensor -> position in `files`. Empty without an index.
  std::map<std::string, std::uint32_t, std::less<>> index;
  std::vector<std::string> warnings;
};

// By model.safetensors.index.json, else model.safetensors, else every *.safetensors of the folder.
Result<ShardList> list_shards(const std::string& directory);

}  // namespace perigee
