#include "server/run_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <thread>

namespace perigee::server {
namespace {

constexpr long kPollNanoseconds = 100'000'000;

// A signal of the set that arrives within the poll time, or 0.
int poll_signal(const sigset_t& set) {
  const timespec wait{.tv_sec = 0, .tv_nsec = kPollNanoseconds};
  const int signal = ::sigtimedwait(&set, nullptr, &wait);
  return signal > 0 ? signal : 0;
}

}  // namespace

Status run_server(RunOptions options, const std::function<Result<ServedModel>()>& load) {
  // Blocked here, before any thread exists, so that only poll_signal sees them.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  const std::size_t files = raise_file_limit();
  constexpr std::size_t kOtherFiles = 256;  // shards, logs, epoll
  if (files > kOtherFiles) {
    options.server.http.max_connections = std::min(options.server.http.max_connections, files - kOtherFiles);
  }

  const std::string address = options.server.http.address;
  const bool tls = !options.server.http.tls_certificate.empty();
  PERIGEE_ASSIGN_OR_RETURN(const std::unique_ptr<Server> server, Server::start(std::move(options.server)));
  const std::string host = address.find(':') == std::string::npos ? address : "[" + address + "]";
  fmt::print(stderr, "listening on {}://{}:{}\n", tls ? "https" : "http", host, server->port());
  std::fflush(stderr);

  Status loaded;
  std::atomic<bool> failed{false};
  std::atomic<bool> finished{false};
  std::thread loader([&] {
    auto model = load();
    if (model.ok()) {
      const std::string name = model->name;
      server->serve(std::move(*model));
      fmt::print(stderr, "ready: {}\n", name);  // requests are accepted now
      std::fflush(stderr);
    } else {
      loaded = model.status();
      failed = true;
    }
    finished = true;
  });
  int signal = 0;
  while (signal == 0 && !failed) signal = poll_signal(signals);
  if (!finished) std::_Exit(0);  // half loaded: nothing to save, and nobody is being answered
  loader.join();
  if (failed) return loaded;

  fmt::print(stderr, "stopping: waiting up to {:.0f} s for running requests\n", options.drain_seconds);
  std::fflush(stderr);
  std::atomic<bool> drained{false};
  std::thread drainer([&] {
    server->drain(options.drain_seconds);
    drained = true;
  });
  while (!drained) {
    if (poll_signal(signals) != 0) std::_Exit(1);
  }
  drainer.join();
  return {};
}

}  // namespace perigee::server
