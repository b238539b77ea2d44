#include "checkpoint/folder.h"

#include <simdjson.h>

#include <algorithm>
#include <filesystem>

#include "base/file.h"

namespace perigee {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxIndexBytes = std::size_t{1} << 28;  // K3's has 50 MB

bool is_plain_name(std::string_view name) {
  return !name.empty() && name.size() < 256 && name.front() != '.' && name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

bool present(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// Names of directory entries that `keep` accepts, ascending.
template <typename Keep>
std::vector<std::string> entries(const fs::path& directory, Keep keep) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    if (keep(*it)) names.push_back(it->path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

Result<ShardList> read_index(const std::string& path) {
  PERIGEE_ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxIndexBytes));
  simdjson::dom::parser parser;
  simdjson::dom::element document;
  if (const auto error = parser.parse(simdjson::padded_string(text)).get(document); error != simdjson::SUCCESS) {
    return data_loss("{}: expected a JSON object: {}", path, simdjson::error_message(error));
  }
  simdjson::dom::object map;
  if (document["weight_map"].get(map) != simdjson::SUCCESS) {
    return data_loss("{}: weight_map: expected an object of file names", path);
  }
  std::map<std::string, std::uint32_t, std::less<>> numbers;
  ShardList list;
  for (const auto [tensor, value] : map) {
    std::string_view file;
    // A name with a slash would read outside the checkpoint.
    if (value.get(file) != simdjson::SUCCESS || !is_plain_name(file) || !file.ends_with(".safetensors")) {
      return data_loss("{}: weight_map: {}: expected a file name like model-00001-of-00002.safetensors", path,
                       tensor.substr(0, 200));
    }
    numbers.try_emplace(std::string(file), 0);
  }
  for (auto& [file, number] : numbers) {
    number = static_cast<std::uint32_t>(list.files.size());
    list.files.push_back(file);
  }
  for (const auto [tensor, value] : map) {
    std::string_view file;
    if (value.get(file) != simdjson::SUCCESS) continue;
    if (!list.index.emplace(tensor, numbers.find(file)->second).second) {
      return data_loss("{}: weight_map: {}: expected once, found twice", path, tensor.substr(0, 200));
    }
  }
  if (list.files.empty()) return data_loss("{}: weight_map: expected at least one tensor", path);
  return list;
}

}  // namespace

Result<std::string> resolve_checkpoint_folder(const std::string& path) {
  const fs::path root(path);
  if (present(root / "config.json")) return path;
  if (!present(root)) return make_error(StatusCode::kNotFound, "{}: no such folder", path);
  const fs::path snapshots = root / "snapshots";
  if (!present(snapshots)) {
    return make_error(StatusCode::kNotFound,
                      "{}: expected config.json, or snapshots/ as in a Hugging Face cache folder, found neither", path);
  }
  std::string revision;
  if (present(root / "refs" / "main")) {
    PERIGEE_ASSIGN_OR_RETURN(revision, read_file((root / "refs" / "main").string(), 256));
    while (!revision.empty() && (revision.back() == '\n' || revision.back() == '\r')) revision.pop_back();
    if (!is_plain_name(revision)) return data_loss("{}/refs/main: expected the name of a snapshot", path);
  } else {
    const auto found = entries(snapshots, [](const fs::directory_entry& entry) { return present(entry.path()); });
    if (found.size() != 1) {
      return make_error(StatusCode::kNotFound, "{}/snapshots: expected one snapshot, or refs/main, found {} snapshots",
                        path, found.size());
    }
    revision = found.front();
  }
  const fs::path directory = snapshots / revision;
  if (!present(directory / "config.json")) {
    return make_error(StatusCode::kNotFound, "{}: expected config.json in it", directory.string());
  }
  return directory.string();
}

Result<ShardList> list_shards(const std::string& directory) {
  const fs::path root(directory);
  if (present(root / "model.safetensors.index.json"))
    return read_index((root / "model.safetensors.index.json").string());
  ShardList list;
  if (present(root / "model.safetensors")) {
    list.files = {"model.safetensors"};
    return list;
  }
  list.files =
      entries(root, [](const fs::directory_entry& entry) { return entry.path().extension() == ".safetensors"; });
  if (list.files.empty()) {
    return make_error(StatusCode::kNotFound,
                      "{}: expected model.safetensors.index.json or *.safetensors, found neither", directory);
  }
  if (list.files.size() > 1) {
    list.warnings.push_back(
        fmt::format("no model.safetensors.index.json: all {} *.safetensors files are taken", list.files.size()));
  }
  return list;
}

}  // namespace perigee
