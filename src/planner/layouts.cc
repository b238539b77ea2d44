// Reading layouts.yaml.
#include "planner/memory.h"
#include "planner/yaml_fields.h"

namespace perigee::planner {
namespace {

void read_layout(const YAML::Node& node, std::string_view origin, Status& status, PublishedLayout& out) {
  Fields f(node, origin, status);
  for (const char* key : {"name", "model", "format", "node", "source", "dp", "tp", "max_model_len",
                          "max_batched_tokens", "max_sequences", "published"}) {
    f.require(key);
  }
  f.read("name", out.name);
  f.read("model", out.model);
  f.read("format", out.format);
  f.read("node", out.node);
  out.engine = "vllm-ascend";
  f.read("engine", out.engine);
  f.read("source", out.source);
  f.read("nodes", out.nodes, 1, 4096);
  f.read("dp", out.pool.parallel.dp, 1, 4096);
  f.read("tp", out.pool.parallel.tp, 1, 4096);
  f.read("dcp", out.pool.parallel.dcp, 1, 4096);
  f.read("expert_parallel", out.pool.parallel.expert_parallel);
  f.read("max_model_len", out.pool.max_model_len, 1);
  f.read("max_batched_tokens", out.pool.max_batched_tokens, 1);
  f.read("max_sequences", out.pool.max_sequences, 1);
  f.read("memory_utilization", out.pool.memory_utilization, 0.01, 1);
  f.read("hccl_buffer_mib", out.pool.hccl_buffer_mib, 1, 1 << 20);
  f.read("graphs", out.pool.graphs);
  f.read("graph_sizes", out.pool.graph_sizes);
  f.read("cache_bytes", out.cache_bytes, 0.25, 4);
  f.read("vision", out.vision);
  f.read("draft_method", out.pool.draft.method);
  f.read("drafts", out.pool.draft.tokens, 0, 64);
  std::string published;
  f.read("published", published);
  if (published == "fits") {
    out.published = Verdict::kFits;
  } else if (published == "tight") {
    out.published = Verdict::kTight;
  } else if (published == "does not fit") {
    out.published = Verdict::kDoesNotFit;
  } else {
    f.fail(f.child("published"), "'published': expected fits, tight or 'does not fit'");
  }
  f.done();
}

}  // namespace

Result<std::vector<PublishedLayout>> load_layouts(const std::string& directory) {
  constexpr std::string_view kFile = "layouts.yaml";
  PERIGEE_ASSIGN_OR_RETURN(const std::string text, catalogue_text(kFile, directory));
  PERIGEE_ASSIGN_OR_RETURN(const YAML::Node root, load_yaml(text, kFile, std::size_t{4} << 20));
  Status status;
  Fields fields(root, kFile, status);
  PERIGEE_RETURN_IF_ERROR(fields.expect_schema("perigee.layouts.1"));
  std::vector<PublishedLayout> out;
  for (const auto& node : fields.child("layouts")) read_layout(node, kFile, status, out.emplace_back());
  fields.done();
  PERIGEE_RETURN_IF_ERROR(status);
  return out;
}

}  // namespace perigee::planner
