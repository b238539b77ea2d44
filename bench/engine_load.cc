// The engine without a server: as many requests at once as `perigee_load` has streams, the same lengths and sampling.
// The ratio of the two programs' tokens a second is what the server costs.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <random>

#include "engine/open_engine.h"

int main(int argc, char** argv) {
  using namespace perigee;
  std::string directory;
  int streams = 64;
  int requests = 64;
  std::int64_t input_tokens = 64;
  std::int64_t max_tokens = 32;
  EngineOptions options;
  CLI::App app("Throughput of the engine alone");
  app.add_option("dir", directory, "Model folder")->required()->check(CLI::ExistingDirectory);
  app.add_option("--streams", streams, "requests at once");
  app.add_option("--requests", requests, "requests in all");
  app.add_option("--input-tokens", input_tokens);
  app.add_option("--max-tokens", max_tokens);
  app.add_option("--threads", options.threads);
  CLI11_PARSE(app, argc, argv);
  options.prefix_cache = false;
  const auto checkpoint = Checkpoint::open(directory, {});
  if (!checkpoint.ok()) {
    fmt::print(stderr, "{}\n", checkpoint.status().message());
    return 1;
  }
  const auto engine = open_engine(**checkpoint, options);
  if (!engine.ok()) {
    fmt::print(stderr, "{}\n", engine.status().message());
    return 1;
  }

  std::mutex mutex;
  std::condition_variable changed;
  int running = 0;
  int failed = 0;
  std::int64_t tokens = 0;
  std::mt19937_64 generator(1);
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < requests; ++i) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return running < streams; });
    ++running;
    lock.unlock();
    GenerationRequest request;
    for (std::int64_t k = 0; k < input_tokens; ++k)
      request.prompt.push_back(static_cast<TokenId>(generator() % 100000));
    request.sampling.top_p = 0.95F;
    request.sampling.seed = static_cast<std::uint64_t>(i);
    request.max_tokens = max_tokens;
    const auto handle = (*engine)->submit(std::move(request), [&](TokenEvent&& event) {
      const std::lock_guard guard(mutex);
      if (event.id >= 0) ++tokens;
      if (event.finish == FinishReason::kError) ++failed;
      if (event.finish != FinishReason::kNone) {
        --running;
        changed.notify_all();
      }
      return true;
    });
    if (!handle.ok()) {
      fmt::print(stderr, "{}\n", handle.status().message());
      return 1;
    }
  }
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return running == 0; });
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  fmt::print("requests {} failed {} streams {} seconds {:.2f} tokens {} tokens/s {:.1f}\n", requests, failed, streams,
             seconds, tokens, static_cast<double>(tokens) / seconds);
  return failed == 0 ? 0 : 1;
}
