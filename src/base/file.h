// Files: bounded whole reads and read-only mappings. Errors name the path and the system's reason.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/status.h"

namespace perigee {

// The whole file, refused when it is larger than `limit` bytes. Thread-safe.
Result<std::string> read_file(const std::string& path, std::size_t limit);

// Writes to a temporary beside `path`, syncs and renames, so that a reader sees the old file or the new one.
Status write_file(const std::string& path, std::string_view content);

// A read-only private mapping of a whole file. Movable; the mapping lives as long as the object. Reading it is
// thread-safe. A file that another process truncates later raises SIGBUS on access: shards must not change
// while they are served.
class MappedFile {
 public:
  static Result<MappedFile> open(const std::string& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace perigee
