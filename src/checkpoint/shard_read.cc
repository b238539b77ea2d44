#include "checkpoint/shard_read.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "base/checked.h"
#include "base/threads.h"

namespace perigee {
namespace {

constexpr std::int64_t kPage = 4096;
constexpr std::int64_t kChunk = std::int64_t{8} << 20;
constexpr int kReaders = 16;  // requests in flight: an NVMe drive needs more than a few to be busy

class File {
 public:
  explicit File(int fd) : fd_(fd) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

// Reads [offset, offset + bytes) of the file; 0 or errno. EIO also where the file ends too early.
int read_fully(int fd, std::byte* to, std::int64_t offset, std::int64_t bytes) {
  while (bytes > 0) {
    const ssize_t got = ::pread(fd, to, static_cast<std::size_t>(bytes), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno;
    if (got == 0) return EIO;
    to += got;
    offset += got;
    bytes -= got;
  }
  return 0;
}

}  // namespace

Result<ReadShard> read_shard(const std::string& path, Progress& progress) {
  const File buffered(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info{};
  if (buffered.get() < 0 || ::fstat(buffered.get(), &info) != 0) {
    return make_error(errno == ENOENT ? StatusCode::kNotFound : StatusCode::kUnavailable, "{}: cannot open: {}", path,
                      std::strerror(errno));
  }
  if (!S_ISREG(info.st_mode)) return invalid_argument("{}: expected a regular file", path);
  ReadShard shard;
  shard.bytes = static_cast<std::size_t>(info.st_size);
  const std::int64_t padded = ceil_div<std::int64_t>(info.st_size, kPage) * kPage;
  PERIGEE_ASSIGN_OR_RETURN(shard.region, MemoryRegion::allocate(static_cast<std::size_t>(padded)));

  // Not every file system has direct reads (tmpfs has not); those go through the page cache.
  const File direct(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT));
  std::atomic<int> error{0};
  ThreadPool pool(kReaders);
  pool.run(ceil_div<std::int64_t>(info.st_size, kChunk), [&](std::int64_t chunk, int /*thread*/) {
    if (error.load(std::memory_order_relaxed) != 0) return;
    const std::int64_t offset = chunk * kChunk;
    const std::int64_t bytes = std::min<std::int64_t>(kChunk, info.st_size - offset);
    std::byte* to = shard.region.bytes().data() + offset;
    // Direct reads take whole pages; the part of a page at the end of the file goes the ordinary way.
    const std::int64_t whole = bytes / kPage * kPage;
    int result = direct.get() < 0 ? EINVAL : read_fully(direct.get(), to, offset, whole);
    const std::int64_t done = result == 0 ? whole : 0;
    result = read_fully(buffered.get(), to + done, offset + done, bytes - done);
    if (result != 0) error.store(result, std::memory_order_relaxed);
    progress.add(bytes);
  });
  if (error.load() != 0) return make_error(StatusCode::kUnavailable, "{}: cannot read: {}", path, std::strerror(error));
  return shard;
}

void read_ahead(std::span<const std::byte> mapping, Progress& progress) {
  ThreadPool pool(kReaders);
  const std::int64_t size = std::ssize(mapping);
  pool.run(ceil_div(size, kChunk), [&](std::int64_t chunk, int /*thread*/) {
    const std::int64_t bytes = std::min(kChunk, size - chunk * kChunk);
    const std::byte* from = mapping.data() + chunk * kChunk;
    ::madvise(const_cast<std::byte*>(from), static_cast<std::size_t>(bytes), MADV_WILLNEED);
    std::byte seen{};
    for (std::int64_t at = 0; at < bytes; at += kPage) seen ^= from[at];
    // The reads must happen although nobody wants their value.
    asm volatile("" : : "r"(&seen) : "memory");
    progress.add(bytes);
  });
}

std::int64_t available_memory() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  std::int64_t kilobytes = 0;
  std::string unit;
  while (file >> key >> kilobytes >> unit) {
    if (key == "MemAvailable:") return kilobytes * 1024;
  }
  return 0;
}

}  // namespace perigee
