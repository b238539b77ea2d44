#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "checkpoint/folder.h"
#include "checkpoint/loaded_checkpoint.h"
#include "checkpoint/names.h"
#include "checkpoint/progress.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/shard_read.h"

namespace perigee {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMaxIndexerRows = 4096;

std::int64_t total_size(const std::vector<std::string>& files) {
  std::int64_t total = 0;
  for (const std::string& file : files) {
    std::error_code error;
    const auto size = fs::file_size(file, error);
    if (!error) total += static_cast<std::int64_t>(size);
  }
  return total;
}

// The bytes of one shard, mapped or read; they stay where they are when `parts` moves.
Result<std::span<const std::byte>> acquire(const std::string& path, bool read, Progress& progress,
                                           CheckpointParts& parts) {
  if (read) {
    PERIGEE_ASSIGN_OR_RETURN(ReadShard shard, read_shard(path, progress));
    const auto bytes = std::span<const std::byte>(shard.region.bytes()).first(shard.bytes);
    parts.regions.push_back(std::move(shard.region));
    return bytes;
  }
  PERIGEE_ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path));
  const auto bytes = file.bytes();
  parts.mappings.push_back(std::move(file));
  return bytes;
}

// The index and the shards must tell the same story.
Status check_index(const ShardList& shards, const std::vector<SafetensorsHeader>& headers, CheckpointParts& parts) {
  if (shards.index.empty()) return {};
  std::unordered_set<std::string_view> stored;
  std::int64_t unlisted = 0;
  for (std::size_t file = 0; file < headers.size(); ++file) {
    for (const auto& entry : headers[file].tensors) {
      stored.insert(entry.name);
      const auto it = shards.index.find(entry.name);
      if (it == shards.index.end()) {
        ++unlisted;
      } else if (it->second != file) {
        return data_loss("{}: tensor {}: expected in {} (index), found here", parts.files[file], entry.name,
                         shards.files[it->second]);
      }
    }
  }
  if (unlisted > 0) parts.warnings.push_back(fmt::format("{} tensors of the shards are not in the index", unlisted));
  for (const auto& [name, file] : shards.index) {
    if (!stored.contains(name)) {
      return data_loss("{}: tensor {}: expected (the index says so), found no such tensor", parts.files[file], name);
    }
  }
  return {};
}

// Indexer tensors decide where config.json is silent (spec 1.1, 4.5).
Status adopt_indexer(CheckpointParts& parts) {
  ModelConfig& config = parts.config;
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    const std::string base = fmt::format("{}model.layers.{}.self_attn.indexer.", config.tensor_prefix, i);
    const TensorView* keys = parts.tensors.find(base + "wk.weight");
    const TensorView* weights = parts.tensors.find(base + "weights_proj.weight");
    if (keys == nullptr || weights == nullptr || keys->shape.rank() != 2 || weights->shape.rank() != 2) continue;
    for (const TensorView* view : {keys, weights}) {
      if (view->shape[0] < 1 || view->shape[0] > kMaxIndexerRows) {
        return data_loss("{}: tensor {}: expected 1 to {} rows, found {}", parts.files[view->file], view->name,
                         kMaxIndexerRows, view->shape[0]);
      }
    }
    LayerConfig& layer = config.layers[i];
    if (!layer.indexer && config.has_indexer() && !config.indexer.sizes_assumed) continue;  // reported as unknown
    if (!config.has_indexer()) {
      config.indexer.top_k = 2048;
      config.indexer.sizes_assumed = true;
      config.family = "kimi_k31";
      parts.warnings.emplace_back(
          "config.json has no dsa_config, but there are indexer tensors: top-k 2048 is assumed");
    }
    if (config.indexer.sizes_assumed) {
      config.indexer.heads = weights->shape[0];
      config.indexer.head_dim = keys->shape[0];
    }
    layer.indexer = layer.mixer == Mixer::kMla;
  }
  return {};
}

Status read_shards(const ShardList& shards, const LoadOptions& options, CheckpointParts& parts) {
  const std::int64_t total = total_size(parts.files);
  const std::int64_t available = available_memory();
  if (options.parallel_read && available > 0 && total > available) {
    return make_error(StatusCode::kResourceExhausted,
                      "{}: expected {} of free memory for all weights, found {}; map them instead", parts.directory,
                      format_bytes(total), format_bytes(available));
  }
  // Who watches a load wants it done when it says so: pages of mapped shards are read now, where all of them fit in
  // memory, instead of at first use.
  const bool ahead = !options.parallel_read && options.show_progress && total < available / 10 * 9;
  Progress progress("reading weights", total, ahead || (options.parallel_read && options.show_progress));
  std::vector<SafetensorsHeader> headers;
  std::vector<TensorView> views;
  for (std::size_t file = 0; file < parts.files.size(); ++file) {
    const std::string& path = parts.files[file];
    PERIGEE_ASSIGN_OR_RETURN(const auto bytes, acquire(path, options.parallel_read, progress, parts));
    auto header = parse_safetensors_header(bytes, bytes.size());
    if (!header.ok()) return header.status().with_context(path);
    if (ahead) read_ahead(bytes, progress);
    for (const auto& entry : header->tensors) {
      views.push_back({canonical_tensor_name(entry.name, parts.config.tensor_prefix), entry.dtype, entry.shape,
                       bytes.subspan(entry.offset, entry.bytes), static_cast<std::uint32_t>(file)});
    }
    if (header->unused_bytes > 0) {
      parts.warnings.push_back(fmt::format("{}: {} bytes belong to no tensor", path, header->unused_bytes));
    }
    headers.push_back(*std::move(header));
  }
  PERIGEE_RETURN_IF_ERROR(check_index(shards, headers, parts));
  PERIGEE_ASSIGN_OR_RETURN(parts.tensors, TensorTable::build(std::move(views)));
  return {};
}

}  // namespace

Result<std::unique_ptr<Checkpoint>> Checkpoint::open(const std::string& path, const LoadOptions& options) {
  CheckpointParts parts;
  PERIGEE_ASSIGN_OR_RETURN(parts.directory, resolve_checkpoint_folder(path));
  PERIGEE_ASSIGN_OR_RETURN(parts.config, read_model_config(parts.directory));
  PERIGEE_ASSIGN_OR_RETURN(const Json document, read_json_file(parts.directory + "/config.json"));
  parts.config_text = document.dump();
  PERIGEE_ASSIGN_OR_RETURN(const ShardList shards, list_shards(parts.directory));
  parts.warnings = shards.warnings;
  for (const std::string& file : shards.files) parts.files.push_back(parts.directory + "/" + file);
  PERIGEE_RETURN_IF_ERROR(read_shards(shards, options, parts));
  if (auto status = adopt_indexer(parts); !status.ok()) return status.with_context(parts.directory);
  auto checkpoint = LoadedCheckpoint::create(std::move(parts), options);
  if (!checkpoint.ok()) return checkpoint.status().with_context(path);
  return checkpoint;
}

}  // namespace perigee
