// What the cache writes beside an object's bytes: its place in the tree, its tokens and the digests of its sections.
// Little endian; the store keeps the manifest's own digest. Pure functions, thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "cache/keys.h"
#include "cache/payload.h"
#include "cache/prefix_tree.h"

namespace perigee {

struct ObjectManifest {
  ObjectKind kind = ObjectKind::kBlock;
  CacheKey root{};
  CacheKey parent{};
  CacheKey key{};
  std::int64_t begin = 0;  // position of its first token, a multiple of 256
  BlockTokens tokens;
  std::vector<Section> sections;
  std::int64_t created = 0;  // seconds since 1970
};

std::string encode_manifest(const ObjectManifest& manifest);
// Checks every bound and that the key is the hash of parent, tokens and spans.
Result<ObjectManifest> decode_manifest(const std::string& bytes);

// The name of an object in a store.
std::string object_name(ObjectKind kind, const CacheKey& key);

}  // namespace perigee
