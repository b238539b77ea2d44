#include "planner/search.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "planner/deployment.h"

namespace perigee::planner {
namespace {

constexpr std::int64_t kGuideBufferMib = 800;  // what the K3 guide sets; MC2 needs more only for large steps
constexpr std::int64_t kBufferStepMib = 128;

struct Cut {
  std::int64_t instances, nodes;  // of an instance
  Parallel parallel;
};

class Search {
 public:
  Search(const Catalogue& catalogue, const SearchRequest& request) : catalogue_(catalogue), request_(request) {}

  Result<SearchResult> run() {
    PERIGEE_ASSIGN_OR_RETURN(shape_, catalogue_.model(request_.model));
    PERIGEE_ASSIGN_OR_RETURN(node_, catalogue_.node(request_.hardware));
    PERIGEE_ASSIGN_OR_RETURN(chip_, catalogue_.chip(node_->chip));
    PERIGEE_ASSIGN_OR_RETURN(engine_, catalogue_.engine(engine_name(request_.engine)));
    PERIGEE_ASSIGN_OR_RETURN(format_, find_format(request_.format));
    PERIGEE_RETURN_IF_ERROR(check());
    traffic_ = make_traffic(request_.traffic);
    if (!request_.disaggregated_only) {
      for (const Cut& cut : cuts(request_.nodes, Role::kMixed)) PERIGEE_RETURN_IF_ERROR(try_plan({mixed(cut)}));
    }
    for (std::int64_t prefill = 1; prefill < request_.nodes; ++prefill) {
      PERIGEE_RETURN_IF_ERROR(try_split(prefill));
    }
    for (const auto& [layout, reason] : refused_) out_.refused.push_back({layout, reason});
    rank();
    return std::move(out_);
  }

 private:
  Status check() const {
    if (request_.nodes < 1 || request_.nodes > 4096) {
      return invalid_argument("search: nodes is {}, expected 1 to 4096", request_.nodes);
    }
    if (request_.max_model_len < 1) {
      return invalid_argument("search: max_model_len is needed: the longest request that must be served");
    }
    if (request_.concurrency < 1 && request_.traffic.per_second <= 0) {
      return invalid_argument("search: traffic needs a rate or a concurrency");
    }
    if (request_.draft.enabled() && request_.draft.accepted <= 1) {
      return invalid_argument("search: drafts need the measured tokens a step (accepted), it is never guessed");
    }
    return {};
  }

  PoolPlan pool_plan(Role role, const Cut& cut) const {
    PoolPlan pool;
    pool.role = role;
    pool.instances = cut.instances;
    pool.nodes = cut.nodes;
    pool.parallel = cut.parallel;
    pool.max_model_len = request_.max_model_len;
    pool.max_sequences = request_.max_sequences;
    pool.draft = request_.draft;
    pool.max_batched_tokens = request_.max_batched_tokens;
    pool.memory_utilization = request_.memory_utilization;
    pool.graphs = role != Role::kPrefill;
    // The hybrid models want equal drafts on both sides; only decode and mixed servers capture.
    if (pool.graphs) {
      const std::int64_t width = 1 + pool.draft.tokens;
      for (std::int64_t n = 1; n < pool.max_sequences; n *= 2) pool.graph_sizes.push_back(n * width);
      pool.graph_sizes.push_back(pool.max_sequences * width);
    }
    pool.flashcomm1 = role != Role::kDecode && cut.parallel.tp > 1;
    if (shape_->moe.experts > 0) {
      const double need = mc2_buffer_mib(*shape_, chip_->family, cut.parallel.ep(), mc2_tokens_per_rank(pool));
      const auto rounded = static_cast<std::int64_t>(need / kBufferStepMib + 1) * kBufferStepMib;
      pool.hccl_buffer_mib = std::max(kGuideBufferMib, rounded);
    }
    return pool;
  }
  PoolPlan mixed(const Cut& cut) const { return pool_plan(Role::kMixed, cut); }

  std::string memory_problem(const PoolPlan& pool, Verdict& verdict) const {
    MemorySetup setup;
    setup.shape = shape_;
    setup.chip = chip_;
    setup.engine = engine_;
    setup.format = format_;
    setup.pool = pool;
    const auto report = plan_memory(setup);
    if (!report.ok()) return report.status().message();
    verdict = std::max(verdict, report->verdict);
    if (report->verdict == Verdict::kDoesNotFit || (report->verdict == Verdict::kTight && !request_.allow_tight)) {
      return fmt::format("{}: needs {:.1f} to {:.1f} GB of {:.1f} a device", verdict_name(report->verdict),
                         report->need_low / 1e9, report->need_high / 1e9, report->budget / 1e9);
    }
    return {};
  }

  // Every equal division of `nodes` into instances and of an instance into DP x TP that fits.
  std::vector<Cut> cuts(std::int64_t nodes, Role role) {
    std::vector<Cut> out;
    const auto per_node = static_cast<std::int64_t>(node_->devices.value);
    for (std::int64_t size = nodes; size >= 1; --size) {
      if (nodes % size != 0 || static_cast<double>(size) > node_->max_group_nodes.value) continue;
      std::map<std::string, std::vector<std::int64_t>> problems;
      const std::size_t before = out.size();
      for (std::int64_t tp = per_node; tp >= 1; tp /= 2) {
        Cut cut{nodes / size, size, {.tp = tp, .dp = size * per_node / tp, .pp = 1, .dcp = 1, .expert_parallel = true}};
        Verdict verdict = Verdict::kFits;
        const std::string problem = memory_problem(pool_plan(role, cut), verdict);
        if (problem.empty()) {
          out.push_back(cut);
        } else {
          problems[problem].push_back(tp);
        }
      }
      if (out.size() == before && !problems.empty()) {
        // One line an instance size: the largest TP says why even it fails.
        for (const auto& [problem, tps] : problems) {
          if (tps.front() == per_node) {
            refused_[fmt::format("instances of {} node{}", size, size == 1 ? "" : "s")] = problem;
          }
        }
      }
    }
    return out;
  }

  Status try_split(std::int64_t prefill) {
    const std::int64_t decode = request_.nodes - prefill;
    const auto left = cuts(prefill, Role::kPrefill);
    const auto right = cuts(decode, Role::kDecode);
    if (left.empty() || right.empty()) {
      const std::string side =
          left.empty() ? fmt::format("{} prefill nodes", prefill) : fmt::format("{} decode nodes", decode);
      refused_[fmt::format("{}P+{}D", prefill, decode)] = "no instance size of its " + side + " holds the model";
      return {};
    }
    for (const Cut& p : left) {
      for (const Cut& d : right) {
        // Prefill TP must be a multiple of decode TP, or the ranks cannot pull their shares.
        if (p.parallel.tp % d.parallel.tp != 0) continue;
        PERIGEE_RETURN_IF_ERROR(try_plan({pool_plan(Role::kPrefill, p), pool_plan(Role::kDecode, d)}));
      }
    }
    return {};
  }

  Status try_plan(std::vector<PoolPlan> pools) {
    Candidate candidate;
    Plan& plan = candidate.plan;
    plan.model = request_.model;
    plan.checkpoint = request_.checkpoint;
    plan.served_name = request_.served_name.empty() ? request_.model : request_.served_name;
    plan.format = request_.format;
    plan.engine = request_.engine;
    plan.engine_version = request_.engine_version;
    plan.hardware = request_.hardware;
    plan.devices_per_node = static_cast<std::int64_t>(node_->devices.value);
    plan.chip = chip_->family;
    plan.pools = std::move(pools);
    plan.name = layout_name(plan);
    const auto length = static_cast<std::int64_t>(request_.traffic.input_mean + request_.traffic.output_mean);
    auto deployment = open_plan(catalogue_, plan, shape_, length);
    if (!deployment.ok()) return deployment.status().with_context(plan.name);
    for (const auto& pool : deployment->pools) candidate.verdict = std::max(candidate.verdict, pool.memory.verdict);
    ClusterSetup cluster = cluster_setup(*deployment, plan);
    cluster.concurrency = request_.concurrency;
    cluster.ttft_target_ms = request_.ttft_target_ms;
    cluster.tpot_target_ms = request_.tpot_target_ms;
    cluster.price_per_node_hour = request_.price_per_node_hour;
    if (request_.warm_prefix) {
      for (auto& pool : cluster.pools) pool.warm_groups = pool.model->setup().parallel.dp;
    }
    auto result = simulate(cluster, traffic_);
    if (!result.ok()) {
      refused_[plan.name] = result.status().message();
      return {};
    }
    candidate.result = std::move(result).value();
    fill_forecast(plan, *deployment, candidate.result);
    candidate.node_hours_per_million =
        static_cast<double>(request_.nodes) / 3600 / candidate.result.output_tokens_per_second * 1e6;
    candidate.in_time = request_.ttft_target_ms <= 0 || candidate.result.ttft_ms.p90 <= request_.ttft_target_ms;
    candidate.in_pace = request_.tpot_target_ms <= 0 || candidate.result.tpot_ms.p90 <= request_.tpot_target_ms;
    out_.ranked.push_back(std::move(candidate));
    return {};
  }

  void rank() {
    auto& all = out_.ranked;
    for (Candidate& one : all) {
      one.pareto = std::none_of(all.begin(), all.end(), [&one](const Candidate& other) {
        const auto mine = std::tuple(one.node_hours_per_million, one.result.ttft_ms.p90, one.result.tpot_ms.p90);
        const auto theirs =
            std::tuple(other.node_hours_per_million, other.result.ttft_ms.p90, other.result.tpot_ms.p90);
        return mine != theirs && std::get<0>(theirs) <= std::get<0>(mine) && std::get<1>(theirs) <= std::get<1>(mine) &&
               std::get<2>(theirs) <= std::get<2>(mine);
      });
    }
    std::stable_sort(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) {
      const auto key = [](const Candidate& c) {
        return std::tuple(!(c.in_time && c.in_pace), c.node_hours_per_million, c.result.tpot_ms.p90);
      };
      return key(a) < key(b);
    });
    std::set<std::pair<std::int64_t, std::int64_t>> splits;
    for (const Candidate& one : all) {
      if (one.plan.disaggregated()) splits.insert(split_of(one.plan));
    }
    for (std::size_t i = 0; i < all.size(); ++i) {
      explain(all[i], i == 0 ? nullptr : &all[0]);
      if (all[i].plan.disaggregated() && splits.size() == 1) {
        all[i].reason +=
            fmt::format("; the only split of {} nodes whose two sides both hold the model", request_.nodes);
      }
      all[i].plan.notes.insert(all[i].plan.notes.begin(), all[i].reason);
    }
  }

  static std::pair<std::int64_t, std::int64_t> split_of(const Plan& plan) {
    const PoolPlan& p = *plan.pool(Role::kPrefill);
    const PoolPlan& d = *plan.pool(Role::kDecode);
    return {p.instances * p.nodes, d.instances * d.nodes};
  }

  // What a layout pays for, in its own numbers.
  static std::string mechanism(const Candidate& c) {
    if (c.plan.disaggregated()) {
      const double busier = std::max(c.result.prefill_busy, c.result.decode_busy);
      if (c.result.decode_busy < 0.7 * busier) {
        return fmt::format("its prefill pool is the limit ({:.0f} % busy, decode {:.0f} %)",
                           100 * c.result.prefill_busy, 100 * c.result.decode_busy);
      }
      return fmt::format("only its decode nodes hold decode slots (prefill {:.0f} % busy, decode {:.0f} %)",
                         100 * c.result.prefill_busy, 100 * c.result.decode_busy);
    }
    return fmt::format("prefill steps stop decoding in the same lock-step ({:.0f} % of the time)",
                       100 * c.result.prefill_busy);
  }

  void explain(Candidate& c, const Candidate* best) const {
    const auto& r = c.result;
    std::string missed;
    if (!c.in_time) {
      missed += fmt::format("TTFT p90 {:.0f} ms is above {:.0f}; ", r.ttft_ms.p90, request_.ttft_target_ms);
    }
    if (!c.in_pace) {
      missed += fmt::format("TPOT p90 {:.0f} ms is above {:.0f}; ", r.tpot_ms.p90, request_.tpot_target_ms);
    }
    const std::string largest = "a decode step is led by " + c.plan.forecast.dominated_by;
    if (best == nullptr) {
      c.reason = (missed.empty() ? "cheapest layout within the targets; " : "nearest layout; " + missed) +
                 mechanism(c) + "; " + largest;
    } else {
      c.reason = missed +
                 fmt::format(
                     "{:.2f} of the best one's tokens a second, TPOT p90 {:.0f} against {:.0f} ms, TTFT "
                     "p90 {:.1f} against {:.1f} s: ",
                     r.output_tokens_per_second / best->result.output_tokens_per_second, r.tpot_ms.p90,
                     best->result.tpot_ms.p90, r.ttft_ms.p90 / 1000, best->result.ttft_ms.p90 / 1000) +
                 mechanism(c);
    }
    if (request_.model == "kimi-k3.1-pro") {
      c.plan.notes.push_back(
          "unvalidated: no release of this engine names Kimi K3.1 Pro; planned as K3 and an indexer");
    }
    if (chip_->family == "a2" && shape_->moe.experts > 512) {
      c.plan.notes.push_back("more than 512 experts on A2 always take the all-gather path between nodes");
    }
    if (engine_->confidence == "L") {
      c.plan.notes.push_back("step times of this engine are not fitted: " + engine_->source);
    }
  }

  const Catalogue& catalogue_;
  const SearchRequest& request_;
  const ModelShape* shape_ = nullptr;
  const Node* node_ = nullptr;
  const Chip* chip_ = nullptr;
  const EngineProfile* engine_ = nullptr;
  WeightFormat format_{};
  RequestSet traffic_;
  SearchResult out_;
  std::map<std::string, std::string> refused_;
};

}  // namespace

std::string layout_name(const Plan& plan) {
  const auto cut = [](const PoolPlan& pool) {
    return fmt::format("{}DP{} TP{}", pool.instances > 1 ? fmt::format("{} x ", pool.instances) : "", pool.parallel.dp,
                       pool.parallel.tp);
  };
  if (!plan.disaggregated()) {
    const PoolPlan& pool = plan.pools.front();
    return fmt::format("mixed {} node{}, {}", pool.instances * pool.nodes, pool.instances * pool.nodes == 1 ? "" : "s",
                       cut(pool));
  }
  const PoolPlan& p = *plan.pool(Role::kPrefill);
  const PoolPlan& d = *plan.pool(Role::kDecode);
  return fmt::format("{}P+{}D, {} / {}", p.instances * p.nodes, d.instances * d.nodes, cut(p), cut(d));
}

Result<SearchResult> search_layouts(const Catalogue& catalogue, const SearchRequest& request) {
  return Search(catalogue, request).run();
}

}  // namespace perigee::planner
