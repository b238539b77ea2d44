// safetensors files: u64 header length, JSON header, data. Every length, offset, shape and element type is checked
// before it is used, so a view always lies inside its file. Reading is thread-safe after open.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/status.h"
#include "checkpoint/tensor.h"

namespace perigee {

struct SafetensorsHeader {
  struct Entry {
    std::string name;
    Dtype dtype = Dtype::kU8;
    Shape shape;
    std::uint64_t offset = 0;  // of the first byte, from the beginning of the file
    std::uint64_t bytes = 0;
  };
  std::vector<Entry> tensors;  // ascending offset
  std::map<std::string, std::string> metadata;
  std::uint64_t data_begin = 0;
  std::uint64_t unused_bytes = 0;  // bytes of the data that no tensor covers: 0 in files of the reference library
};

// `head`: at least the header's part of the file; `file_size`: the size of the whole file. Refuses extents that leave
// the file or overlap, sizes that contradict shape and dtype, unknown dtypes and names that occur twice.
Result<SafetensorsHeader> parse_safetensors_header(std::span<const std::byte> head, std::uint64_t file_size);

// A mapped file and its tensors by name.
class SafetensorsFile {
 public:
  static Result<SafetensorsFile> open(const std::string& path);

  const std::string& path() const { return path_; }
  const SafetensorsHeader& header() const { return header_; }
  const TensorTable& tensors() const { return tensors_; }
  const TensorView* find(std::string_view name) const { return tensors_.find(name); }

  // The elements of a tensor of dtype F32, F64, I32, U8 or BF16 (as bf16). Errors: no such tensor, another dtype,
  // elements not aligned in the file.
  template <typename T>
  Result<std::span<const T>> elements(std::string_view name) const;

 private:
  std::string path_;
  MappedFile file_;
  SafetensorsHeader header_;
  TensorTable tensors_;
};

}  // namespace perigee
