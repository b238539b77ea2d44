#include "planner/catalogue.h"

#include "base/file.h"
#include "planner/catalogue_data.h"
#include "planner/yaml_fields.h"

namespace perigee::planner {
namespace {

constexpr std::size_t kDataLimit = std::size_t{4} << 20;

}  // namespace

void read_sourced(Fields& fields, const char* key, Sourced& out) {
  fields.require(key);
  const YAML::Node node = fields.child(key);
  if (!fields.status().ok()) return;
  if (!node.IsSequence() || node.size() != 3 || !node[0].IsScalar() || !node[1].IsScalar() || !node[2].IsScalar()) {
    return fields.fail(node, fmt::format("'{}': expected [value, source, confidence]", key));
  }
  // Through a one-key map, so that the number is checked as every other number.
  YAML::Node wrapped(YAML::NodeType::Map);
  wrapped[key] = node[0];
  Fields number(wrapped, fields.origin(), fields.status());
  number.read(key, out.value, 0, 1e12);
  out.source = node[1].Scalar();
  out.confidence = node[2].Scalar();
  if (out.source.empty() || (out.confidence != "H" && out.confidence != "M" && out.confidence != "L")) {
    fields.fail(node, fmt::format("'{}': a number needs a source and a confidence of H, M or L", key));
  }
}

namespace {

void read_chip(const YAML::Node& node, std::string_view origin, Status& status, Chip& out) {
  Fields f(node, origin, status);
  f.require("name");
  f.read("name", out.name);
  f.read("family", out.family);
  read_sourced(f, "memory_gb", out.memory_gb);
  read_sourced(f, "usable_gib", out.usable_gib);
  read_sourced(f, "memory_tb_s", out.memory_tb_s);
  read_sourced(f, "bf16_tflops", out.bf16_tflops);
  read_sourced(f, "int8_tops", out.int8_tops);
  read_sourced(f, "fp4_tflops", out.fp4_tflops);
  read_sourced(f, "node_link_gb_s", out.node_link_gb_s);
  read_sourced(f, "pod_link_gb_s", out.pod_link_gb_s);
  f.read("weight_formats", out.weight_formats);
  f.done();
}

void read_node(const YAML::Node& node, std::string_view origin, Status& status, Node& out) {
  Fields f(node, origin, status);
  f.require("name");
  f.read("name", out.name);
  f.read("title", out.title);
  f.read("chip", out.chip);
  read_sourced(f, "devices", out.devices);
  read_sourced(f, "max_group_nodes", out.max_group_nodes);
  read_sourced(f, "direct_transport_base_port", out.direct_transport_base_port);
  read_sourced(f, "node_price_per_hour", out.price_per_hour);
  f.done();
}

constexpr std::int64_t kWide = 1 << 20;

void read_attention(const YAML::Node& node, std::string_view origin, Status& status, AttentionShape& out) {
  Fields f(node, origin, status);
  std::string kind;
  f.require("kind");
  f.read("kind", kind);
  if (kind == "gqa") {
    out.kind = AttentionKind::kGqa;
  } else if (kind == "shared") {
    out.kind = AttentionKind::kShared;
  } else if (kind != "mla") {
    f.fail(f.child("kind"), "'kind': expected mla, gqa or shared");
  }
  f.read("layers", out.layers, 1, 4096);
  f.read("heads", out.heads, 1, 4096);
  f.read("q_rank", out.q_rank, 0, kWide);
  f.read("kv_rank", out.kv_rank, 0, kWide);
  f.read("nope", out.nope, 0, kWide);
  f.read("rope", out.rope, 0, kWide);
  f.read("v", out.v, 0, kWide);
  f.read("gate", out.gate);
  f.read("kv_heads", out.kv_heads, 0, 4096);
  f.read("head_dim", out.head_dim, 0, kWide);
  f.read("o_groups", out.o_groups, 0, 4096);
  f.read("o_rank", out.o_rank, 0, kWide);
  f.read("window", out.window, 0, kWide);
  f.read("ratios", out.ratios);
  for (const auto ratio : out.ratios) {
    if (ratio < 1) f.fail(node, "'ratios': expected positive numbers");
  }
  f.done();
}

void read_parts(Fields& f, ModelShape& out) {
  if (f.has("kda")) {
    Fields k(f.child("kda"), f.origin(), f.status());
    k.read("layers", out.kda_layers, 1, 4096);
    k.read("heads", out.kda.heads, 1, 4096);
    k.read("head_dim", out.kda.head_dim, 1, 4096);
    k.read("conv", out.kda.conv_kernel, 1, 64);
    k.read("full_rank_gate", out.kda.full_rank_gate);
    k.done();
  }
  if (f.has("indexer")) {
    Fields i(f.child("indexer"), f.origin(), f.status());
    i.read("heads", out.indexer.heads, 1, 4096);
    i.read("head_dim", out.indexer.head_dim, 1, 4096);
    i.read("top_k", out.indexer.top_k, 1, kWide);
    i.done();
  }
  if (f.has("moe")) {
    Fields m(f.child("moe"), f.origin(), f.status());
    m.read("experts", out.moe.experts, 1, 1 << 16);
    m.read("top_k", out.moe.top_k, 1, 1 << 16);
    m.read("width", out.moe.expert_width, 1, kWide);
    m.read("shared_width", out.moe.shared_width, 0, kWide);
    m.read("latent", out.moe.latent, 0, kWide);
    m.read("latent_norm", out.moe.latent_norm);
    m.done();
  }
  if (f.has("vision")) {
    Fields v(f.child("vision"), f.origin(), f.status());
    v.read("layers", out.vision.layers, 1, 4096);
    v.read("hidden", out.vision.hidden, 1, kWide);
    v.read("qkv", out.vision.qkv, 1, kWide);
    v.read("mlp", out.vision.mlp, 1, kWide);
    v.read("patch", out.vision.patch, 1, 4096);
    v.read("table", out.vision.table, 1, 4096);
    v.read("merge", out.vision.merge, 1, 4096);
    v.done();
  }
}

void read_model(const YAML::Node& node, std::string_view origin, Status& status, ModelShape& out) {
  Fields f(node, origin, status);
  for (const char* key : {"name", "source", "confidence", "layers", "hidden", "vocab", "attention"}) f.require(key);
  f.read("name", out.name);
  f.read("title", out.title);
  f.read("source", out.source);
  f.read("confidence", out.confidence);
  f.read("published_parameters", out.published_parameters);
  f.read("layers", out.layers, 1, 4096);
  f.read("dense_layers", out.dense_layers, 0, 4096);
  f.read("dense_width", out.dense_width, 0, kWide);
  f.read("hidden", out.hidden, 1, kWide);
  f.read("vocab", out.vocab, 1, 1 << 24);
  f.read("max_positions", out.max_positions);
  if (f.has("attention")) read_attention(f.child("attention"), origin, status, out.attention);
  read_parts(f, out);
  f.read("attn_res_block", out.attn_res_block, 0, 4096);
  f.read("mtp_layers", out.mtp_layers, 0, 64);
  f.read("released_f32", out.released_f32);
  f.done();
}

void read_engine(const YAML::Node& node, std::string_view origin, Status& status, EngineProfile& out) {
  Fields f(node, origin, status);
  for (const char* key : {"name", "source", "confidence", "times"}) f.require(key);
  f.read("name", out.name);
  f.read("versions", out.versions);
  f.read("source", out.source);
  f.read("confidence", out.confidence);
  f.read("transfer_ms", out.transfer_ms, 0, 1e6);
  f.read("interval_low", out.interval_low, 0.01, 1);
  f.read("interval_high", out.interval_high, 1, 100);
  f.read("group_buffer_mib", out.group_buffer_mib, 0, 1e6);
  f.read("communicators", out.communicators, 0, 1000);
  f.read("runtime_gib", out.runtime_gib, 0, 100);
  f.read("graph_gb_per_five", out.graph_gb_per_five, 0, 100);
  if (f.has("times")) {
    Fields t(f.child("times"), origin, status);
    t.read("host_ms", out.times.host_ms, 0, 1e4);
    t.read("graph_layer_ms", out.times.graph_layer_ms, 0, 1e3);
    t.read("eager_layer_ms", out.times.eager_layer_ms, 0, 1e3);
    t.read("compute", out.times.compute, 0.01, 1);
    t.read("attention", out.times.attention, 0.01, 1);
    t.read("memory", out.times.memory, 0.01, 1);
    t.read("expert_link", out.times.expert_link, 0.01, 1);
    t.read("tensor_link", out.times.tensor_link, 0.01, 1);
    t.done();
  }
  f.done();
}

template <typename T>
Status read_list(const std::string& directory, std::string_view file, std::string_view schema, const char* key,
                 std::vector<T>& out, void (*read_one)(const YAML::Node&, std::string_view, Status&, T&)) {
  PERIGEE_ASSIGN_OR_RETURN(const std::string text, catalogue_text(file, directory));
  PERIGEE_ASSIGN_OR_RETURN(const YAML::Node node, load_yaml(text, file, kDataLimit));
  const YAML::Node& root = node;
  if (!root.IsMap() || !root["schema"].IsDefined() || root["schema"].as<std::string>("") != schema) {
    return invalid_argument("{}: expected 'schema: {}'", file, schema);
  }
  const YAML::Node list = root[key];
  if (!list.IsDefined() || !list.IsSequence()) return invalid_argument("{}: expected a list '{}'", file, key);
  Status status;
  for (const auto& item : list) read_one(item, file, status, out.emplace_back());
  return status;
}

template <typename T>
Result<const T*> find_named(const std::vector<T>& list, std::string_view kind, std::string_view name) {
  std::vector<std::string_view> known;
  for (const auto& item : list) {
    if (item.name == name) return &item;
    known.push_back(item.name);
  }
  return Status(StatusCode::kNotFound,
                fmt::format("{} '{}' is not in the catalogue; known are {}", kind, name, fmt::join(known, ", ")));
}

}  // namespace

Result<std::string> catalogue_text(std::string_view name, const std::string& directory) {
  if (!directory.empty()) return read_file(directory + "/" + std::string(name), kDataLimit);
  if (const auto text = embedded_file(name)) return std::string(*text);
  return Status(StatusCode::kNotFound, fmt::format("no data file '{}'", name));
}

Result<Catalogue> load_catalogue(const std::string& directory) {
  Catalogue out;
  PERIGEE_RETURN_IF_ERROR(read_list(directory, "hardware.yaml", "perigee.hardware.1", "chips", out.chips, read_chip));
  PERIGEE_RETURN_IF_ERROR(read_list(directory, "hardware.yaml", "perigee.hardware.1", "nodes", out.nodes, read_node));
  PERIGEE_RETURN_IF_ERROR(read_list(directory, "models.yaml", "perigee.models.1", "models", out.models, read_model));
  PERIGEE_RETURN_IF_ERROR(
      read_list(directory, "engines.yaml", "perigee.engines.1", "engines", out.engines, read_engine));
  for (const auto& node : out.nodes) {
    if (auto chip = out.chip(node.chip); !chip.ok()) return chip.status().with_context("hardware.yaml");
  }
  return out;
}

const Catalogue& built_in_catalogue() {
  static const Catalogue catalogue = [] {
    auto loaded = load_catalogue("");
    return loaded.ok() ? std::move(loaded).value() : Catalogue{};
  }();
  return catalogue;
}

Result<const Chip*> Catalogue::chip(std::string_view name) const {
  return find_named(chips, "chip", name);
}
Result<const Node*> Catalogue::node(std::string_view name) const {
  return find_named(nodes, "node", name);
}
Result<const ModelShape*> Catalogue::model(std::string_view name) const {
  return find_named(models, "model", name);
}
Result<const EngineProfile*> Catalogue::engine(std::string_view name) const {
  return find_named(engines, "engine", name);
}

}  // namespace perigee::planner
