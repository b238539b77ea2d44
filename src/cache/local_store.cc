// BlobStore over a directory: one file an object. Layout (docs/cache.md): header, payload, commit record, each padded
// to 4096 bytes so that O_DIRECT can be used; written to a temporary, synced, renamed, then the directory is synced.
#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

#include "base/checked.h"
#include "base/sha256.h"
#include "cache/blob_store.h"

namespace perigee {
namespace {

constexpr std::int64_t kAlign = 4096;
constexpr std::int64_t kMaxManifest = std::int64_t{1} << 20;
constexpr std::size_t kMaxName = 128;
constexpr char kHeaderMagic[8] = {'P', 'G', 'B', 'L', 'O', 'B', '0', '1'};
constexpr char kCommitMagic[8] = {'P', 'G', 'C', 'O', 'M', 'M', 'I', 'T'};
constexpr const char* kTemporary = "tmp-";

struct FixedHeader {
  char magic[8];
  std::uint32_t header_bytes;  // multiple of 4096; the last 32 are the SHA-256 of those before
  std::uint32_t manifest_bytes;
  std::uint64_t payload_bytes;
  std::uint32_t name_bytes;
  std::uint32_t reserved;
  // then the name, the manifest, zeros, the digest
};
static_assert(sizeof(FixedHeader) == 32);

struct CommitRecord {
  char magic[8];
  std::uint64_t file_bytes;
  Sha256Digest header_digest;
  std::uint64_t check;  // xxh3-64 of the fields before
};
static_assert(sizeof(CommitRecord) == 56);

std::int64_t pad(std::int64_t bytes) {
  return align_up(bytes, kAlign);
}

std::int64_t header_size(std::int64_t name_bytes, std::int64_t manifest_bytes) {
  return pad(static_cast<std::int64_t>(sizeof(FixedHeader)) + name_bytes + manifest_bytes + 32);
}

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

Status system_error(const std::string& path, const char* what) {
  StatusCode code = StatusCode::kUnavailable;
  if (errno == ENOENT) code = StatusCode::kNotFound;
  if (errno == ENOSPC || errno == EFBIG || errno == EDQUOT) code = StatusCode::kResourceExhausted;
  return make_error(code, "{}: {}: {}", path, what, std::strerror(errno));
}

// File systems without O_DIRECT (tmpfs, some network ones) are used through the page cache.
Descriptor open_direct(const std::string& path, int flags) {
  int fd = ::open(path.c_str(), flags | O_DIRECT | O_CLOEXEC, 0644);
  if (fd < 0 && errno == EINVAL) fd = ::open(path.c_str(), flags | O_CLOEXEC, 0644);
  return Descriptor(fd);
}

// Reads exactly `size` bytes unless the file ends before; returns how many, or -1.
std::int64_t read_at(int fd, std::byte* data, std::int64_t size, std::int64_t offset) {
  std::int64_t done = 0;
  while (done < size) {
    const ssize_t got = ::pread(fd, data + done, static_cast<std::size_t>(size - done), offset + done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return -1;
    if (got == 0) break;
    done += got;
    if (done % kAlign != 0) break;  // the end of the file
  }
  return done;
}

using AlignedBuffer = std::unique_ptr<std::byte, decltype(&std::free)>;
AlignedBuffer aligned_buffer(std::int64_t bytes) {
  return {static_cast<std::byte*>(std::aligned_alloc(kAlign, static_cast<std::size_t>(pad(bytes)))), &std::free};
}

// Gathers small and large pieces into aligned writes of one chunk.
class StagedWriter {
 public:
  StagedWriter(int fd, std::byte* buffer, const std::function<void(std::int64_t)>& pace)
      : fd_(fd), buffer_(buffer), pace_(pace) {}

  bool append(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const std::size_t count = std::min(bytes.size(), static_cast<std::size_t>(kChunkBytes - filled_));
      std::memcpy(buffer_ + filled_, bytes.data(), count);
      filled_ += static_cast<std::int64_t>(count);
      bytes = bytes.subspan(count);
      if (filled_ == kChunkBytes && !flush()) return false;
    }
    return true;
  }
  bool pad_with_zeros() {
    const std::int64_t end = pad(filled_);
    std::memset(buffer_ + filled_, 0, static_cast<std::size_t>(end - filled_));
    filled_ = end;
    return filled_ < kChunkBytes || flush();
  }
  bool flush() {
    if (filled_ > 0 && pace_) pace_(filled_);
    std::int64_t done = 0;
    while (done < filled_) {
      const ssize_t put = ::write(fd_, buffer_ + done, static_cast<std::size_t>(filled_ - done));
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) return false;
      if (put % kAlign != 0) {  // a short write at the end of the space
        errno = ENOSPC;
        return false;
      }
      done += put;
    }
    filled_ = 0;
    return true;
  }

 private:
  int fd_;
  std::byte* buffer_;
  const std::function<void(std::int64_t)>& pace_;
  std::int64_t filled_ = 0;
};

bool valid_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxName && name.starts_with(kTemporary) == false &&
         std::all_of(name.begin(), name.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == '-'; });
}

std::vector<std::byte> make_header(const BlobWrite& object, std::int64_t payload_bytes) {
  const auto size =
      header_size(static_cast<std::int64_t>(object.name.size()), static_cast<std::int64_t>(object.manifest.size()));
  FixedHeader fixed{};
  std::memcpy(fixed.magic, kHeaderMagic, sizeof fixed.magic);
  fixed.header_bytes = static_cast<std::uint32_t>(size);
  fixed.manifest_bytes = static_cast<std::uint32_t>(object.manifest.size());
  fixed.payload_bytes = static_cast<std::uint64_t>(payload_bytes);
  fixed.name_bytes = static_cast<std::uint32_t>(object.name.size());
  std::vector<std::byte> header(static_cast<std::size_t>(size));
  std::byte* out = header.data();
  std::memcpy(out, &fixed, sizeof fixed);
  std::memcpy(out + sizeof fixed, object.name.data(), object.name.size());
  std::memcpy(out + sizeof fixed + object.name.size(), object.manifest.data(), object.manifest.size());
  const Sha256Digest digest = sha256(std::span(header).first(header.size() - 32));
  std::memcpy(out + header.size() - 32, digest.data(), digest.size());
  return header;
}

CommitRecord make_commit(std::span<const std::byte> header, std::int64_t payload_bytes) {
  CommitRecord record{};
  std::memcpy(record.magic, kCommitMagic, sizeof record.magic);
  record.file_bytes = header.size() + static_cast<std::uint64_t>(pad(payload_bytes) + kAlign);
  std::memcpy(record.header_digest.data(), header.data() + header.size() - 32, 32);
  record.check = XXH3_64bits(&record, offsetof(CommitRecord, check));
  return record;
}

struct OpenedObject {
  Descriptor fd;
  std::int64_t header_bytes = 0;
  BlobInfo info;
};

// Opens a file and checks header, name, sizes and commit record; not the payload.
Result<OpenedObject> open_object(const std::string& path, const std::string& name, bool direct) {
  OpenedObject object;
  object.fd = direct ? open_direct(path, O_RDONLY) : Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (object.fd.get() < 0) return system_error(path, "cannot open");
  struct stat status{};
  if (::fstat(object.fd.get(), &status) != 0) return system_error(path, "cannot stat");
  if (!S_ISREG(status.st_mode)) return data_loss("{}: expected a regular file", path);
  AlignedBuffer first = aligned_buffer(kAlign);
  if (first == nullptr) return make_error(StatusCode::kResourceExhausted, "{}: no memory", path);
  const std::int64_t got = read_at(object.fd.get(), first.get(), kAlign, 0);
  if (got < 0) return system_error(path, "cannot read the header");
  FixedHeader fixed{};
  std::memcpy(&fixed, first.get(), sizeof fixed);
  if (got < kAlign || std::memcmp(fixed.magic, kHeaderMagic, sizeof fixed.magic) != 0) {
    return data_loss("{}: expected magic and header of an object, found something else", path);
  }
  const std::int64_t expected = header_size(fixed.name_bytes, fixed.manifest_bytes);
  if (fixed.name_bytes > kMaxName || fixed.manifest_bytes > kMaxManifest || fixed.header_bytes != expected) {
    return data_loss("{}: header of {} bytes does not fit a name of {} and a manifest of {} bytes", path,
                     fixed.header_bytes, fixed.name_bytes, fixed.manifest_bytes);
  }
  AlignedBuffer header = std::move(first);
  if (expected > kAlign) {
    header = aligned_buffer(expected);
    if (header == nullptr) return make_error(StatusCode::kResourceExhausted, "{}: no memory", path);
    if (read_at(object.fd.get(), header.get(), expected, 0) != expected)
      return data_loss("{}: header ends early", path);
  }
  const std::span<const std::byte> bytes(header.get(), static_cast<std::size_t>(expected));
  const Sha256Digest digest = sha256(bytes.first(bytes.size() - 32));
  if (std::memcmp(digest.data(), bytes.data() + bytes.size() - 32, 32) != 0) {
    return data_loss("{}: digest of the header differs", path);
  }
  const auto* text = reinterpret_cast<const char*>(bytes.data() + sizeof fixed);
  if (std::string_view(text, fixed.name_bytes) != name) return data_loss("{}: the file holds another object", path);
  if (fixed.payload_bytes > static_cast<std::uint64_t>(status.st_size) ||
      expected + pad(static_cast<std::int64_t>(fixed.payload_bytes)) + kAlign != status.st_size) {
    return data_loss("{}: expected {} bytes of payload, the file has {} bytes", path, fixed.payload_bytes,
                     status.st_size);
  }
  AlignedBuffer last = aligned_buffer(kAlign);
  if (last == nullptr || read_at(object.fd.get(), last.get(), kAlign, status.st_size - kAlign) != kAlign) {
    return data_loss("{}: no commit record", path);
  }
  const CommitRecord record = make_commit(bytes, static_cast<std::int64_t>(fixed.payload_bytes));
  if (std::memcmp(last.get(), &record, sizeof record) != 0) return data_loss("{}: commit record differs", path);
  object.header_bytes = expected;
  object.info = {.name = name,
                 .manifest = std::string(text + fixed.name_bytes, fixed.manifest_bytes),
                 .payload_bytes = static_cast<std::int64_t>(fixed.payload_bytes),
                 .stored_bytes = status.st_size,
                 .last_used = static_cast<std::uint64_t>(status.st_mtim.tv_sec) * 1'000'000'000U +
                              static_cast<std::uint64_t>(status.st_mtim.tv_nsec)};
  return object;
}

std::string objects_directory(const std::string& directory) {
  return directory + "/objects";
}

// Visits the objects; `repair` removes temporaries and damaged files.
Result<BlobScan> scan_directory(const std::string& directory, bool repair) {
  const std::string folder = objects_directory(directory);
  DIR* listing = ::opendir(folder.c_str());
  if (listing == nullptr) return system_error(folder, "cannot list");
  BlobScan scan;
  while (const dirent* entry = ::readdir(listing)) {
    const std::string name = entry->d_name;
    const std::string path = folder + "/" + name;
    if (name.starts_with(kTemporary)) {
      if (repair) ::unlink(path.c_str());
      continue;
    }
    if (!valid_name(name)) continue;  // not ours
    Result<OpenedObject> object = open_object(path, name, /*direct=*/false);
    if (object.ok()) {
      scan.objects.push_back(std::move(object->info));
      continue;
    }
    scan.damaged.push_back(object.status().message());
    if (repair && object.status().code() == StatusCode::kDataLoss) ::unlink(path.c_str());
  }
  ::closedir(listing);
  return scan;
}

class LocalStore : public BlobStore {
 public:
  LocalStore(std::string directory, Descriptor lock, Descriptor folder)
      : directory_(std::move(directory)), lock_(std::move(lock)), folder_(std::move(folder)) {}

  std::vector<Status> put(std::span<const BlobWrite> objects, const std::function<void(std::int64_t)>& pace) override {
    std::vector<Status> result(objects.size());
    std::vector<Descriptor> written(objects.size());
    for (std::size_t i = 0; i < objects.size(); ++i) result[i] = write_temporary(objects[i], pace, written[i]);
    // Synced after all are written: the first sync commits the journal for the others too.
    for (std::size_t i = 0; i < objects.size(); ++i) {
      const std::string path = temporary_path(objects[i].name);
      if (result[i].ok() && ::fdatasync(written[i].get()) != 0) result[i] = system_error(path, "cannot sync");
      if (!result[i].ok()) ::unlink(path.c_str());
    }
    // Renames in the caller's order; one sync of the directory makes the whole batch durable.
    for (std::size_t i = 0; i < objects.size(); ++i) {
      if (!result[i].ok()) continue;
      const std::string path = local_store_path(directory_, objects[i].name);
      if (::rename(temporary_path(objects[i].name).c_str(), path.c_str()) != 0) {
        result[i] = system_error(path, "cannot rename into place");
      }
    }
    if (::fsync(folder_.get()) != 0) {
      for (Status& status : result) {
        if (status.ok()) status = system_error(objects_directory(directory_), "cannot sync");
      }
    }
    return result;
  }

  Status get(const std::string& name, std::span<const std::span<std::byte>> parts) override {
    const std::string path = local_store_path(directory_, name);
    PERIGEE_ASSIGN_OR_RETURN(const OpenedObject object, open_object(path, name, /*direct=*/true));
    std::int64_t wanted = 0;
    for (const auto& part : parts) wanted += static_cast<std::int64_t>(part.size());
    if (wanted != object.info.payload_bytes) {
      return data_loss("{}: expected a payload of {} bytes, found {}", path, wanted, object.info.payload_bytes);
    }
    const AlignedBuffer buffer = aligned_buffer(kChunkBytes);
    if (buffer == nullptr) return make_error(StatusCode::kResourceExhausted, "{}: no memory", path);
    std::size_t part = 0;
    std::size_t filled = 0;
    for (std::int64_t done = 0; done < wanted; done += kChunkBytes) {
      const std::int64_t size = std::min(kChunkBytes, wanted - done);
      const std::int64_t got = read_at(object.fd.get(), buffer.get(), pad(size), object.header_bytes + done);
      if (got < 0) return system_error(path, "cannot read");
      if (got < size) return data_loss("{}: ends at byte {} of its payload", path, done + got);
      for (std::int64_t used = 0; used < size;) {
        const std::size_t count = std::min(static_cast<std::size_t>(size - used), parts[part].size() - filled);
        std::memcpy(parts[part].data() + filled, buffer.get() + used, count);
        used += static_cast<std::int64_t>(count);
        filled += count;
        if (filled == parts[part].size()) {
          ++part;
          filled = 0;
        }
      }
    }
    return {};
  }

  Result<BlobScan> scan() override { return scan_directory(directory_, /*repair=*/true); }

  Status erase(const std::string& name) override {
    const std::string path = local_store_path(directory_, name);
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) return system_error(path, "cannot remove");
    return {};
  }

  void touch(const std::string& name, std::uint64_t last_used) override {
    const timespec time = {.tv_sec = static_cast<time_t>(last_used / 1'000'000'000U),
                           .tv_nsec = static_cast<long>(last_used % 1'000'000'000U)};
    const timespec times[2] = {time, time};
    ::utimensat(AT_FDCWD, local_store_path(directory_, name).c_str(), times, 0);
  }

  std::int64_t stored_size(std::int64_t manifest_bytes, std::int64_t payload_bytes) const override {
    return header_size(kMaxName, manifest_bytes) + pad(payload_bytes) + kAlign;
  }

 private:
  std::string temporary_path(const std::string& name) const {
    return objects_directory(directory_) + "/" + kTemporary + name;
  }

  Status write_temporary(const BlobWrite& object, const std::function<void(std::int64_t)>& pace, Descriptor& fd) const {
    if (!valid_name(object.name) || object.manifest.size() > static_cast<std::size_t>(kMaxManifest)) {
      return invalid_argument("object {}: expected a name of [0-9a-z-] and a manifest of at most {} bytes", object.name,
                              kMaxManifest);
    }
    const std::string path = temporary_path(object.name);
    fd = open_direct(path, O_WRONLY | O_CREAT | O_TRUNC);
    if (fd.get() < 0) return system_error(path, "cannot create");
    const AlignedBuffer buffer = aligned_buffer(kChunkBytes);
    if (buffer == nullptr) return make_error(StatusCode::kResourceExhausted, "{}: no memory", path);
    StagedWriter writer(fd.get(), buffer.get(), pace);
    std::int64_t payload_bytes = 0;
    for (const auto& chunk : object.chunks) payload_bytes += static_cast<std::int64_t>(chunk.size());
    const std::vector<std::byte> header = make_header(object, payload_bytes);
    const CommitRecord record = make_commit(header, payload_bytes);
    bool ok = writer.append(header);
    for (const auto& chunk : object.chunks) ok = ok && writer.append(chunk);
    ok = ok && writer.pad_with_zeros() && writer.append(std::as_bytes(std::span(&record, 1))) &&
         writer.pad_with_zeros() && writer.flush();
    if (!ok) return system_error(path, "cannot write");
    return {};
  }

  std::string directory_;
  Descriptor lock_;    // holds the flock
  Descriptor folder_;  // for fsync
};

}  // namespace

std::string local_store_path(const std::string& directory, const std::string& name) {
  return objects_directory(directory) + "/" + name;
}

Result<std::unique_ptr<BlobStore>> open_local_store(const std::string& directory) {
  const std::string folder = objects_directory(directory);
  for (const std::string& path : {directory, folder}) {
    if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return system_error(path, "cannot create");
  }
  const std::string lock_path = directory + "/lock";
  Descriptor lock(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (lock.get() < 0) return system_error(lock_path, "cannot open");
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    return make_error(StatusCode::kUnavailable, "{}: another process owns this cache directory", directory);
  }
  Descriptor folder_fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder_fd.get() < 0) return system_error(folder, "cannot open");
  return std::unique_ptr<BlobStore>(new LocalStore(directory, std::move(lock), std::move(folder_fd)));
}

Result<BlobScan> inspect_local_store(const std::string& directory) {
  return scan_directory(directory, /*repair=*/false);
}

}  // namespace perigee
