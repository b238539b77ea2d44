#include "planner/cpu_plan.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/checked.h"
#include "base/tokens.h"
#include "planner/yaml_fields.h"

namespace perigee::planner {
namespace {

constexpr std::size_t kCpuDataLimit = std::size_t{1} << 20;
constexpr double kUsableShare = 0.9;  // of the installed memory: the engine's own default

double real(std::int64_t value) {
  return static_cast<double>(value);
}

void read_cpu_server(const YAML::Node& node, std::string_view origin, Status& status, CpuServer& out) {
  Fields f(node, origin, status);
  f.require("name");
  f.read("name", out.name);
  f.read("title", out.title);
  read_sourced(f, "cores", out.cores);
  read_sourced(f, "ghz", out.ghz);
  read_sourced(f, "flops_per_cycle", out.flops_per_cycle);
  read_sourced(f, "memory_gb_s", out.memory_gb_s);
  read_sourced(f, "memory_gb", out.memory_gb);
  f.done();
}

// Weights that every token passes, without routed experts and the embedding table's other rows.
struct CpuStepWeights {
  double resident = 0;    // bytes that a step reads whatever its tokens
  double one_expert = 0;  // bytes
  double experts = 0;     // of a layer
  double layers = 0;      // with experts
  double miss_log = 0;    // log of the chance that a token leaves an expert alone

  double bytes(double tokens) const {
    return resident + experts * layers * one_expert * (1 - std::exp(tokens * miss_log));
  }
};

CpuStepWeights cpu_step_weights(const CpuSetup& s) {
  const ModelShape& shape = *s.shape;
  const ParameterCount p = count_parameters(shape);
  CpuStepWeights w;
  // The trunk of released checkpoints is BF16 whatever the experts are.
  const double trunk = real(p.total() - p.routed - p.vision - p.embedding / 2);
  w.resident = trunk * 2;
  if (shape.moe.experts > 0) {
    w.one_expert = expert_bytes(shape, s.format);
    w.experts = real(shape.moe.experts);
    w.layers = real(shape.moe_layers());
    w.miss_log = std::log1p(-std::min(0.999999, real(shape.moe.top_k) / w.experts));
  }
  return w;
}

// Bytes of cache that one sequence at `context` reads in a step: rows, index keys, state in and out.
double cpu_cache_read(const ModelShape& shape, double context) {
  const AttentionReach reach = attention_reach(shape, context);
  const double layers = real(std::max<std::int64_t>(shape.attention.layers, 1));
  const double row = cache_bytes_per_token(shape, 2) / layers;
  return (reach.rows_read + reach.gathered) * row + reach.scored * real(shape.indexer.head_dim) * 2 +
         2 * real(state_bytes_per_sequence(shape, 4));
}

CpuSpeed cpu_speed(const CpuCatalogue& cpus, const CpuServer& server, std::string what, double tokens, double flops,
                   double bytes) {
  CpuSpeed out;
  out.what = std::move(what);
  out.read_ms = bytes / (server.memory_gb_s.value * 1e9 * cpus.memory.value) * 1e3;
  out.compute_ms = flops / (server.peak_flops() * cpus.compute.value) * 1e3;
  out.read_bound = out.read_ms > out.compute_ms;
  out.tokens_per_second = tokens / std::max(out.read_ms, out.compute_ms) * 1e3;
  out.low = out.tokens_per_second * cpus.interval_low;
  out.high = out.tokens_per_second * cpus.interval_high;
  return out;
}

double cpu_work(const ModelShape& shape, double context) {
  const TokenWork work = token_work(shape, context);
  return work.matrix_flops + work.attention_flops + work.index_flops + work.recurrence_flops;
}

// F32 values that the buffers of one token of a step take, as the engine plans them.
double cpu_activation_floats(const ModelShape& s) {
  const AttentionShape& a = s.attention;
  const double blocks = s.attn_res_block > 0 ? std::ceil(real(s.layers) / real(s.attn_res_block)) + 1 : 0;
  const double width = real(s.moe.latent > 0 ? s.moe.latent : s.hidden);
  return real(s.hidden) * (blocks + 7) + 10 * real(s.kda.width()) +
         real(a.heads) * real(a.nope + 2 * a.rope + 2 * a.kv_rank + 2 * a.v) +
         real(s.indexer.heads * (s.indexer.head_dim + 1)) + real(s.moe.experts) +
         real(s.moe.top_k) * 2 * (width + real(s.moe.expert_width)) + 2 * real(s.dense_width);
}

void add_cpu_line(CpuReport& report, std::string name, double bytes, std::string why) {
  if (bytes <= 0) return;
  report.lines.push_back({std::move(name), bytes, bytes, std::move(why)});
  report.need += bytes;
}

Status check_cpu(const CpuCatalogue& cpus, const CpuSetup& s) {
  if (s.shape == nullptr || s.server == nullptr) return invalid_argument("cpu: model and server are needed");
  const auto& formats = cpus.weight_formats;
  if (std::find(formats.begin(), formats.end(), s.format.name) == formats.end()) {
    return invalid_argument("cpu: Perigee reads weights in {}, not in {}", fmt::join(formats, ", "), s.format.name);
  }
  if (s.context < 1 || s.sequences < 1 || s.step_tokens < 1) {
    return invalid_argument("cpu: context, sequences and step tokens are needed and are never guessed");
  }
  if (s.shape->max_positions > 0 && s.context > s.shape->max_positions) {
    return invalid_argument("cpu: {} has {} positions, not {}", s.shape->name, s.shape->max_positions, s.context);
  }
  if (s.server->peak_flops() <= 0 || s.server->memory_gb_s.value <= 0 || s.server->memory_gb.value <= 0) {
    return invalid_argument("cpu: cores, frequency, bandwidth and memory must be above 0");
  }
  return {};
}

}  // namespace

Result<const CpuServer*> CpuCatalogue::server(std::string_view name) const {
  std::vector<std::string_view> names;
  for (const CpuServer& candidate : servers) {
    if (candidate.name == name) return &candidate;
    names.push_back(candidate.name);
  }
  return invalid_argument("CPU server '{}' is not known; known are {}", name, fmt::join(names, ", "));
}

Result<CpuCatalogue> load_cpus(const std::string& directory) {
  constexpr std::string_view kFile = "cpus.yaml";
  PERIGEE_ASSIGN_OR_RETURN(const std::string text, catalogue_text(kFile, directory));
  PERIGEE_ASSIGN_OR_RETURN(const YAML::Node root, load_yaml(text, kFile, kCpuDataLimit));
  CpuCatalogue out;
  Status status;
  Fields f(root, kFile, status);
  PERIGEE_RETURN_IF_ERROR(f.expect_schema("perigee.cpus.1"));
  read_sourced(f, "compute", out.compute);
  read_sourced(f, "memory", out.memory);
  f.read("interval_low", out.interval_low, 0.01, 1);
  f.read("interval_high", out.interval_high, 1, 100);
  f.read("weight_formats", out.weight_formats);
  for (const auto& node : f.child("servers")) read_cpu_server(node, kFile, status, out.servers.emplace_back());
  f.done();
  PERIGEE_RETURN_IF_ERROR(status);
  if (out.compute.value <= 0 || out.compute.value > 1 || out.memory.value <= 0 || out.memory.value > 1) {
    return invalid_argument("{}: 'compute' and 'memory' are shares between 0 and 1", kFile);
  }
  return out;
}

Result<CpuReport> plan_cpu(const CpuCatalogue& cpus, const CpuSetup& s) {
  PERIGEE_RETURN_IF_ERROR(check_cpu(cpus, s));
  const ModelShape& shape = *s.shape;
  CpuReport out;
  out.installed = s.server->memory_gb.value * 1e9;
  out.budget = kUsableShare * out.installed;

  const ParameterCount p = count_parameters(shape);
  const double experts =
      real(shape.moe.experts) * real(shape.moe_layers()) * (shape.moe.experts > 0 ? expert_bytes(shape, s.format) : 0);
  add_cpu_line(out, "routed experts", experts, fmt::format("{} as they are stored", s.format.name));
  add_cpu_line(out, "other weights", real(checkpoint_bytes(shape, s.format)) - experts - real(p.vision) * 2,
               "BF16 and F32 as released");
  add_cpu_line(out, "vision tower", real(p.vision) * 2, "BF16");
  add_cpu_line(out, "activations", 4 * real(s.step_tokens) * cpu_activation_floats(shape),
               fmt::format("{} tokens a step, F32", s.step_tokens));
  const double before_sequences = out.need;
  out.bytes_per_token = cache_bytes_per_token(shape, 2) + index_bytes_per_token(shape, 2);
  out.bytes_per_sequence = real(state_bytes_per_sequence(shape, 4));
  const double pages = real(ceil_div(s.context, kPageTokens)) * real(kPageTokens) * out.bytes_per_token;
  add_cpu_line(out, "recurrent states", real(s.sequences) * out.bytes_per_sequence,
               fmt::format("{} sequences x {:.1f} MB", s.sequences, out.bytes_per_sequence / 1e6));
  add_cpu_line(out, "key pages", real(s.sequences) * pages,
               fmt::format("{} sequences x {} tokens x {:.0f} B", s.sequences, s.context, out.bytes_per_token));

  if (out.need <= out.budget) {
    out.verdict = Verdict::kFits;
  } else if (out.need <= out.installed) {
    out.verdict = Verdict::kTight;
  }
  const double room = out.budget - before_sequences;
  if (room > 0) {
    if (out.bytes_per_token > 0) {
      const double beside = room - real(s.sequences) * out.bytes_per_sequence;
      out.largest_context = static_cast<std::int64_t>(std::max(0.0, beside / out.bytes_per_token));
      if (shape.max_positions > 0) out.largest_context = std::min(out.largest_context, shape.max_positions);
    }
    out.largest_batch = static_cast<std::int64_t>(room / (out.bytes_per_sequence + pages));
  }

  const CpuStepWeights weights = cpu_step_weights(s);
  const double context = real(s.context) / 2;
  const auto decode = [&](double sequences) {
    return cpu_speed(cpus, *s.server, fmt::format("decode, {:.0f} at a time", sequences), sequences,
                     sequences * cpu_work(shape, context),
                     weights.bytes(sequences) + sequences * cpu_cache_read(shape, context));
  };
  out.speeds.push_back(decode(1));
  if (s.sequences > 1) out.speeds.push_back(decode(real(s.sequences)));
  const double tokens = real(std::min(s.step_tokens, s.context));
  out.speeds.push_back(cpu_speed(cpus, *s.server, fmt::format("prefill, {:.0f} tokens a step", tokens), tokens,
                                 tokens * cpu_work(shape, context), weights.bytes(tokens)));
  return out;
}

std::string format_cpu(const CpuServer& server, const CpuReport& r) {
  std::string out = fmt::format(
      "\n{}: {:.0f} cores, {:.1f} TFLOP/s peak, {:.0f} GB/s, {:.0f} GB\n{}: {:.1f} of {:.1f} GB (90 % of what is "
      "installed)\n",
      server.title.empty() ? server.name : server.title, server.cores.value, server.peak_flops() / 1e12,
      server.memory_gb_s.value, server.memory_gb.value, verdict_name(r.verdict), r.need / 1e9, r.budget / 1e9);
  for (const MemoryLine& line : r.lines) {
    out += fmt::format("  {:<22}{:>10.2f} GB  {}\n", line.name, line.high / 1e9, line.why);
  }
  constexpr int kWidth = 60;
  const int filled = static_cast<int>(std::min(1.0, r.need / r.installed) * kWidth);
  out += fmt::format("  [{}{}]\n", std::string(static_cast<std::size_t>(filled), '#'),
                     std::string(static_cast<std::size_t>(kWidth - filled), '.'));
  if (r.verdict == Verdict::kDoesNotFit) {
    out += fmt::format("  {:.0f} GB of memory are needed\n", r.need / kUsableShare / 1e9);
  } else {
    out += fmt::format("  room for {} tokens of context beside the states, or {} such sequences\n", r.largest_context,
                       r.largest_batch);
  }
  out +=
      fmt::format("  {:<30}{:>10} {:>22}{:>12}{:>12}  bound by\n", "speed", "tok/s", "interval", "read ms", "FMA ms");
  for (const CpuSpeed& speed : r.speeds) {
    out += fmt::format("  {:<30}{:>10.2f} {:>22}{:>12.1f}{:>12.1f}  {}\n", speed.what, speed.tokens_per_second,
                       fmt::format("{:.2f} to {:.2f}", speed.low, speed.high), speed.read_ms, speed.compute_ms,
                       speed.read_bound ? "memory bandwidth" : "multiply-adds");
  }
  return out;
}

Json to_json(const CpuServer& server, const CpuReport& r) {
  Json lines = Json::array();
  for (const MemoryLine& line : r.lines)
    lines.push_back({{"name", line.name}, {"bytes", line.high}, {"why", line.why}});
  Json speeds = Json::array();
  for (const CpuSpeed& speed : r.speeds) {
    speeds.push_back({{"what", speed.what},
                      {"tokens_per_second", speed.tokens_per_second},
                      {"interval", {speed.low, speed.high}},
                      {"read_ms", speed.read_ms},
                      {"compute_ms", speed.compute_ms},
                      {"bound", speed.read_bound ? "read" : "fma"}});
  }
  const auto sourced = [](const Sourced& value) {
    return Json{{"value", value.value}, {"source", value.source}, {"confidence", value.confidence}};
  };
  return {{"server",
           {{"name", server.name},
            {"cores", sourced(server.cores)},
            {"ghz", sourced(server.ghz)},
            {"flops_per_cycle", sourced(server.flops_per_cycle)},
            {"memory_gb_s", sourced(server.memory_gb_s)},
            {"memory_gb", sourced(server.memory_gb)}}},
          {"verdict", verdict_name(r.verdict)},
          {"need_bytes", r.need},
          {"budget_bytes", r.budget},
          {"installed_bytes", r.installed},
          {"largest_context", r.largest_context},
          {"largest_batch", r.largest_batch},
          {"bytes_per_token", r.bytes_per_token},
          {"bytes_per_sequence", r.bytes_per_sequence},
          {"lines", std::move(lines)},
          {"speeds", std::move(speeds)}};
}

}  // namespace perigee::planner
