// Load on a running server over plain HTTP: closed loop, open loop, a trace replayed, or idle connections. Blocking
// sockets, one thread a stream, so that the client costs little beside what it measures.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/json.h"
#include "server/http_server.h"

namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::string host = "127.0.0.1";
  std::uint16_t port = 8000;
  std::string model = "kimi-k3";
  std::string key;
  std::string prompt = "many words";
  std::string trace;
  int streams = 64;
  int requests = 256;
  double rate = 0;
  double speed = 1;
  std::int64_t max_tokens = 200;
  int idle = 0;
  int pid = 0;
};

struct Job {
  double at = 0;           // seconds after the start
  std::int64_t input = 0;  // words; 0: the prompt as it is
  std::int64_t output = 0;
};

struct Sample {
  double first = 0;
  double total = 0;
  std::int64_t tokens = 0;
  bool ok = false;
};

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

int connect_to(const Options& options) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(options.port);
  ::inet_pton(AF_INET, options.host.c_str(), &address.sin_addr);
  const int one = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) return fd;
  ::close(fd);
  return -1;
}

bool send_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

std::string request_text(const Options& options, const Job& job) {
  std::string prompt = options.prompt;
  for (std::int64_t i = 0; i < job.input; ++i) prompt += " word";
  perigee::Json body = {{"model", options.model},
                        {"messages", {{{"role", "user"}, {"content", std::move(prompt)}}}},
                        {"max_completion_tokens", job.output},
                        {"ignore_eos", !options.trace.empty()},
                        {"stream", true}};
  const std::string text = body.dump();
  return fmt::format(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n{}"
      "Content-Length: {}\r\n\r\n{}",
      options.host, options.key.empty() ? "" : "Authorization: Bearer " + options.key + "\r\n", text.size(), text);
}

class Client {
 public:
  Client(const Options& options, std::vector<double>& gaps) : options_(options), gaps_(gaps) {}
  ~Client() {
    if (fd_ >= 0) ::close(fd_);
  }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  Sample run(const Job& job) {
    Sample sample;
    const auto start = Clock::now();
    if (fd_ < 0) fd_ = connect_to(options_);
    if (fd_ < 0 || !send_all(fd_, request_text(options_, job))) return fail();
    std::string tail;
    auto last = start;
    char buffer[65536];
    for (;;) {
      const ssize_t n = ::recv(fd_, buffer, sizeof buffer, 0);
      if (n <= 0) return fail();
      const auto now = Clock::now();
      tail.append(buffer, static_cast<std::size_t>(n));
      // Every token is one event of at least this form; role, finish and end have none.
      std::int64_t events = 0;
      std::size_t keep = 0;
      for (std::size_t at = 0; (at = tail.find("content\":\"", at)) != std::string::npos;) {
        at += 10;
        if (at == tail.size()) break;  // cut in the middle: counted with the next piece
        keep = at;
        if (tail[at] != '"') ++events;
      }
      if (events > 0) {
        if (sample.tokens == 0) {
          sample.first = std::chrono::duration<double>(now - start).count();
        } else {
          gaps_.push_back(std::chrono::duration<double>(now - last).count());
        }
        sample.tokens += events;
        last = now;
      }
      if (tail.find("data: [DONE]") != std::string::npos && tail.ends_with("0\r\n\r\n")) break;
      tail.erase(0, std::max(keep, tail.size() > 64 ? tail.size() - 64 : 0));
    }
    sample.total = since(start);
    sample.ok = true;
    return sample;
  }

 private:
  Sample fail() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
    return {};
  }

  const Options& options_;
  std::vector<double>& gaps_;
  int fd_ = -1;
};

double percentile(std::vector<double>& values, double p) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[std::min(values.size() - 1, static_cast<std::size_t>(p * static_cast<double>(values.size())))];
}

// CPU seconds (user + system) and resident KiB of a process.
std::pair<double, long> usage_of(int pid) {
  if (pid == 0) return {0, 0};
  std::ifstream stat(fmt::format("/proc/{}/stat", pid));
  std::string text((std::istreambuf_iterator<char>(stat)), {});
  text.erase(0, text.rfind(')') + 2);
  std::istringstream fields(text);
  std::string skip;
  double user = 0;
  double system = 0;
  for (int i = 3; i < 14; ++i) fields >> skip;
  fields >> user >> system;
  for (int i = 16; i < 24; ++i) fields >> skip;
  long pages = 0;
  fields >> pages;
  const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  return {(user + system) / ticks, pages * (::sysconf(_SC_PAGESIZE) / 1024)};
}

std::vector<Job> make_jobs(const Options& options) {
  std::vector<Job> jobs;
  if (!options.trace.empty()) {
    std::ifstream file(options.trace);
    for (std::string line; std::getline(file, line) && jobs.size() < static_cast<std::size_t>(options.requests);) {
      const auto entry = perigee::parse_json(line);
      if (!entry.ok()) continue;
      jobs.push_back({entry->value("timestamp", 0.0) / 1000 / options.speed,
                      entry->value("input_length", std::int64_t{1}),
                      std::max<std::int64_t>(1, entry->value("output_length", std::int64_t{1}))});
    }
    return jobs;
  }
  // Poisson arrivals for the open loop, from a fixed seed.
  std::mt19937_64 generator(1);
  std::exponential_distribution<double> gap(options.rate > 0 ? options.rate : 1);
  double at = 0;
  for (int i = 0; i < options.requests; ++i) {
    if (options.rate > 0) at += gap(generator);
    jobs.push_back({at, 0, options.max_tokens});
  }
  return jobs;
}

int run_load(const Options& options) {
  const std::vector<Job> jobs = make_jobs(options);
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::vector<Sample> samples;
  std::vector<double> gaps;
  std::vector<double> lateness;
  const auto [cpu_before, rss_before] = usage_of(options.pid);
  const auto start = Clock::now();
  std::vector<std::thread> threads;
  for (int i = 0; i < options.streams; ++i) {
    threads.emplace_back([&] {
      std::vector<double> own_gaps;
      Client client(options, own_gaps);
      for (std::size_t j = 0; (j = next++) < jobs.size();) {
        const double wait = jobs[j].at - since(start);
        if (wait > 0) std::this_thread::sleep_for(std::chrono::duration<double>(wait));
        const double late = since(start) - jobs[j].at;
        const Sample sample = client.run(jobs[j]);
        const std::lock_guard lock(mutex);
        samples.push_back(sample);
        lateness.push_back(late);
      }
      const std::lock_guard lock(mutex);
      gaps.insert(gaps.end(), own_gaps.begin(), own_gaps.end());
    });
  }
  for (std::thread& thread : threads) thread.join();
  const double seconds = since(start);
  const auto [cpu_after, rss_after] = usage_of(options.pid);
  std::vector<double> first;
  std::vector<double> total;
  std::int64_t tokens = 0;
  for (const Sample& sample : samples) {
    if (!sample.ok) continue;
    first.push_back(sample.first);
    total.push_back(sample.total);
    tokens += sample.tokens;
  }
  const auto ms = [](std::vector<double>& values, double p) { return 1000 * percentile(values, p); };
  fmt::print("requests {} ok {} streams {} seconds {:.2f} tokens {} tokens/s {:.0f}\n", samples.size(), first.size(),
             options.streams, seconds, tokens, static_cast<double>(tokens) / seconds);
  fmt::print("first token ms    p50 {:.2f} p90 {:.2f} p99 {:.2f}\n", ms(first, 0.5), ms(first, 0.9), ms(first, 0.99));
  fmt::print("inter-token ms    p50 {:.2f} p90 {:.2f} p99 {:.2f} max {:.2f}\n", ms(gaps, 0.5), ms(gaps, 0.9),
             ms(gaps, 0.99), ms(gaps, 1));
  fmt::print("whole request ms  p50 {:.2f} p99 {:.2f}\n", ms(total, 0.5), ms(total, 0.99));
  if (options.rate > 0 || !options.trace.empty()) {
    fmt::print("started late ms   p50 {:.2f} p99 {:.2f}\n", ms(lateness, 0.5), ms(lateness, 0.99));
  }
  if (options.pid != 0) {
    fmt::print("server cpu us/token {:.2f}, resident {} -> {} KiB\n",
               1e6 * (cpu_after - cpu_before) / static_cast<double>(std::max<std::int64_t>(1, tokens)), rss_before,
               rss_after);
  }
  return first.size() == samples.size() ? 0 : 1;
}

int run_idle(const Options& options) {
  const auto [cpu_before, before] = usage_of(options.pid);
  std::vector<int> sockets;
  const std::string request = fmt::format("GET /health/live HTTP/1.1\r\nHost: {}\r\n\r\n", options.host);
  char buffer[4096];
  for (int i = 0; i < options.idle; ++i) {
    const int fd = connect_to(options);
    if (fd < 0 || !send_all(fd, request) || ::recv(fd, buffer, sizeof buffer, 0) <= 0) {
      fmt::print("connection {} failed\n", i);
      if (fd >= 0) ::close(fd);
      break;
    }
    sockets.push_back(fd);
  }
  std::this_thread::sleep_for(std::chrono::seconds(1));
  const auto [cpu_after, after] = usage_of(options.pid);
  fmt::print("idle connections {}: resident {} -> {} KiB, {:.2f} KiB each\n", sockets.size(), before, after,
             static_cast<double>(after - before) / static_cast<double>(std::max<std::size_t>(1, sockets.size())));
  const bool complete = static_cast<int>(sockets.size()) == options.idle;
  for (const int fd : sockets) ::close(fd);
  return complete ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Load on a running server");
  app.add_option("--host", options.host, "IPv4 address");
  app.add_option("--port", options.port);
  app.add_option("--model", options.model);
  app.add_option("--key", options.key);
  app.add_option("--prompt", options.prompt);
  app.add_option("--streams", options.streams, "requests at once")->check(CLI::Range(1, 4096));
  app.add_option("--requests", options.requests, "requests in all")->check(CLI::Range(1, 1000000));
  app.add_option("--max-tokens", options.max_tokens);
  app.add_option("--rate", options.rate, "open loop: arrivals per second (Poisson); 0: closed loop");
  app.add_option("--trace", options.trace, "JSON lines of timestamp (ms), input_length, output_length")
      ->check(CLI::ExistingFile);
  app.add_option("--speed", options.speed, "of the trace's clock")->check(CLI::PositiveNumber);
  app.add_option("--idle", options.idle, "only hold that many idle connections for a second");
  app.add_option("--pid", options.pid, "the server's process: prints its CPU time and memory");
  CLI11_PARSE(app, argc, argv);
  perigee::server::raise_file_limit();
  return options.idle > 0 ? run_idle(options) : run_load(options);
}
