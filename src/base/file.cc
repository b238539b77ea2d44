#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace perigee {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

Status system_error(const std::string& path, const char* what) {
  const StatusCode code = errno == ENOENT ? StatusCode::kNotFound : StatusCode::kUnavailable;
  return make_error(code, "{}: {}: {}", path, what, std::strerror(errno));
}

Result<std::size_t> regular_file_size(const std::string& path, int fd) {
  struct stat info{};
  if (::fstat(fd, &info) != 0) return system_error(path, "cannot stat");
  if (!S_ISREG(info.st_mode)) return invalid_argument("{}: expected a regular file", path);
  return static_cast<std::size_t>(info.st_size);
}

}  // namespace

Result<std::string> read_file(const std::string& path, std::size_t limit) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return system_error(path, "cannot open");
  PERIGEE_ASSIGN_OR_RETURN(const std::size_t size, regular_file_size(path, file.get()));
  if (size > limit) {
    return make_error(StatusCode::kResourceExhausted, "{}: expected at most {} bytes, found {}", path, limit, size);
  }
  std::string content(size, '\0');
  std::size_t done = 0;
  while (done < size) {
    const ssize_t got = ::read(file.get(), content.data() + done, size - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error(path, "cannot read");
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  content.resize(done);
  return content;
}

Status write_file(const std::string& path, std::string_view content) {
  const std::string temporary = fmt::format("{}.{}.tmp", path, ::getpid());
  {
    const Descriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (file.get() < 0) return system_error(temporary, "cannot create");
    std::size_t done = 0;
    while (done < content.size()) {
      const ssize_t put = ::write(file.get(), content.data() + done, content.size() - done);
      if (put < 0 && errno == EINTR) continue;
      if (put <= 0) return system_error(temporary, "cannot write");
      done += static_cast<std::size_t>(put);
    }
    if (::fdatasync(file.get()) != 0) return system_error(temporary, "cannot sync");
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) return system_error(path, "cannot rename into place");
  return {};
}

Result<MappedFile> MappedFile::open(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return system_error(path, "cannot open");
  PERIGEE_ASSIGN_OR_RETURN(const std::size_t size, regular_file_size(path, file.get()));
  MappedFile mapped;
  if (size == 0) return mapped;
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (data == MAP_FAILED) return system_error(path, "cannot map");
  mapped.data_ = static_cast<const std::byte*>(data);
  mapped.size_ = size;
  return mapped;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace perigee
