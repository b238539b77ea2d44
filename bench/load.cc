// Load on a running server over plain HTTP: closed loop, open loop, a trace replayed, or idle connections.
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/json.h"
#include "load_client.h"
#include "server/http_server.h"

namespace {

using perigee::bench::LoadJob;
using perigee::bench::LoadOutcome;
using perigee::bench::LoadResult;

constexpr std::int64_t kTraceBlock = 512;  // tokens that one hash id of a trace stands for

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
  std::int64_t scale = 1;
  std::int64_t input_tokens = 0;
  std::int64_t max_tokens = 200;
  bool ignore_eos = false;
  int idle = 0;
  int pid = 0;
};

// About one token each; the same seed gives the same words.
void append_words(std::uint64_t seed, std::int64_t count, std::string& out) {
  static constexpr const char* kWords[] = {" the",  " of",   " and",   " to",   " in",    " is",   " for", " that",
                                           " with", " time", " water", " moon", " light", " work", " day", " year"};
  std::mt19937_64 generator(seed * 0x9E3779B97F4A7C15ULL + 1);
  for (std::int64_t i = 0; i < count; ++i) out += kWords[generator() % std::size(kWords)];
}

std::string prompt_of(const Options& options, const LoadJob& job, std::size_t index) {
  std::string prompt = options.prompt;
  if (job.blocks.empty()) append_words(index, job.input, prompt);
  std::int64_t left = job.input;
  for (const std::int64_t block : job.blocks) {
    const std::int64_t words = std::min(left, kTraceBlock / options.scale);
    append_words(static_cast<std::uint64_t>(block), words, prompt);
    left -= words;
  }
  return prompt;
}

std::string request_text(const Options& options, const LoadJob& job, std::size_t index) {
  const perigee::Json body = {{"model", options.model},
                              {"messages", {{{"role", "user"}, {"content", prompt_of(options, job, index)}}}},
                              {"max_completion_tokens", job.output},
                              {"ignore_eos", options.ignore_eos || !options.trace.empty()},
                              {"stream", true},
                              {"stream_options", {{"include_usage", true}}}};
  const std::string text = body.dump();
  return fmt::format(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n{}"
      "Content-Length: {}\r\n\r\n{}",
      options.host, options.key.empty() ? "" : "Authorization: Bearer " + options.key + "\r\n", text.size(), text);
}

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

std::vector<LoadJob> trace_jobs(const Options& options) {
  std::vector<LoadJob> jobs;
  std::ifstream file(options.trace);
  for (std::string line; std::getline(file, line) && jobs.size() < static_cast<std::size_t>(options.requests);) {
    const auto entry = perigee::parse_json(line);
    if (!entry.ok()) continue;
    jobs.push_back({.at = entry->value("timestamp", 0.0) / 1000 / options.speed,
                    .input = entry->value("input_length", std::int64_t{1}) / options.scale,
                    .output = std::max<std::int64_t>(1, entry->value("output_length", std::int64_t{1}) / options.scale),
                    .blocks = entry->value("hash_ids", std::vector<std::int64_t>())});
  }
  return jobs;
}

std::vector<LoadJob> make_jobs(const Options& options) {
  if (!options.trace.empty()) return trace_jobs(options);
  // Poisson arrivals for the open loop, from a fixed seed.
  std::mt19937_64 generator(1);
  std::exponential_distribution<double> gap(options.rate > 0 ? options.rate : 1);
  std::vector<LoadJob> jobs;
  double at = 0;
  for (int i = 0; i < options.requests; ++i) {
    if (options.rate > 0) at += gap(generator);
    jobs.push_back({.at = at, .input = options.input_tokens, .output = options.max_tokens});
  }
  return jobs;
}

int load(const Options& options) {
  const std::vector<LoadJob> jobs = make_jobs(options);
  const auto [cpu_before, rss_before] = usage_of(options.pid);
  LoadResult result =
      perigee::bench::run_load(options.host, options.port, options.streams, jobs,
                               [&](std::size_t index) { return request_text(options, jobs[index], index); });
  const auto [cpu_after, rss_after] = usage_of(options.pid);
  std::vector<double> first;
  std::vector<double> total;
  std::vector<double> late;
  std::int64_t tokens = 0;
  for (const LoadOutcome& outcome : result.outcomes) {
    late.push_back(outcome.late);
    if (!outcome.ok) continue;
    first.push_back(outcome.first);
    total.push_back(outcome.total);
    tokens += outcome.tokens;
  }
  const auto ms = [](std::vector<double>& values, double p) { return 1000 * percentile(values, p); };
  fmt::print("requests {} ok {} streams {} seconds {:.2f} tokens {} tokens/s {:.1f}\n", jobs.size(), first.size(),
             options.streams, result.seconds, tokens, static_cast<double>(tokens) / result.seconds);
  fmt::print("first token ms    p50 {:.2f} p90 {:.2f} p99 {:.2f}\n", ms(first, 0.5), ms(first, 0.9), ms(first, 0.99));
  fmt::print("inter-token ms    p50 {:.2f} p90 {:.2f} p99 {:.2f} max {:.2f}\n", ms(result.gaps, 0.5),
             ms(result.gaps, 0.9), ms(result.gaps, 0.99), ms(result.gaps, 1));
  fmt::print("whole request ms  p50 {:.2f} p99 {:.2f}\n", ms(total, 0.5), ms(total, 0.99));
  if (options.rate > 0 || !options.trace.empty()) {
    fmt::print("started late ms   p50 {:.2f} p99 {:.2f}\n", ms(late, 0.5), ms(late, 0.99));
  }
  if (options.pid != 0) {
    fmt::print("server cpu us/token {:.2f}, resident {} -> {} KiB\n",
               1e6 * (cpu_after - cpu_before) / static_cast<double>(std::max<std::int64_t>(1, tokens)), rss_before,
               rss_after);
  }
  return first.size() == jobs.size() ? 0 : 1;
}

int hold_idle(const Options& options) {
  const auto [cpu_before, before] = usage_of(options.pid);
  std::vector<int> sockets;
  const std::string request = fmt::format("GET /health/live HTTP/1.1\r\nHost: {}\r\n\r\n", options.host);
  char buffer[4096];
  for (int i = 0; i < options.idle; ++i) {
    const int fd = perigee::bench::connect_to(options.host, options.port);
    if (fd < 0 || !perigee::bench::send_all(fd, request) || ::recv(fd, buffer, sizeof buffer, 0) <= 0) {
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
  app.add_option("--prompt", options.prompt, "begins every prompt");
  app.add_option("--input-tokens", options.input_tokens, "random words after it, other ones in each request");
  app.add_option("--streams", options.streams, "requests at once, at most")->check(CLI::Range(1, 16384));
  app.add_option("--requests", options.requests, "requests in all")->check(CLI::Range(1, 1000000));
  app.add_option("--max-tokens", options.max_tokens);
  app.add_flag("--ignore-eos", options.ignore_eos, "answers are as long as --max-tokens");
  app.add_option("--rate", options.rate, "open loop: arrivals per second (Poisson); 0: closed loop");
  app.add_option("--trace", options.trace, "JSON lines of timestamp (ms), input_length, output_length, hash_ids")
      ->check(CLI::ExistingFile);
  app.add_option("--speed", options.speed, "of the trace's clock")->check(CLI::PositiveNumber);
  app.add_option("--scale", options.scale, "divides the lengths of the trace")->check(CLI::Range(1, 512));
  app.add_option("--idle", options.idle, "only hold that many idle connections for a second");
  app.add_option("--pid", options.pid, "the server's process: prints its CPU time and memory");
  CLI11_PARSE(app, argc, argv);
  perigee::server::raise_file_limit();
  return options.idle > 0 ? hold_idle(options) : load(options);
}
