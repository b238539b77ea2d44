#include "planner/simulator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <deque>
#include <fstream>

#include "planner/catalogue.h"

namespace perigee::planner {
namespace {

StepModel step_model(std::int64_t dp, std::int64_t tp, std::int64_t captured, std::int64_t drafts = 0,
                     double accepted = 1) {
  const Catalogue& catalogue = built_in_catalogue();
  StepSetup setup;
  setup.shape = *catalogue.model("kimi-k3");
  setup.chip = *catalogue.chip("910c-752");
  setup.devices_per_node = 16;
  setup.format = *find_format("w4a8");
  setup.parallel = {.tp = tp, .dp = dp, .pp = 1, .dcp = 1, .expert_parallel = true};
  setup.times = (*catalogue.engine("vllm-ascend"))->times;
  setup.captured_tokens = captured;
  if (drafts > 0) {
    setup.draft.method = "dspark";
    setup.draft.tokens = drafts;
    setup.draft.accepted = accepted;
  }
  return StepModel(setup);
}

// The yardstick: one engine step after the other, every sequence kept by itself, no events and no runs of steps.
// Open arrivals, no prefix cache; the same rules otherwise.
struct ReplayPool {
  Role role;
  const StepModel* model;
  std::int64_t max_sequences, max_batched_tokens;
};

double replay_tokens_per_second(const std::vector<ReplayPool>& pools, const RequestSet& traffic, double transfer_ms) {
  struct Sequence {
    std::size_t request;
    double prompt_left, context, output_left;
  };
  struct Waiting {
    std::size_t request;
    double since;
  };
  struct Group {
    std::deque<Waiting> waiting;
    std::vector<Sequence> prefill, decode;
  };
  struct Pool {
    ReplayPool setup;
    std::vector<Group> groups;
    double now = 0;
    std::size_t turn = 0;
  };
  std::vector<Pool> state;
  for (const auto& pool : pools) {
    state.push_back({pool, std::vector<Group>(static_cast<std::size_t>(pool.model->setup().parallel.dp)), 0, 0});
  }
  const auto enqueue = [](Pool& pool, std::size_t request, double since) {
    std::size_t best = 0;
    std::size_t least = ~std::size_t{0};
    for (std::size_t i = 0; i < pool.groups.size(); ++i) {
      const std::size_t at = (pool.turn + i) % pool.groups.size();
      const Group& group = pool.groups[at];
      const std::size_t load = group.waiting.size() + group.prefill.size() + group.decode.size();
      if (load < least) {
        least = load;
        best = at;
      }
    }
    pool.turn = best + 1;
    pool.groups[best].waiting.push_back({request, since});
  };
  std::size_t next = 0;
  std::size_t done = 0;
  double last = 0;
  double output = 0;
  std::vector<std::pair<double, std::size_t>> in_flight;  // transfers
  while (done < traffic.requests.size()) {
    // The pool whose clock is furthest behind makes the next step.
    Pool& pool = state.size() > 1 && state[1].now < state[0].now ? state[1] : state[0];
    const bool entry = pool.setup.role != Role::kDecode;
    if (entry) {
      while (next < traffic.requests.size() && traffic.requests[next].arrival_ms <= pool.now) {
        enqueue(pool, next, traffic.requests[next].arrival_ms);
        ++next;
      }
    } else {
      std::sort(in_flight.begin(), in_flight.end());
      while (!in_flight.empty() && in_flight.front().first <= pool.now) {
        enqueue(pool, in_flight.front().second, in_flight.front().first);
        in_flight.erase(in_flight.begin());
      }
    }
    StepLoad worst;
    double pool_tokens = 0;
    double sequences = 0;
    double context = 0;
    for (Group& group : pool.groups) {
      while (!group.waiting.empty() &&
             std::ssize(group.prefill) + std::ssize(group.decode) < pool.setup.max_sequences) {
        const Request& request = traffic.requests[group.waiting.front().request];
        const Sequence sequence{group.waiting.front().request, static_cast<double>(request.input),
                                entry ? 0.0 : static_cast<double>(request.input), static_cast<double>(request.output)};
        (entry ? group.prefill : group.decode).push_back(sequence);
        group.waiting.pop_front();
      }
      double budget = static_cast<double>(pool.setup.max_batched_tokens) -
                      static_cast<double>(group.decode.size()) * pool.setup.model->tokens_per_sequence();
      const double whole = budget;
      StepLoad load;
      for (Sequence& sequence : group.prefill) {
        if (sequence.prompt_left > budget && budget < whole) break;
        const double chunk = std::min(sequence.prompt_left, budget);
        load.add_prompt(sequence.context, sequence.context + chunk, pool.setup.model->limit());
        sequence.prompt_left -= chunk;
        sequence.context += chunk;
        budget -= chunk;
        if (sequence.prompt_left <= 0) load.prompts += 1;
        if (budget <= 0) break;
      }
      pool_tokens +=
          load.prefill_tokens + static_cast<double>(group.decode.size()) * pool.setup.model->tokens_per_sequence();
      if (load.prefill_tokens > worst.prefill_tokens) worst = load;
      sequences = std::max(sequences, static_cast<double>(group.decode.size()));
      double here = 0;
      for (const Sequence& sequence : group.decode) here += sequence.context;
      context = std::max(context, here);
    }
    if (pool_tokens <= 0) {
      // Idle until something can happen to this pool.
      double wake = entry && next < traffic.requests.size() ? traffic.requests[next].arrival_ms : 1e300;
      if (!entry && !in_flight.empty()) wake = in_flight.front().first;
      if (wake > 1e299) wake = state.size() > 1 ? std::max(state[0].now, state[1].now) + 1 : pool.now + 1;
      pool.now = std::max(pool.now + 1e-6, wake);
      continue;
    }
    worst.sequences = sequences;
    worst.context = context;
    worst.pool_tokens = pool_tokens;
    pool.now += pool.setup.model->step(worst).total();
    for (Group& group : pool.groups) {
      for (Sequence& sequence : group.decode) {
        sequence.output_left -= pool.setup.model->accepted();
        sequence.context += pool.setup.model->accepted();
      }
      const auto ended = [&](const Sequence& sequence) { return sequence.output_left <= 1e-9; };
      for (const Sequence& sequence : group.decode) {
        if (!ended(sequence)) continue;
        ++done;
        last = std::max(last, pool.now);
        output += traffic.requests[sequence.request].output;
      }
      std::erase_if(group.decode, ended);
      for (Sequence& sequence : group.prefill) {
        if (sequence.prompt_left > 0) continue;
        if (pool.setup.role == Role::kPrefill) {
          in_flight.emplace_back(pool.now + transfer_ms, sequence.request);
        } else {
          sequence.output_left -= 1;
          group.decode.push_back(sequence);
        }
      }
      std::erase_if(group.prefill, [](const Sequence& sequence) { return sequence.prompt_left <= 0; });
    }
  }
  return output / (last - traffic.requests.front().arrival_ms) * 1000;
}

PoolSetup pool_setup(const ReplayPool& pool) {
  PoolSetup setup;
  setup.role = pool.role;
  setup.model = pool.model;
  setup.max_sequences = pool.max_sequences;
  setup.max_batched_tokens = pool.max_batched_tokens;
  setup.prefix_cache = false;
  return setup;
}

TEST(Simulator, AgreesWithAStepLevelReplay) {
  const StepModel mixed = step_model(4, 16, 16);
  const StepModel drafts = step_model(4, 16, 128, 7, 5.22);
  const StepModel prefill = step_model(4, 16, 0);
  const std::vector<std::vector<ReplayPool>> clusters = {
      {{Role::kMixed, &mixed, 16, 8192}},
      {{Role::kMixed, &drafts, 16, 8192}},
      {{Role::kPrefill, &prefill, 16, 8192}, {Role::kDecode, &mixed, 16, 8192}},
  };
  for (std::size_t c = 0; c < clusters.size(); ++c) {
    for (const double rate : {0.1, 0.4, 0.9}) {
      SyntheticTraffic traffic;
      traffic.requests = 200;
      traffic.per_second = rate;
      traffic.input_mean = 6000;
      traffic.input_spread = 0.6;
      traffic.output_mean = 500;
      traffic.output_spread = 0.5;
      const RequestSet requests = make_traffic(traffic);
      ClusterSetup cluster;
      for (const auto& pool : clusters[c]) cluster.pools.push_back(pool_setup(pool));
      cluster.transfer_ms = 50;
      const auto result = simulate(cluster, requests);
      ASSERT_TRUE(result.ok()) << result.status().message();
      const double replay = replay_tokens_per_second(clusters[c], requests, 50);
      EXPECT_NEAR(result->output_tokens_per_second / replay, 1, 0.05) << "cluster " << c << ", rate " << rate;
    }
  }
}

TEST(Simulator, SameSeedSameBits) {
  const StepModel model = step_model(4, 16, 16);
  SyntheticTraffic traffic;
  traffic.requests = 3000;
  traffic.per_second = 0.5;
  traffic.input_spread = 0.8;
  traffic.shared_prefix = 0.5;
  traffic.prefixes = 20;
  ClusterSetup cluster;
  PoolSetup pool = pool_setup({Role::kMixed, &model, 16, 8192});
  pool.prefix_cache = true;
  pool.instances = 2;
  pool.nodes = 4;
  cluster.pools = {pool};
  cluster.failures_per_node_hour = 0.3;
  cluster.repair_s = 120;
  const RequestSet requests = make_traffic(traffic);
  const auto a = simulate(cluster, requests);
  const auto b = simulate(cluster, make_traffic(traffic));
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(a->seconds, b->seconds);
  EXPECT_EQ(a->ttft_ms.p99, b->ttft_ms.p99);
  EXPECT_EQ(a->events, b->events);
  EXPECT_EQ(a->completed, 3000);
  EXPECT_GT(a->failures, 0);
  EXPECT_GT(a->restarted, 0);
  EXPECT_GT(a->prefix_hit, 0.3);
  EXPECT_LE(a->timeline.size(), 128U);
  cluster.seed = 2;
  EXPECT_NE(simulate(cluster, requests)->seconds, a->seconds);
}

TEST(Simulator, PrefixCacheAndFailuresActAsTheyShould) {
  const StepModel model = step_model(4, 16, 16);
  SyntheticTraffic traffic;
  traffic.requests = 400;
  traffic.per_second = 0.4;
  traffic.input_mean = 16384;
  traffic.shared_prefix = 0.9;
  const RequestSet requests = make_traffic(traffic);
  ClusterSetup cluster;
  PoolSetup pool = pool_setup({Role::kMixed, &model, 16, 8192});
  cluster.pools = {pool};
  const auto cold = simulate(cluster, requests);
  cluster.pools[0].prefix_cache = true;
  const auto cached = simulate(cluster, requests);
  cluster.pools[0].warm_groups = 4;
  const auto warm = simulate(cluster, requests);
  EXPECT_EQ(cold->prefix_hit, 0);
  EXPECT_NEAR(cached->prefix_hit, 0.9 * 396 / 400, 0.01);
  EXPECT_NEAR(warm->prefix_hit, 0.9, 0.001);
  EXPECT_LT(cached->ttft_ms.p50, cold->ttft_ms.p50);
  cluster.pools[0].prefix_tokens = 1000;  // too small for the prefix
  cluster.pools[0].warm_groups = 0;
  EXPECT_EQ(simulate(cluster, requests)->prefix_hit, 0);
  cluster.pools[0].cache_tokens = 10000;
  EXPECT_NE(simulate(cluster, requests).status().message().find("never fits"), std::string::npos);
}

TEST(Simulator, ReadsTracesAndRefusesBadOnes) {
  const std::string path = testing::TempDir() + "planner_trace.jsonl";
  const auto write = [&](const std::string& text) { std::ofstream(path) << text; };
  write(
      "{\"timestamp\":5,\"input_length\":10,\"output_length\":2,\"hash_ids\":[1,2]}\n\n"
      "{\"timestamp\":0,\"input_length\":7,\"output_length\":1}\n");
  const auto trace = read_trace(path, 100);
  ASSERT_TRUE(trace.ok()) << trace.status().message();
  ASSERT_EQ(trace->requests.size(), 2U);
  EXPECT_EQ(trace->requests[0].input, 7);
  EXPECT_EQ(trace->requests[1].blocks, 2U);
  for (const char* bad : {"{\"timestamp\":0,\"input_length\":-1,\"output_length\":1}\n", "nonsense\n", "[]\n", "",
                          "{\"timestamp\":0,\"input_length\":1,\"output_length\":1,\"hash_ids\":[99999999999]}\n"}) {
    write(bad);
    const auto result = read_trace(path, 100);
    EXPECT_FALSE(result.ok()) << bad;
    EXPECT_NE(result.status().message().find("planner_trace.jsonl"), std::string::npos) << result.status().message();
  }
  std::remove(path.c_str());
}

}  // namespace
}  // namespace perigee::planner
