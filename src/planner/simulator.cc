#include "planner/simulator.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <list>
#include <queue>
#include <unordered_map>
#include <utility>

#include "planner/random.h"

namespace perigee::planner {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr std::size_t kTimelinePoints = 128;
constexpr double kHour = 3600e3;

// Prefix blocks that one group keeps, least recently used first out.
class PrefixCache {
 public:
  std::int64_t leading(const std::uint32_t* ids, std::uint32_t count) const {
    std::int64_t hits = 0;
    while (hits < count && where_.contains(ids[hits])) ++hits;
    return hits;
  }
  // Deepest block first, so that a chain loses its tail before its head.
  void keep(const std::uint32_t* ids, std::uint32_t count, double block_tokens, double capacity) {
    for (std::uint32_t i = count; i-- > 0;) {
      const auto found = where_.find(ids[i]);
      if (found != where_.end()) {
        order_.splice(order_.end(), order_, found->second);
      } else {
        where_.emplace(ids[i], order_.insert(order_.end(), ids[i]));
      }
    }
    while (!order_.empty() && static_cast<double>(order_.size()) * block_tokens > capacity) {
      where_.erase(order_.front());
      order_.pop_front();
    }
  }
  void clear() {
    order_.clear();
    where_.clear();
  }

 private:
  std::list<std::uint32_t> order_;
  std::unordered_map<std::uint32_t, std::list<std::uint32_t>::iterator> where_;
};

struct Prompt {
  std::uint32_t request;
  double done;   // tokens computed or restored
  double chunk;  // of these, planned for the step in progress
};

struct Group {
  std::deque<std::uint32_t> waiting;
  std::vector<Prompt> prompts;  // admitted, in prefill
  std::int64_t running = 0;
  double context = 0;       // sum over running sequences
  double held_tokens = 0;   // reserved in the cache
  double link_free_ms = 0;  // decode: end of the last transfer
  PrefixCache prefixes;

  std::int64_t load() const {
    return running + static_cast<std::int64_t>(prompts.size()) + static_cast<std::int64_t>(waiting.size());
  }
};

struct Finish {
  std::int64_t step;
  std::uint32_t group;
  std::uint32_t request;
  bool operator>(const Finish& other) const { return step != other.step ? step > other.step : request > other.request; }
};

struct Instance {
  std::size_t pool = 0;
  std::vector<Group> groups;
  std::priority_queue<Finish, std::vector<Finish>, std::greater<>> finishes;
  std::int64_t clock = 0;  // steps since the start
  bool busy = false, mixed = false, up = true, starting = false;
  std::uint32_t version = 0;  // of the step in progress; events of older ones are void
  double step_start = 0, step_ms = 0;
  std::int64_t run = 0;  // steps until the event
  double busy_prefill_ms = 0, busy_decode_ms = 0;
};

enum class Kind : std::uint8_t { kArrival, kStart, kStepEnd, kTransferred, kFailure, kRepair };

struct Event {
  double time;
  std::uint64_t order;
  Kind kind;
  std::uint32_t instance, group, request, version;
  bool operator>(const Event& other) const { return time != other.time ? time > other.time : order > other.order; }
};

class Simulation {
 public:
  Simulation(const ClusterSetup& cluster, const RequestSet& traffic)
      : cluster_(cluster), traffic_(traffic), random_(cluster.seed) {
    const std::size_t n = traffic.requests.size();
    sent_.resize(n);
    first_.assign(n, -1);
    ended_.assign(n, -1);
    for (std::size_t p = 0; p < cluster.pools.size(); ++p) {
      const PoolSetup& pool = cluster.pools[p];
      for (std::int64_t i = 0; i < pool.instances; ++i) {
        Instance& instance = instances_.emplace_back();
        instance.pool = p;
        instance.groups.resize(static_cast<std::size_t>(pool.model->setup().parallel.dp));
        for (std::uint32_t g = 0; g < instance.groups.size(); ++g) {
          places_[p].emplace_back(static_cast<std::uint32_t>(instances_.size() - 1), g);
        }
        for (std::int64_t g = 0; g < std::min<std::int64_t>(pool.warm_groups, std::ssize(instance.groups)); ++g) {
          for (const Request& request : traffic.requests) {
            instance.groups[static_cast<std::size_t>(g)].prefixes.keep(
                traffic.blocks.data() + request.first_block, request.blocks, static_cast<double>(traffic.block_tokens),
                pool.prefix_tokens);
          }
        }
      }
    }
    decode_pool_ = cluster.pools.size() > 1 ? 1 : 0;
  }

  SimulationResult run() {
    if (cluster_.failures_per_node_hour > 0) {
      for (std::uint32_t i = 0; i < instances_.size(); ++i) schedule_failure(i, 0);
    }
    send_due(0);
    while (completed_ < std::ssize(traffic_.requests) && !events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      ++result_.events;
      handle(event);
      sample(event.time);
    }
    return finish();
  }

 private:
  const PoolSetup& pool_of(const Instance& instance) const { return cluster_.pools[instance.pool]; }
  bool entry(const Instance& instance) const { return pool_of(instance).role != Role::kDecode; }

  void push(double time, Kind kind, std::uint32_t instance, std::uint32_t group, std::uint32_t request,
            std::uint32_t version) {
    events_.push({time, order_++, kind, instance, group, request, version});
  }

  void schedule_failure(std::uint32_t instance, double now) {
    const double rate =
        cluster_.failures_per_node_hour * static_cast<double>(pool_of(instances_[instance]).nodes) / kHour;
    push(now + random_.exponential(1 / rate), Kind::kFailure, instance, 0, 0, 0);
  }

  void handle(const Event& event) {
    switch (event.kind) {
      case Kind::kArrival:
        send_due(event.time);
        break;
      case Kind::kStart:
        instances_[event.instance].starting = false;
        if (!instances_[event.instance].busy && instances_[event.instance].up) start_step(event.instance, event.time);
        break;
      case Kind::kStepEnd:
        if (instances_[event.instance].version == event.version) end_step(event.instance, event.time);
        break;
      case Kind::kTransferred: {
        Instance& target = instances_[event.instance];
        if (!target.up) {
          restart(event.request, event.time);
          break;
        }
        target.groups[event.group].waiting.push_back(event.request);
        wake(event.instance, event.group, event.time);
        break;
      }
      case Kind::kFailure:
        fail(event.instance, event.time);
        break;
      case Kind::kRepair:
        instances_[event.instance].up = true;
        schedule_failure(event.instance, event.time);
        for (const auto request : std::exchange(stranded_, {})) route(request, event.time);
        break;
    }
  }

  // Clients send what is due while they may have more in flight.
  void send_due(double now) {
    const std::size_t n = traffic_.requests.size();
    while (next_ < n && (cluster_.concurrency == 0 || in_flight_ < cluster_.concurrency)) {
      const double due = traffic_.requests[next_].arrival_ms;
      if (due > now) {
        if (scheduled_ != next_ + 1) {
          scheduled_ = next_ + 1;
          push(due, Kind::kArrival, 0, 0, 0, 0);
        }
        return;
      }
      const auto request = static_cast<std::uint32_t>(next_++);
      ++in_flight_;
      sent_[request] = now;
      route(request, now);
    }
  }

  double hit_tokens(const PoolSetup& pool, const Group& group, const Request& request) const {
    if (!pool.prefix_cache || request.blocks == 0) return 0;
    const std::int64_t blocks = group.prefixes.leading(traffic_.blocks.data() + request.first_block, request.blocks);
    const std::int64_t tokens = std::min<std::int64_t>(blocks * traffic_.block_tokens, request.input - 1);
    const std::int64_t whole_quanta = tokens / pool.prefix_quantum;
    return static_cast<double>(whole_quanta * pool.prefix_quantum);
  }

  // The least loaded group of a pool, equals in turn; with cache awareness a full hit is worth some queue.
  std::pair<std::uint32_t, std::uint32_t> choose(std::size_t pool_index, const Request& request) {
    constexpr double kHitWorth = 4;  // queued requests
    const std::vector<Place>& places = places_[pool_index];
    std::size_t best = places.size();
    double best_score = kNever;
    for (std::size_t i = 0; i < places.size(); ++i) {
      const std::size_t at = (turn_[pool_index] + i) % places.size();
      const Instance& instance = instances_[places[at].first];
      if (!instance.up) continue;
      const Group& group = instance.groups[places[at].second];
      auto score = static_cast<double>(group.load());
      if (cluster_.cache_aware && pool_index == 0) {
        score -= kHitWorth * hit_tokens(pool_of(instance), group, request) / request.input;
      }
      if (score < best_score) {
        best_score = score;
        best = at;
        if (score <= 0 && !cluster_.cache_aware) break;
      }
    }
    if (best == places.size()) return {~0U, 0};
    turn_[pool_index] = best + 1;
    return places[best];
  }

  void route(std::uint32_t request, double now) {
    const auto [instance, group] = choose(0, traffic_.requests[request]);
    if (instance == ~0U) {
      stranded_.push_back(request);
      return;
    }
    instances_[instance].groups[group].waiting.push_back(request);
    wake(instance, group, now);
  }

  void restart(std::uint32_t request, double now) {
    ++result_.restarted;
    first_[request] = -1;
    route(request, now);
  }

  bool can_admit(const PoolSetup& pool, const Group& group) const {
    if (group.waiting.empty()) return false;
    if (group.running + std::ssize(group.prompts) >= pool.max_sequences) return false;
    return group.held_tokens + tokens_of(group.waiting.front()) <= pool.cache_tokens;
  }
  double tokens_of(std::uint32_t request) const {
    return static_cast<double>(traffic_.requests[request].input) +
           static_cast<double>(traffic_.requests[request].output);
  }

  // Something new waits at a group: start a step, or end the run of decode steps at the next step boundary.
  void wake(std::uint32_t index, std::uint32_t group, double now) {
    Instance& instance = instances_[index];
    if (!instance.busy) {
      // By an event of its own, so that requests of the same moment share the step.
      if (!instance.starting) push(now, Kind::kStart, index, 0, 0, 0);
      instance.starting = true;
      return;
    }
    if (instance.mixed || instance.run <= 1 || !can_admit(pool_of(instance), instance.groups[group])) return;
    const auto passed = static_cast<std::int64_t>(std::ceil((now - instance.step_start) / instance.step_ms));
    const std::int64_t steps = std::max<std::int64_t>(passed, 1);
    if (steps >= instance.run) return;
    instance.run = steps;
    ++instance.version;
    push(instance.step_start + static_cast<double>(steps) * instance.step_ms, Kind::kStepEnd, index, 0, 0,
         instance.version);
  }

  void admit(Instance& instance, Group& group, std::uint32_t group_index) {
    const PoolSetup& pool = pool_of(instance);
    while (can_admit(pool, group)) {
      const std::uint32_t id = group.waiting.front();
      group.waiting.pop_front();
      group.held_tokens += tokens_of(id);
      const Request& request = traffic_.requests[id];
      if (pool.role == Role::kDecode) {
        joined_.push_back(id);
        join(instance, group, group_index, id, request.output);
        continue;
      }
      const double hit = hit_tokens(pool, group, request);
      hit_tokens_ += hit;
      group.prompts.push_back({id, hit, 0});
    }
  }

  void join(Instance& instance, Group& group, std::uint32_t group_index, std::uint32_t id, std::int64_t output) {
    const double accepted = pool_of(instance).model->accepted();
    const auto steps = static_cast<std::int64_t>(std::ceil(static_cast<double>(output) / accepted));
    ++group.running;
    group.context += traffic_.requests[id].input;
    instance.finishes.push({instance.clock + steps, group_index, id});
  }

  // Whole prompts up to the budget of the step; a prompt longer than the budget is cut.
  void plan_chunks(const PoolSetup& pool, Group& group, StepLoad& load) {
    double budget = static_cast<double>(pool.max_batched_tokens) -
                    static_cast<double>(group.running) * pool.model->tokens_per_sequence();
    budget = std::max(budget, 1.0);
    const double whole = budget;
    for (Prompt& prompt : group.prompts) {
      const double left = traffic_.requests[prompt.request].input - prompt.done;
      if (left > budget && budget < whole) break;
      prompt.chunk = std::min(left, budget);
      budget -= prompt.chunk;
      load.add_prompt(prompt.done, prompt.done + prompt.chunk, pool.model->limit());
      if (prompt.chunk >= left) load.prompts += 1;
      if (budget <= 0) break;
    }
  }

  void start_step(std::uint32_t index, double now) {
    Instance& instance = instances_[index];
    const PoolSetup& pool = pool_of(instance);
    const double width = pool.model->tokens_per_sequence();
    StepLoad worst;
    double pool_tokens = 0;
    std::int64_t sequences = 0;
    double context = 0;
    joined_.clear();
    for (std::uint32_t g = 0; g < instance.groups.size(); ++g) {
      Group& group = instance.groups[g];
      admit(instance, group, g);
      StepLoad load;
      if (!group.prompts.empty()) plan_chunks(pool, group, load);
      pool_tokens += load.prefill_tokens + static_cast<double>(group.running) * width;
      if (load.prefill_tokens > worst.prefill_tokens) worst = load;
      sequences = std::max(sequences, group.running);
      context = std::max(context, group.context);
    }
    if (pool_tokens <= 0) return;
    worst.sequences = static_cast<double>(sequences);
    worst.context = context;
    worst.pool_tokens = pool_tokens;
    instance.mixed = worst.prefill_tokens > 0;
    instance.run = 1;
    if (!instance.mixed) {
      instance.run = std::max<std::int64_t>(instance.finishes.top().step - instance.clock, 1);
      worst.context += worst.sequences * pool.model->accepted() * static_cast<double>(instance.run) / 2;
    }
    instance.busy = true;
    instance.step_start = now;
    instance.step_ms = pool.model->step(worst).total();
    ++instance.version;
    for (const auto request : joined_) first_[request] = now + instance.step_ms;
    push(now + static_cast<double>(instance.run) * instance.step_ms, Kind::kStepEnd, index, 0, 0, instance.version);
  }

  void end_step(std::uint32_t index, double now) {
    Instance& instance = instances_[index];
    const PoolSetup& pool = pool_of(instance);
    instance.busy = false;
    (instance.mixed ? instance.busy_prefill_ms : instance.busy_decode_ms) += now - instance.step_start;
    result_.steps += instance.run;
    instance.clock += instance.run;
    const double grown = pool.model->accepted() * static_cast<double>(instance.run);
    for (std::uint32_t g = 0; g < instance.groups.size(); ++g) {
      Group& group = instance.groups[g];
      group.context += static_cast<double>(group.running) * grown;
      if (instance.mixed) end_prompts(index, g, now);
    }
    while (!instance.finishes.empty() && instance.finishes.top().step <= instance.clock) {
      const Finish done = instance.finishes.top();
      instance.finishes.pop();
      Group& group = instance.groups[done.group];
      const Request& request = traffic_.requests[done.request];
      --group.running;
      group.context = group.running > 0 ? group.context - request.input - request.output : 0;
      group.context = std::max(group.context, 0.0);
      group.held_tokens -= tokens_of(done.request);
      complete(done.request, now);
    }
    send_due(now);
    if (!instance.busy) start_step(index, now);
  }

  void end_prompts(std::uint32_t index, std::uint32_t group_index, double now) {
    Instance& instance = instances_[index];
    const PoolSetup& pool = pool_of(instance);
    Group& group = instance.groups[group_index];
    std::size_t kept = 0;
    for (Prompt& prompt : group.prompts) {
      prompt.done += std::exchange(prompt.chunk, 0);
      const Request& request = traffic_.requests[prompt.request];
      if (prompt.done < request.input) {
        group.prompts[kept++] = prompt;
        continue;
      }
      if (pool.prefix_cache && request.blocks > 0) {
        group.prefixes.keep(traffic_.blocks.data() + request.first_block, request.blocks,
                            static_cast<double>(traffic_.block_tokens), pool.prefix_tokens);
      }
      if (pool.role == Role::kPrefill) {
        group.held_tokens -= tokens_of(prompt.request);
        transfer(prompt.request, now);
        continue;
      }
      first_[prompt.request] = now;
      if (request.output <= 1) {
        group.held_tokens -= tokens_of(prompt.request);
        complete(prompt.request, now);
      } else {
        join(instance, group, group_index, prompt.request, request.output - 1);
      }
    }
    group.prompts.resize(kept);
  }

  void transfer(std::uint32_t id, double now) {
    const Request& request = traffic_.requests[id];
    const auto [instance, group] = choose(decode_pool_, request);
    if (instance == ~0U) {
      restart(id, now);
      return;
    }
    double wire = 0;
    if (cluster_.transfer_gb_s > 0) {
      wire = (cluster_.transfer_bytes_fixed + cluster_.transfer_bytes_per_token * request.input) /
             (cluster_.transfer_gb_s * 1e6);
    }
    double& link_free = instances_[instance].groups[group].link_free_ms;
    link_free = std::max(link_free, now) + wire;
    push(link_free + cluster_.transfer_ms, Kind::kTransferred, instance, group, id, 0);
  }

  void complete(std::uint32_t request, double now) {
    ended_[request] = now;
    ++completed_;
    --in_flight_;
  }

  void fail(std::uint32_t index, double now) {
    Instance& instance = instances_[index];
    ++result_.failures;
    instance.up = false;
    instance.busy = false;
    ++instance.version;
    std::vector<std::uint32_t> lost;
    for (Group& group : instance.groups) {
      lost.insert(lost.end(), group.waiting.begin(), group.waiting.end());
      for (const Prompt& prompt : group.prompts) lost.push_back(prompt.request);
      group = Group{};
    }
    for (; !instance.finishes.empty(); instance.finishes.pop()) lost.push_back(instance.finishes.top().request);
    push(now + cluster_.repair_s * 1000, Kind::kRepair, index, 0, 0, 0);
    for (const auto request : lost) restart(request, now);
  }

  void sample(double now) {
    if (now < next_sample_) return;
    TimelinePoint point{now / 1000, 0, 0, 0};
    for (const Instance& instance : instances_) {
      for (const Group& group : instance.groups) {
        point.queued += static_cast<double>(group.waiting.size());
        point.prefilling += static_cast<double>(group.prompts.size());
        point.decoding += static_cast<double>(group.running);
      }
    }
    auto& timeline = result_.timeline;
    timeline.push_back(point);
    if (timeline.size() >= kTimelinePoints) {
      for (std::size_t i = 0; i < timeline.size() / 2; ++i) timeline[i] = timeline[2 * i];
      timeline.resize(timeline.size() / 2);
      sample_gap_ *= 2;
    }
    next_sample_ = now + sample_gap_;
  }

  static Percentiles percentiles(std::vector<double>& values) {
    Percentiles out;
    if (values.empty()) return out;
    double sum = 0;
    for (const double value : values) sum += value;
    out.mean = sum / static_cast<double>(values.size());
    const auto at = [&values](double share) {
      const auto index = static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1));
      std::nth_element(values.begin(), values.begin() + index, values.end());
      return values[static_cast<std::size_t>(index)];
    };
    out.p50 = at(0.5);
    out.p90 = at(0.9);
    out.p99 = at(0.99);
    return out;
  }

  SimulationResult finish() {
    SimulationResult& r = result_;
    r.completed = completed_;
    std::vector<double> ttft;
    std::vector<double> tpot;
    double start = kNever;
    double end = 0;
    double output = 0;
    double input = 0;
    double met = 0;
    for (std::size_t i = 0; i < traffic_.requests.size(); ++i) {
      if (ended_[i] < 0) continue;
      const Request& request = traffic_.requests[i];
      start = std::min(start, sent_[i]);
      end = std::max(end, ended_[i]);
      output += request.output;
      input += request.input;
      ttft.push_back(first_[i] - sent_[i]);
      double each = 0;
      if (request.output > 1) {
        each = (ended_[i] - first_[i]) / (request.output - 1);
        tpot.push_back(each);
      }
      const bool in_time = cluster_.ttft_target_ms <= 0 || ttft.back() <= cluster_.ttft_target_ms;
      const bool in_pace = cluster_.tpot_target_ms <= 0 || each <= cluster_.tpot_target_ms;
      if (in_time && in_pace) met += 1;
    }
    if (completed_ == 0) return r;
    r.seconds = std::max(end - start, 1e-9) / 1000;
    r.output_tokens_per_second = output / r.seconds;
    r.input_tokens_per_second = input / r.seconds;
    r.ttft_ms = percentiles(ttft);
    r.tpot_ms = percentiles(tpot);
    r.goodput_per_second = met / r.seconds;
    r.goodput_share = met / static_cast<double>(completed_);
    r.prefix_hit = hit_tokens_ / input;
    double nodes = 0;
    double prefill_instances = 0;
    double decode_instances = 0;
    for (const Instance& instance : instances_) {
      nodes += static_cast<double>(pool_of(instance).nodes);
      r.prefill_busy += instance.busy_prefill_ms;
      r.decode_busy += instance.busy_decode_ms;
      if (entry(instance)) prefill_instances += 1;
      if (pool_of(instance).role != Role::kPrefill) decode_instances += 1;
    }
    r.prefill_busy /= prefill_instances * r.seconds * 1000;
    r.decode_busy /= decode_instances * r.seconds * 1000;
    r.cost_per_million_output = cluster_.price_per_node_hour * nodes * r.seconds / 3600 / output * 1e6;
    return r;
  }

  const ClusterSetup& cluster_;
  const RequestSet& traffic_;
  Random random_;
  std::vector<Instance> instances_;
  using Place = std::pair<std::uint32_t, std::uint32_t>;  // instance, group
  std::array<std::vector<Place>, 2> places_;              // of each pool
  std::array<std::size_t, 2> turn_{};
  std::size_t decode_pool_ = 0;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t order_ = 0;
  std::vector<double> sent_, first_, ended_;
  std::vector<std::uint32_t> stranded_;  // no instance is up
  std::vector<std::uint32_t> joined_;    // decode sequences that start in this step
  std::size_t next_ = 0, scheduled_ = 0;
  std::int64_t in_flight_ = 0, completed_ = 0;
  double hit_tokens_ = 0;
  double next_sample_ = 0, sample_gap_ = 100;
  SimulationResult result_;
};

Status check(const ClusterSetup& cluster, const RequestSet& traffic) {
  const std::size_t pools = cluster.pools.size();
  const bool mixed = pools == 1 && cluster.pools[0].role == Role::kMixed;
  const bool split = pools == 2 && cluster.pools[0].role == Role::kPrefill && cluster.pools[1].role == Role::kDecode;
  if (!mixed && !split) return invalid_argument("simulator: expected one mixed pool, or prefill then decode");
  if (traffic.requests.empty()) return invalid_argument("simulator: no requests");
  for (const PoolSetup& pool : cluster.pools) {
    if (pool.model == nullptr || pool.instances < 1 || pool.max_sequences < 1 || pool.max_batched_tokens < 1 ||
        pool.prefix_quantum < 1) {
      return invalid_argument("simulator: {} pool: sizes must be positive", role_name(pool.role));
    }
    if (pool.model->setup().parallel.pp != 1) {
      return Status(StatusCode::kUnimplemented, "simulator: pipeline parallel pools have no time model yet");
    }
    for (const Request& request : traffic.requests) {
      const auto tokens = static_cast<double>(request.input) + static_cast<double>(request.output);
      if (tokens > pool.cache_tokens) {
        return Status(StatusCode::kResourceExhausted,
                      fmt::format("simulator: a request of {} tokens never fits the {:.0f} cached tokens of a group",
                                  tokens, pool.cache_tokens));
      }
    }
  }
  return {};
}

}  // namespace

Result<SimulationResult> simulate(const ClusterSetup& cluster, const RequestSet& traffic) {
  PERIGEE_RETURN_IF_ERROR(check(cluster, traffic));
  Simulation simulation(cluster, traffic);
  SimulationResult result = simulation.run();
  if (result.completed != std::ssize(traffic.requests)) {
    return Status(StatusCode::kInternal,
                  fmt::format("simulator: {} of {} requests ended", result.completed, traffic.requests.size()));
  }
  return result;
}

}  // namespace perigee::planner
