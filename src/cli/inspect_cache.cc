#include "cli/inspect_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/json.h"
#include "cache/blob_store.h"
#include "cache/object_format.h"

namespace perigee::cli {
namespace {

struct Row {
  ObjectManifest manifest;
  BlobInfo info;
};

struct RootSummary {
  std::vector<Row> rows;
  std::int64_t blocks = 0;
  std::int64_t states = 0;
  std::int64_t bytes = 0;
};

std::string short_key(const CacheKey& key) {
  return to_hex(std::span(key).first(6));
}

}  // namespace

int inspect_cache(const std::string& directory, bool json) {
  Result<BlobScan> scan = inspect_local_store(directory);
  if (!scan.ok()) {
    fmt::print(stderr, "{}\n", scan.status().message());
    return 2;
  }
  std::map<CacheKey, RootSummary> roots;
  std::vector<std::string> damaged = std::move(scan->damaged);
  for (BlobInfo& info : scan->objects) {
    Result<ObjectManifest> manifest = decode_manifest(info.manifest);
    if (!manifest.ok()) {
      damaged.push_back(fmt::format("{}: {}", info.name, manifest.status().message()));
      continue;
    }
    RootSummary& root = roots[manifest->root];
    ++(manifest->kind == ObjectKind::kState ? root.states : root.blocks);
    root.bytes += info.stored_bytes;
    root.rows.push_back({std::move(*manifest), std::move(info)});
  }
  Json document = {{"directory", directory}, {"roots", Json::array()}, {"damaged", damaged}};
  for (auto& [key, root] : roots) {
    std::sort(root.rows.begin(), root.rows.end(), [](const Row& a, const Row& b) {
      return a.manifest.begin + a.manifest.tokens.size() < b.manifest.begin + b.manifest.tokens.size();
    });
    if (!json) {
      fmt::print("root {}: {} blocks, {} states, {:.1f} MB\n", short_key(key), root.blocks, root.states,
                 static_cast<double>(root.bytes) / 1e6);
    }
    Json objects = Json::array();
    for (const Row& row : root.rows) {
      const char* kind = row.manifest.kind == ObjectKind::kState ? "state" : "block";
      const std::int64_t end = row.manifest.begin + row.manifest.tokens.size();
      const auto used = static_cast<std::int64_t>(row.info.last_used / 1'000'000'000U);
      if (json) {
        objects.push_back({{"kind", kind},
                           {"key", to_hex(row.manifest.key)},
                           {"parent", to_hex(row.manifest.parent)},
                           {"end", end},
                           {"tokens", row.manifest.tokens.size()},
                           {"payload_bytes", row.info.payload_bytes},
                           {"stored_bytes", row.info.stored_bytes},
                           {"created", row.manifest.created},
                           {"last_used", used}});
      } else {
        fmt::print("  {} {} below {} ends at {:>8}  {:>3} tokens  {:>12} bytes  used {} s ago\n", kind,
                   short_key(row.manifest.key), short_key(row.manifest.parent), end, row.manifest.tokens.size(),
                   row.info.payload_bytes, std::time(nullptr) - used);
      }
    }
    document["roots"].push_back({{"root", to_hex(key)},
                                 {"blocks", root.blocks},
                                 {"states", root.states},
                                 {"bytes", root.bytes},
                                 {"objects", std::move(objects)}});
  }
  if (json) {
    fmt::print("{}\n", document.dump(2));
  } else {
    for (const std::string& what : damaged) fmt::print("damaged: {}\n", what);
    if (roots.empty()) fmt::print("{}: no objects\n", directory);
  }
  return damaged.empty() ? 0 : 1;
}

}  // namespace perigee::cli
