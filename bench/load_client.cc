#include "load_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <string_view>

namespace perigee::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kEnd = "\r\n0\r\n\r\n";
constexpr std::string_view kText = "content\":\"";  // of content and reasoning_content
constexpr std::string_view kTokens = "\"completion_tokens\":";

class Load {
 public:
  Load(std::string host, std::uint16_t port, int streams, const std::vector<LoadJob>& jobs,
       const std::function<std::string(std::size_t)>& request)
      : host_(std::move(host)),
        port_(port),
        jobs_(jobs),
        request_(request),
        poll_(::epoll_create1(EPOLL_CLOEXEC)),
        streams_(static_cast<std::size_t>(streams)) {
    result_.outcomes.resize(jobs.size());
    for (std::size_t i = 0; i < streams_.size(); ++i) free_.push_back(i);
  }
  ~Load() {
    for (const Stream& stream : streams_) {
      if (stream.fd >= 0) ::close(stream.fd);
    }
    ::close(poll_);
  }
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;

  LoadResult run() {
    start_ = Clock::now();
    std::vector<epoll_event> events(256);
    while (next_ < jobs_.size() || free_.size() < streams_.size()) {
      while (next_ < jobs_.size() && !free_.empty() && jobs_[next_].at <= now()) begin(next_++);
      int wait = -1;
      if (next_ < jobs_.size() && !free_.empty()) {
        wait = static_cast<int>(std::ceil(1000 * std::max(0.0, jobs_[next_].at - now())));
      }
      if (free_.size() == streams_.size() && next_ == jobs_.size()) break;
      const int n = ::epoll_wait(poll_, events.data(), static_cast<int>(events.size()), wait);
      for (int i = 0; i < n; ++i) {
        const epoll_event& event = events[static_cast<std::size_t>(i)];
        const auto index = static_cast<std::size_t>(event.data.u64);
        if (streams_[index].busy && (event.events & EPOLLOUT) != 0) write(index);
        if (streams_[index].busy && (event.events & ~static_cast<std::uint32_t>(EPOLLOUT)) != 0) read(index);
      }
    }
    result_.seconds = now();
    return std::move(result_);
  }

 private:
  struct Stream {
    int fd = -1;
    bool busy = false;
    std::size_t job = 0;
    std::string out;
    std::size_t sent = 0;
    std::string in;           // the last bytes, in which something may have begun
    std::size_t scanned = 0;  // of `in`
    bool head = false;        // the status line was seen
    double began = 0;
    double last = 0;
  };

  double now() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  void begin(std::size_t job) {
    const std::size_t index = free_.back();
    free_.pop_back();
    Stream& stream = streams_[index];
    if (stream.fd < 0) {
      stream.fd = connect_to(host_, port_);
      epoll_event event{.events = EPOLLIN | EPOLLOUT | EPOLLET, .data = {.u64 = index}};
      if (stream.fd >= 0) ::epoll_ctl(poll_, EPOLL_CTL_ADD, stream.fd, &event);
    }
    stream.busy = true;
    stream.job = job;
    stream.out = request_(job);
    stream.sent = 0;
    stream.in.clear();
    stream.scanned = 0;
    stream.head = false;
    stream.began = now();
    result_.outcomes[job].late = stream.began - jobs_[job].at;
    if (stream.fd < 0) return end(index, false);
    write(index);
  }

  void write(std::size_t index) {
    Stream& stream = streams_[index];
    while (stream.sent < stream.out.size()) {
      const ssize_t n = ::send(stream.fd, stream.out.data() + stream.sent, stream.out.size() - stream.sent,
                               MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
      if (n <= 0) return end(index, false);
      stream.sent += static_cast<std::size_t>(n);
    }
  }

  void read(std::size_t index) {
    Stream& stream = streams_[index];
    char buffer[65536];
    for (;;) {
      const ssize_t n = ::recv(stream.fd, buffer, sizeof buffer, MSG_DONTWAIT);
      if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
      if (n <= 0) return end(index, false);
      stream.in.append(buffer, static_cast<std::size_t>(n));
      if (!take(stream)) return end(index, false);
      if (stream.in.ends_with(kEnd)) return end(index, true);
    }
  }

  // Looks at what has come; false: not a good answer.
  bool take(Stream& stream) {
    LoadOutcome& outcome = result_.outcomes[stream.job];
    if (!stream.head) {
      if (stream.in.size() < 12) return true;
      if (!stream.in.starts_with("HTTP/1.1 200")) return false;
      stream.head = true;
    }
    bool text = false;
    std::size_t keep = stream.in.size() - std::min(stream.in.size(), kTokens.size() + 24);
    for (std::size_t at = stream.scanned; (at = stream.in.find(kText, at)) != std::string::npos;) {
      at += kText.size();
      if (at == stream.in.size()) {
        keep = std::min(keep, at - kText.size());
        break;
      }
      text = text || stream.in[at] != '"';
      stream.scanned = at;
    }
    if (text) {
      const double t = now();
      if (outcome.first == 0) {
        outcome.first = t - stream.began;
      } else {
        result_.gaps.push_back(t - stream.last);
      }
      stream.last = t;
    }
    if (const std::size_t at = stream.in.rfind(kTokens); at != std::string::npos) {
      std::from_chars(stream.in.data() + at + kTokens.size(), stream.in.data() + stream.in.size(), outcome.tokens);
    }
    stream.in.erase(0, keep);
    stream.scanned -= std::min(stream.scanned, keep);
    return true;
  }

  void end(std::size_t index, bool ok) {
    Stream& stream = streams_[index];
    LoadOutcome& outcome = result_.outcomes[stream.job];
    outcome.ok = ok;
    outcome.total = now() - stream.began;
    if (!ok && stream.fd >= 0) {
      ::close(stream.fd);
      stream.fd = -1;
    }
    stream.busy = false;
    free_.push_back(index);
  }

  const std::string host_;
  const std::uint16_t port_;
  const std::vector<LoadJob>& jobs_;
  const std::function<std::string(std::size_t)>& request_;
  const int poll_;
  std::vector<Stream> streams_;
  std::vector<std::size_t> free_;
  std::size_t next_ = 0;
  Clock::time_point start_;
  LoadResult result_;
};

}  // namespace

LoadResult run_load(const std::string& host, std::uint16_t port, int streams, const std::vector<LoadJob>& jobs,
                    const std::function<std::string(std::size_t)>& request) {
  return Load(host, port, streams, jobs, request).run();
}

int connect_to(const std::string& host, std::uint16_t port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  ::inet_pton(AF_INET, host.c_str(), &address.sin_addr);
  const int one = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) return fd;
  ::close(fd);
  return -1;
}

bool send_all(int fd, const std::string& bytes) {
  for (std::size_t sent = 0; sent < bytes.size();) {
    const ssize_t n = ::send(fd, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (n <= 0) return false;
    sent += static_cast<std::size_t>(n);
  }
  return true;
}

}  // namespace perigee::bench
