// The prefix cache without a model: agent traffic and the published traces under byte limits (sizes of Kimi K3: 7.9 MB
// a block, 449 MB a state; spec cache.md 1.3), and the cost of one look-up. Hit rates are counters.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <string>

#include "agent_traffic.h"
#include "cache/cache_vectors.h"
#include "cache/prefix_cache.h"
#include "cache/toy_model.h"

namespace perigee {
namespace {

constexpr std::int64_t kGigabyte = 1'000'000'000;

// Args: RAM budget in GB (0: no limit), interval, branch states.
void agent_traffic(benchmark::State& state) {
  for (auto _ : state) {
    ToyAllocator allocator(1'975'000, 449'000'000);
    PrefixCacheOptions options;
    options.ram_bytes = state.range(0) * kGigabyte;
    options.snapshot_interval = state.range(1);
    options.branch_states = state.range(2) != 0;
    auto cache = PrefixCache::open(options, allocator);
    const PayloadRef any_state = allocator.state(0);
    AgentTraffic traffic(1, {});
    for (int i = 0; i < 1500; ++i) {
      const AgentRequest request = traffic.next();
      const auto session = (*cache)->begin({}, request.prompt, {}, request.system_end);
      const auto stored = [&](std::int64_t from, std::int64_t to) {
        for (std::int64_t begin = from / kBlockTokens * kBlockTokens; begin < to; begin += kBlockTokens) {
          const std::int64_t end = std::min(begin + kBlockTokens, to);
          if (session->wants_block(0, end)) {
            session->add_block(0, end,
                               allocator.block(std::vector<std::uint64_t>(static_cast<std::size_t>(end - begin))));
          }
        }
      };
      const CacheLookup& found = session->lookup();
      const std::int64_t reached =
          request.cancelled ? (found.restored_tokens + found.prompt_tokens) / 2 : found.prompt_tokens;
      std::int64_t at = found.restored_tokens;
      for (const std::int64_t position : session->snapshot_positions()) {
        if (position > reached) break;
        stored(at, position);
        session->add_state(0, position, any_state);
        at = position;
      }
      stored(at, reached);
      if (request.cancelled) {
        if (session->wants_state_on_cancel(0, reached)) session->add_state(0, reached, any_state);
        continue;
      }
      session->extend(0, std::span(request.answer).first(request.answer.size() - 1));
      const std::int64_t end = found.prompt_tokens + static_cast<std::int64_t>(request.answer.size()) - 1;
      stored(found.prompt_tokens, end);
      session->add_state(0, end, any_state);
    }
    const PrefixCacheStats stats = (*cache)->stats();
    state.counters["hit_percent"] =
        100.0 * static_cast<double>(stats.restored_tokens) / static_cast<double>(stats.prompt_tokens);
    state.counters["states"] = static_cast<double>(stats.states);
  }
}
BENCHMARK(agent_traffic)
    ->ArgNames({"GB", "interval", "branch"})
    ->ArgsProduct({{0, 64, 256}, {0, 32768}, {0, 1}})
    ->Unit(benchmark::kMillisecond)
    ->Iterations(1);

// Args: trace, RAM budget in GB, interval, branch states.
void trace_replay(benchmark::State& state) {
  const char* names[] = {"mooncake_conversation_2000.jsonl", "mooncake_synthetic_2000.jsonl"};
  for (auto _ : state) {
    TraceReplay replay;
    replay.ram_bytes = state.range(1) * kGigabyte;
    replay.interval = state.range(2);
    replay.branch = state.range(3) != 0;
    const std::string path = std::string(PERIGEE_SOURCE_DIR "/tests/data/cache/traces/") + names[state.range(0)];
    if (Status status = replay_trace(path, replay); !status.ok()) state.SkipWithError(status.message().c_str());
    state.counters["hit_percent"] = replay.hit_percent();
    state.counters["states"] = static_cast<double>(replay.states);
  }
}
BENCHMARK(trace_replay)
    ->ArgNames({"trace", "GB", "interval", "branch"})
    ->ArgsProduct({{0, 1}, {64, 256, 1000}, {0, 32768}, {0, 1}})
    ->Unit(benchmark::kMillisecond)
    ->Iterations(1);

// A full hit on 32k tokens: match, pins, hashing of the toy's bytes.
void warm_lookup(benchmark::State& state) {
  ToyAllocator allocator(1, 1);
  auto cache = PrefixCache::open({}, allocator);
  std::vector<TokenId> prompt(static_cast<std::size_t>(state.range(0)));
  for (std::size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<TokenId>(i);
  ToyRequest(**cache, allocator, {}, prompt, {}).prefill();
  for (auto _ : state) benchmark::DoNotOptimize((*cache)->begin({}, prompt, {}, 0));
}
BENCHMARK(warm_lookup)->Arg(32768)->Arg(262144)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace perigee
