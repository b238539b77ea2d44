// For tests: checkpoint folders that are written tensor by tensor, so that any single fact about them can be wrong.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_writer.h"
#include "checkpoint/weights.h"

namespace perigee::testing_support {

inline const std::string kGoldens = std::string(PERIGEE_SOURCE_DIR) + "/tests/data/goldens/";

// A folder of its own below the temporary folder, removed at the end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "perigee-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data()) == nullptr ? "" : pattern;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code error;
    if (!path_.empty()) std::filesystem::remove_all(path_, error);
  }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// As write_file, without waiting for the disk.
inline bool put_file(const std::string& path, const std::string& content) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << content;
  return file.flush().good();
}

struct StoredTensor {
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::string bytes;
};
using StoredTensors = std::map<std::string, StoredTensor>;

inline StoredTensor make_tensor(const std::string& dtype, std::vector<std::int64_t> shape, std::string bytes) {
  return {dtype, std::move(shape), std::move(bytes)};
}

template <typename T>
std::string raw(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// The file's bytes. `head_padding` spaces end the header (to choose the alignment of the data).
inline std::string safetensors_bytes(const StoredTensors& tensors, std::size_t head_padding = 0) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    header[name] = {{"dtype", tensor.dtype},
                    {"shape", tensor.shape},
                    {"data_offsets", {data.size(), data.size() + tensor.bytes.size()}}};
    data += tensor.bytes;
    data.resize((data.size() + 7) / 8 * 8);
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8 + head_padding, ' ');
  const std::uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + text + data;
}

// A small model that has every kind of layer: the first four layers and four experts of a golden configuration.
struct SmallModel {
  Json config;
  Json generation_config;
  StoredTensors tensors;
};

inline SmallModel small_model(const std::string& golden = "tiny-a") {
  SmallModel model;
  auto source = read_synth_source(kGoldens + golden);
  EXPECT_TRUE(source.ok()) << source.status().message();
  const Status shrunk = shrink_config(*source->config, 4, 4);
  EXPECT_TRUE(shrunk.ok()) << shrunk.message();
  const auto checkpoint = synthesise_checkpoint(*source->config, source->generation_config.get(), source->options);
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  model.config = *source->config;
  model.generation_config = *source->generation_config;
  for (const TensorView& view : (*checkpoint)->tensors()) {
    StoredTensor& tensor = model.tensors[view.name];
    tensor.dtype = dtype_name(view.dtype);
    for (std::size_t axis = 0; axis < view.shape.rank(); ++axis) tensor.shape.push_back(view.shape[axis]);
    tensor.bytes.assign(reinterpret_cast<const char*>(view.data.data()), view.data.size());
  }
  return model;
}

inline void write_configs(const SmallModel& model, const std::string& folder) {
  std::filesystem::create_directories(folder);
  ASSERT_TRUE(put_file(folder + "/config.json", model.config.dump()));
  ASSERT_TRUE(put_file(folder + "/generation_config.json", model.generation_config.dump()));
}

inline void write_single_file(const SmallModel& model, const std::string& folder) {
  write_configs(model, folder);
  ASSERT_TRUE(put_file(folder + "/model.safetensors", safetensors_bytes(model.tensors)));
}

}  // namespace perigee::testing_support
