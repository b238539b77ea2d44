// Reading measurements.yaml.
#include "planner/validate.h"
#include "planner/yaml_fields.h"

namespace perigee::planner {
namespace {

constexpr std::size_t kDataLimit = std::size_t{4} << 20;

void read_pool(Fields& row, const char* key, Role role, Measurement& out) {
  if (!row.has(key)) return;
  MeasuredPool pool;
  pool.role = role;
  Fields f(row.child(key), row.origin(), row.status());
  for (const char* needed : {"nodes", "dp", "tp", "sequences", "batched"}) f.require(needed);
  f.read("instances", pool.instances, 1, 1024);
  f.read("nodes", pool.nodes, 1, 1024);
  f.read("dp", pool.dp, 1, 4096);
  f.read("tp", pool.tp, 1, 4096);
  f.read("dcp", pool.dcp, 1, 4096);
  f.read("sequences", pool.sequences, 1, 1 << 20);
  f.read("batched", pool.batched, 1, 1 << 24);
  f.read("drafts", pool.drafts, 0, 64);
  f.read("captured", pool.captured, 0, 1 << 20);
  f.read("graphs", pool.graphs);
  f.read("eager_draft", pool.eager_draft);
  f.read("sparse_context_parallel", pool.sparse_context_parallel);
  f.read("warm_groups", pool.warm_groups, 0, 4096);
  f.read("memory_utilization", pool.memory_utilization, 0.01, 1.0);
  f.read("hccl_buffer_mib", pool.hccl_buffer_mib, 1, 1 << 20);
  f.done();
  out.pools.push_back(pool);
}

void read_serve(Fields& row, Measurement& out) {
  Fields f(row.child("serve"), row.origin(), row.status());
  for (const char* needed : {"input", "output", "prompts", "concurrency"}) f.require(needed);
  f.read("input", out.traffic.input_mean, 1, 1e8);
  f.read("output", out.traffic.output_mean, 1, 1e8);
  f.read("prompts", out.traffic.requests, 1, 1 << 24);
  f.read("concurrency", out.concurrency, 1, 1 << 20);
  f.read("per_second", out.traffic.per_second, 0, 1e6);
  f.read("shared_prefix", out.traffic.shared_prefix, 0, 1);
  f.read("prefix_cache", out.prefix_cache);
  f.done();
  out.traffic.poisson = false;
}

void read_row(const YAML::Node& node, std::string_view origin, Status& status, Measurement& out) {
  Fields f(node, origin, status);
  for (const char* key : {"id", "system", "split", "model", "format", "node", "engine", "source", "published"}) {
    f.require(key);
  }
  f.read("id", out.id);
  f.read("system", out.system);
  f.read("split", out.split);
  if (out.split != "fit" && out.split != "held-out") f.fail(f.child("split"), "'split': expected fit or held-out");
  f.read("model", out.model);
  f.read("format", out.format);
  f.read("node", out.node);
  f.read("chip", out.chip);
  f.read("engine", out.engine);
  f.read("source", out.source);
  f.read("confidence", out.confidence);
  f.read("note", out.note);
  f.read("cache_bytes", out.cache_bytes, 0.25, 4);
  f.read("indexer_every", out.indexer_every, 1, 64);
  f.read("target_tpot_ms", out.target_tpot_ms, 1, 1e6);
  if (f.has("draft")) {
    Fields draft(f.child("draft"), origin, status);
    draft.read("method", out.draft_method);
    draft.read("accepted", out.accepted, 1, 65);
    draft.done();
  }
  read_pool(f, "mixed", Role::kMixed, out);
  read_pool(f, "prefill", Role::kPrefill, out);
  read_pool(f, "decode", Role::kDecode, out);
  for (const char* key : {"mixed", "prefill", "decode"}) f.ignore(key);
  if (out.pools.empty()) f.fail(node, "a row needs a mixed pool, or prefill and decode");
  if (f.has("serve")) read_serve(f, out);
  f.ignore("serve");
  if (f.has("step")) {
    out.is_step = true;
    Fields step(f.child("step"), origin, status);
    step.read("sequences", out.step.sequences, 1, 1 << 20);
    step.read("queries", out.step.queries, 1, 64);
    step.read("context", out.step.context, 1, 1 << 24);
    step.read("prompts", out.step.prompts, 1, 1 << 20);
    step.read("prompt_tokens", out.step.prompt_tokens, 1, 1 << 24);
    step.done();
  }
  if (f.has("published")) {
    Fields published(f.child("published"), origin, status);
    for (const char* metric : {"tokens_per_second", "ttft_ms", "tpot_ms", "step_ms"}) {
      double value = 0;
      published.read(metric, value, 1e-6, 1e12);
      if (value > 0) out.published.push_back({metric, value});
    }
    published.done();
  }
  f.done();
}

}  // namespace

Result<MeasurementSet> load_measurements(const std::string& directory) {
  constexpr std::string_view kFile = "measurements.yaml";
  PERIGEE_ASSIGN_OR_RETURN(const std::string text, catalogue_text(kFile, directory));
  PERIGEE_ASSIGN_OR_RETURN(const YAML::Node root, load_yaml(text, kFile, kDataLimit));
  MeasurementSet out;
  Status status;
  Fields fields(root, kFile, status);
  PERIGEE_RETURN_IF_ERROR(fields.expect_schema("perigee.measurements.1"));
  for (const auto& node : fields.child("measurements")) read_row(node, kFile, status, out.rows.emplace_back());
  for (const auto& node : fields.child("excluded")) {
    Fields f(node, kFile, status);
    ExcludedRows& rows = out.excluded.emplace_back();
    f.read("rows", rows.rows);
    f.read("reason", rows.reason);
    f.done();
  }
  fields.done();
  PERIGEE_RETURN_IF_ERROR(status);
  if (out.rows.empty()) return invalid_argument("{}: no measurements", kFile);
  return out;
}

}  // namespace perigee::planner
