#include "raw_client.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>

namespace perigee::server {

RawClient::RawClient(std::uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) close();
}

RawClient::~RawClient() {
  close();
}

void RawClient::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

void RawClient::shutdown_send() {
  ::shutdown(fd_, SHUT_WR);
}

bool RawClient::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

namespace {

// Appends what comes within the time; false: closed or time over.
bool receive(int fd, std::string& out, std::chrono::steady_clock::time_point end, bool& closed) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
  pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
  if (left.count() <= 0 || ::poll(&entry, 1, static_cast<int>(left.count())) <= 0) return false;
  char buffer[16384];
  const ssize_t n = ::recv(fd, buffer, sizeof buffer, 0);
  closed = n <= 0;
  if (n > 0) out.append(buffer, static_cast<std::size_t>(n));
  return n > 0;
}

}  // namespace

std::string RawClient::read_until(std::string_view text, int milliseconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
  std::string out;
  bool closed = false;
  while (out.find(text) == std::string::npos && receive(fd_, out, end, closed)) {
  }
  return out;
}

std::string RawClient::read_all(int milliseconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
  std::string out;
  bool closed = false;
  while (receive(fd_, out, end, closed)) {
  }
  return out;
}

bool RawClient::closed_within(int milliseconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
  std::string dropped;
  bool closed = false;
  while (receive(fd_, dropped, end, closed)) {
  }
  return closed;
}

std::string RawClient::exchange(std::string_view request) {
  if (!send(request)) return {};
  std::string response = read_until("\r\n\r\n");
  const std::size_t at = response.find("Content-Length: ");
  if (at == std::string::npos) return response;
  const std::size_t length = std::strtoul(response.c_str() + at + 16, nullptr, 10);
  const std::size_t total = response.find("\r\n\r\n") + 4 + length;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  bool closed = false;
  while (response.size() < total && receive(fd_, response, end, closed)) {
  }
  return response;
}

int status_of(std::string_view response) {
  return response.size() < 12 ? 0 : std::atoi(std::string(response.substr(9, 3)).c_str());
}

std::string body_of(std::string_view response) {
  const std::size_t at = response.find("\r\n\r\n");
  return at == std::string_view::npos ? std::string() : std::string(response.substr(at + 4));
}

}  // namespace perigee::server
