// The plan document: what `perigee plan search` writes and the emitters read. One YAML file describes a whole
// deployment, so that every launch file, proxy and manifest is made from the same numbers.
// Values only; no call here touches the network or the file system except read_plan_file and write_plan_file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace perigee::planner {

enum class Role : std::uint8_t { kMixed, kPrefill, kDecode };
enum class Engine : std::uint8_t { kVllmAscend, kSglang };

std::string_view role_name(Role role);        // "mixed", "prefill", "decode"
std::string_view engine_name(Engine engine);  // "vllm-ascend", "sglang"

// How one instance is cut (spec ascend.md 4.7). Devices are dies on A2 and A3.
struct Parallel {
  std::int64_t tp = 1;   // tensor parallel, inside one data-parallel group
  std::int64_t dp = 1;   // data-parallel groups, in lock-step through the experts
  std::int64_t pp = 1;   // pipeline stages
  std::int64_t dcp = 1;  // decode context parallel: shards the latent cache inside TP
  // vLLM-Ascend: experts over DP x TP devices. Without it experts are cut by TP as dense weights are.
  bool expert_parallel = true;

  std::int64_t devices() const { return tp * dp * pp; }
  std::int64_t ep() const { return expert_parallel ? tp * dp : 1; }
};

struct DraftPlan {
  std::string method;       // "dspark", "dflash", "eagle3", "mtp"; empty: no speculative decoding
  std::string checkpoint;   // empty for "mtp"
  std::int64_t tokens = 0;  // drafted tokens a step
  bool eager = false;       // the draft does not run as a captured graph
  double accepted = 1.0;  // mean tokens a step that leave the model, the verified one included: an input, never guessed

  bool enabled() const { return tokens > 0; }
};

// One kind of server. `instances` equal copies, each over `nodes` whole nodes.
struct PoolPlan {
  Role role = Role::kMixed;
  std::int64_t instances = 1;
  std::int64_t nodes = 1;
  std::vector<std::string> hosts;  // instances * nodes addresses, instance after instance; may be empty while planning
  Parallel parallel;
  std::int64_t max_model_len = 0;
  std::int64_t max_batched_tokens = 0;  // of one data-parallel group
  std::int64_t max_sequences = 0;       // of one data-parallel group
  double memory_utilization = 0.9;
  std::int64_t hccl_buffer_mib = 200;  // HCCL_BUFFSIZE of the MC2 group
  bool prefix_cache = true;
  bool graphs = true;                      // false: eager
  std::vector<std::int64_t> graph_sizes;   // captured sizes in tokens; empty: none are captured
  bool flashcomm1 = false;                 // sequence split of the hidden stream over TP
  bool prefill_mc2 = false;                // enable_prefill_mc2
  std::int64_t fused_mc2 = 0;              // enable_fused_mc2
  std::int64_t mega_moe_max_tokens = 0;    // 0: not set
  bool shared_expert_dp = false;           // shared experts replicated
  bool multistream_shared_expert = false;  // multistream_overlap_shared_expert
  DraftPlan draft;
};

struct Ports {
  std::int64_t api = 8000;          // first server port on a host; local data-parallel rank r uses api + r
  std::int64_t rpc = 13389;         // data-parallel coordination
  std::int64_t proxy = 9000;        // front door
  std::int64_t prefill_kv = 36000;  // transfer handshake; must stay above 20000 + 1000 * devices of a node
  std::int64_t decode_kv = 36200;
  std::int64_t bootstrap = 8998;        // SGLang
  std::int64_t transfer_store = 24669;  // SGLang: ASCEND_MF_STORE_URL
};

// What the models of this planner expect of the plan. Milliseconds and tokens a second; low and high bound the
// interval.
struct Forecast {
  struct Range {
    double value = 0, low = 0, high = 0;
  };
  Range ttft_ms, tpot_ms, output_tokens_per_second;
  double cost_per_million_tokens = 0;  // 0: no price was given
  std::string dominated_by;            // the largest term of a decode step
};

struct Plan {
  std::string name;
  std::string model;        // catalogue name: "kimi-k3", "kimi-k3.1-pro", ...
  std::string checkpoint;   // path or repository id as the engine gets it
  std::string format;       // "bf16", "mxfp4", "w4a8", ...
  std::string served_name;  // name that clients use
  Engine engine = Engine::kVllmAscend;
  std::string engine_version;  // "0.30.0rc2", "0.5.23": a flag table of that version exists
  std::string hardware;        // catalogue name of the node: "atlas-800-a3", "atlas-800-a2", "ascend-950dt-node"
  std::int64_t devices_per_node = 0;
  std::string chip;               // "a2", "a3", "950": what operator rules look at
  std::string network_interface;  // empty: the launch script asks for it
  std::vector<PoolPlan> pools;    // one mixed pool, or a prefill and a decode pool
  Ports ports;
  Forecast forecast;
  std::vector<std::string> notes;  // reasons and open points, in the order in which a person should read them

  bool disaggregated() const { return pools.size() > 1; }
  const PoolPlan* pool(Role role) const;
};

// Structure only: positive sizes, devices = nodes * devices_per_node for every pool, one mixed or one prefill and one
// decode pool, host counts, TP divisible by DCP. Memory and engine rules live in memory.h and preflight/.
Status check_plan(const Plan& plan);

// Reads YAML of at most 1 MiB. Unknown keys, wrong types and out-of-range numbers are refused with line and key.
Result<Plan> parse_plan(std::string_view yaml, std::string_view origin);
Result<Plan> read_plan_file(const std::string& path);

// The same document with every key in a fixed order; parse_plan(format_plan(p)) gives p back.
std::string format_plan(const Plan& plan);
Status write_plan_file(const Plan& plan, const std::string& path);

}  // namespace perigee::planner
