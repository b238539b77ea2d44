#include "checkpoint/checkpoint_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/checked.h"
#include "base/file.h"
#include "base/threads.h"
#include "checkpoint/progress.h"

namespace perigee {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kRangeBytes = std::int64_t{4} << 20;
constexpr std::int64_t kDataAlignment = 4096;  // data begins on a page, as direct reads like it
constexpr std::int64_t kSpareBytes = std::int64_t{64} << 20;

struct Placed {
  const GeneratedTensor* tensor;
  std::int64_t offset;  // in the shard's data
};

struct Shard {
  std::string file;
  std::string head;  // length and JSON header
  std::vector<Placed> tensors;
  std::int64_t data_bytes = 0;
};

std::vector<Shard> plan_shards(const std::vector<GeneratedTensor>& tensors, std::int64_t shard_bytes) {
  std::vector<Shard> shards(1);
  for (const GeneratedTensor& tensor : tensors) {
    Shard* shard = &shards.back();
    if (!shard->tensors.empty() && shard->data_bytes + tensor.bytes() > shard_bytes) shard = &shards.emplace_back();
    shard->tensors.push_back({&tensor, 0});
    shard->data_bytes += tensor.bytes();
  }
  for (std::size_t i = 0; i < shards.size(); ++i) {
    Shard& shard = shards[i];
    shard.file = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    // Wide elements first: then every tensor is aligned without holes, which the reference library refuses.
    std::ranges::stable_sort(shard.tensors, std::ranges::greater{},
                             [](const Placed& placed) { return dtype_bytes(placed.tensor->dtype); });
    std::string json = R"({"__metadata__":{"format":"pt"})";
    std::int64_t offset = 0;
    for (Placed& placed : shard.tensors) {
      placed.offset = offset;
      offset += placed.tensor->bytes();
      std::string shape = placed.tensor->shape.to_string();
      std::erase(shape, ' ');
      json += fmt::format(R"(,"{}":{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})", placed.tensor->name,
                          dtype_name(placed.tensor->dtype), shape, placed.offset, offset);
    }
    json += '}';
    json.resize(
        static_cast<std::size_t>(ceil_div<std::int64_t>(static_cast<std::int64_t>(json.size()) + 8, kDataAlignment) *
                                 kDataAlignment) -
            8,
        ' ');
    const auto length = static_cast<std::uint64_t>(json.size());
    shard.head.assign(reinterpret_cast<const char*>(&length), sizeof(length));
    shard.head += json;
  }
  return shards;
}

class OutputFile {
 public:
  explicit OutputFile(const std::string& path)
      : fd_(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644)) {}
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  bool open() const { return fd_ >= 0; }

  // 0 or errno.
  int write_at(std::span<const std::byte> bytes, std::int64_t offset) const {
    while (!bytes.empty()) {
      const ssize_t put = ::pwrite(fd_, bytes.data(), bytes.size(), offset);
      if (put < 0 && errno == EINTR) continue;
      if (put <= 0) return put < 0 ? errno : EIO;
      bytes = bytes.subspan(static_cast<std::size_t>(put));
      offset += put;
    }
    return 0;
  }

 private:
  int fd_;
};

// Bytes [begin, begin + out.size()) of the shard's data: parts of one or several tensors.
void generate_range(const Shard& shard, std::uint64_t seed, std::int64_t begin, std::span<std::byte> out) {
  auto it = std::ranges::upper_bound(shard.tensors, begin, {}, &Placed::offset);
  --it;
  while (!out.empty()) {
    const std::int64_t inside = begin - it->offset;
    const std::int64_t bytes = std::min<std::int64_t>(it->tensor->bytes() - inside, std::ssize(out));
    fill_elements(*it->tensor, seed, inside / dtype_bytes(it->tensor->dtype),
                  out.first(static_cast<std::size_t>(bytes)));
    out = out.subspan(static_cast<std::size_t>(bytes));
    begin += bytes;
    ++it;
  }
}

Status write_shard(const Shard& shard, std::uint64_t seed, const std::string& path, ThreadPool& pool,
                   Progress& progress) {
  const OutputFile file(path);
  if (!file.open()) return make_error(StatusCode::kUnavailable, "{}: cannot create: {}", path, std::strerror(errno));
  std::atomic<int> error{file.write_at(std::as_bytes(std::span(shard.head)), 0)};
  std::vector<std::vector<std::byte>> buffers(static_cast<std::size_t>(pool.size()));
  pool.run(ceil_div(shard.data_bytes, kRangeBytes), [&](std::int64_t range, int thread) {
    if (error.load(std::memory_order_relaxed) != 0) return;
    std::vector<std::byte>& buffer = buffers[static_cast<std::size_t>(thread)];
    const std::int64_t begin = range * kRangeBytes;
    buffer.resize(static_cast<std::size_t>(std::min(kRangeBytes, shard.data_bytes - begin)));
    generate_range(shard, seed, begin, buffer);
    const int result = file.write_at(buffer, std::ssize(shard.head) + begin);
    if (result != 0) error.store(result, std::memory_order_relaxed);
    progress.add(std::ssize(buffer));
  });
  if (error.load() != 0)
    return make_error(StatusCode::kUnavailable, "{}: cannot write: {}", path, std::strerror(error));
  return {};
}

Status prepare_directory(const std::string& directory, std::int64_t bytes) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) return make_error(StatusCode::kUnavailable, "{}: cannot create: {}", directory, error.message());
  if (!fs::is_empty(directory, error) || error) {
    return invalid_argument("{}: expected a new or an empty folder", directory);
  }
  const fs::space_info space = fs::space(directory, error);
  if (error) return make_error(StatusCode::kUnavailable, "{}: cannot stat: {}", directory, error.message());
  if (static_cast<std::int64_t>(space.available) < bytes + kSpareBytes) {
    return make_error(StatusCode::kResourceExhausted, "{}: expected {} of free space, found {}", directory,
                      format_bytes(bytes + kSpareBytes), format_bytes(static_cast<std::int64_t>(space.available)));
  }
  return {};
}

std::string index_document(const std::vector<Shard>& shards, std::int64_t total) {
  std::string text = fmt::format("{{\"metadata\":{{\"total_size\":{}}},\"weight_map\":{{", total);
  const char* separator = "\n";
  for (const Shard& shard : shards) {
    for (const Placed& placed : shard.tensors) {
      text += fmt::format("{}\"{}\":\"{}\"", separator, placed.tensor->name, shard.file);
      separator = ",\n";
    }
  }
  return text + "\n}}\n";
}

// Drops list members above `layers`.
void cut_list(Json& list, std::int64_t layers) {
  Json kept = Json::array();
  for (const Json& item : list) {
    if (item.is_number_integer() && item.get<std::int64_t>() <= layers) kept.push_back(item);
  }
  list = std::move(kept);
}

void cut_lists(Json& object, std::int64_t layers) {
  for (const auto& [key, value] : object.items()) {
    if (value.is_array() && !value.empty() && value.front().is_number_integer()) cut_list(value, layers);
  }
}

}  // namespace

Result<WriteSummary> write_generated_checkpoint(const SynthSource& source, const std::string& directory,
                                                const WriteOptions& options) {
  PERIGEE_ASSIGN_OR_RETURN(const ModelConfig config,
                           parse_model_config(*source.config, source.generation_config.get()));
  PERIGEE_ASSIGN_OR_RETURN(const std::vector<GeneratedTensor> tensors, generated_tensors(config, source.options));
  const std::vector<Shard> shards = plan_shards(tensors, options.shard_bytes);
  WriteSummary summary{.tensors = std::ssize(tensors), .bytes = 0, .shards = std::ssize(shards)};
  for (const Shard& shard : shards) summary.bytes += shard.data_bytes;
  PERIGEE_RETURN_IF_ERROR(prepare_directory(directory, summary.bytes));

  {
    ThreadPool pool;
    Progress progress("writing weights", summary.bytes, options.show_progress);
    for (const Shard& shard : shards) {
      PERIGEE_RETURN_IF_ERROR(write_shard(shard, source.options.seed, directory + "/" + shard.file, pool, progress));
    }
  }
  PERIGEE_RETURN_IF_ERROR(
      write_file(directory + "/model.safetensors.index.json", index_document(shards, summary.bytes)));
  if (source.generation_config != nullptr) {
    PERIGEE_RETURN_IF_ERROR(
        write_file(directory + "/generation_config.json", source.generation_config->dump(1) + "\n"));
  }
  PERIGEE_RETURN_IF_ERROR(write_file(directory + "/config.json", source.config->dump(1) + "\n"));
  return summary;
}

Status shrink_config(Json& config, std::int64_t layers, std::int64_t experts) {
  PERIGEE_ASSIGN_OR_RETURN(const ModelConfig parsed, parse_model_config(config, nullptr));
  Json& text = config.contains("text_config") ? config["text_config"] : config;
  if (layers > 0) {
    const auto have = static_cast<std::int64_t>(parsed.layers.size());
    if (layers > have)
      return invalid_argument("--layers: expected at most {} (num_hidden_layers), found {}", have, layers);
    text["num_hidden_layers"] = layers;
    cut_lists(text["linear_attn_config"], layers);
    if (text.contains("dsa_config") && text["dsa_config"].is_object()) cut_lists(text["dsa_config"], layers);
  }
  if (experts > 0) {
    if (experts < parsed.moe.top_k) {
      return invalid_argument("--experts: expected at least {} (num_experts_per_token), found {}", parsed.moe.top_k,
                              experts);
    }
    text["num_experts"] = experts;
  }
  return {};
}

}  // namespace perigee
