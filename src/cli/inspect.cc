// `perigee inspect DIR`: what a checkpoint is, what it weighs, what memory it needs, and anything odd about it.
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "checkpoint/folder.h"
#include "checkpoint/memory_plan.h"
#include "checkpoint/progress.h"
#include "checkpoint/weights.h"
#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/inspect_cache.h"

namespace perigee::cli {
namespace {

struct Report {
  std::string directory;
  ModelConfig config;
  bool weights_present = false;
  WeightBytes weights{};
  std::string digest;
  std::vector<std::string> odd;
};

constexpr std::int64_t kUsers[] = {1, 4, 16, 64};

std::vector<std::int64_t> context_lengths(const ModelConfig& config) {
  std::vector<std::int64_t> lengths;
  for (std::int64_t length = 4096; length < config.max_positions; length *= 4) lengths.push_back(length);
  lengths.push_back(config.max_positions);
  return lengths;
}

void look_for_oddities(Report& report) {
  namespace fs = std::filesystem;
  const fs::path root(report.directory);
  if (!report.weights_present)
    report.odd.emplace_back("no weights in this folder: sizes are those of the released format");
  if (!fs::exists(root / "generation_config.json")) report.odd.emplace_back("no generation_config.json");
  if (!fs::exists(root / "tiktoken.model")) {
    report.odd.emplace_back("no tiktoken.model: the vocabulary of this program is used");
  }
  const ModelConfig& config = report.config;
  if (config.has_indexer() && config.indexer.sizes_assumed) {
    report.odd.emplace_back("dsa_config does not state the indexer's sizes; they were taken from shapes or defaults");
  }
  if (config.vocab != 163840) report.odd.push_back(fmt::format("vocabulary of {} instead of 163840", config.vocab));
  if (config.extra_layers > 0) {
    report.odd.push_back(fmt::format("{} draft layers (num_nextn_predict_layers) are not used", config.extra_layers));
  }
}

Result<Report> inspect(const std::string& path) {
  Report report;
  PERIGEE_ASSIGN_OR_RETURN(report.directory, resolve_checkpoint_folder(path));
  if (const auto shards = list_shards(report.directory); shards.status().code() == StatusCode::kNotFound) {
    PERIGEE_ASSIGN_OR_RETURN(report.config, read_model_config(report.directory));
    report.weights = planned_weight_bytes(report.config);
  } else {
    PERIGEE_ASSIGN_OR_RETURN(const auto checkpoint, Checkpoint::open(path));
    report.weights_present = true;
    report.config = checkpoint->config();
    report.weights = stored_weight_bytes(report.config, checkpoint->tensors());
    report.odd = checkpoint->warnings();
    report.digest = checkpoint->digest();
  }
  look_for_oddities(report);
  return report;
}

std::string dtype_list(std::uint32_t dtypes) {
  std::vector<std::string_view> names;
  for (unsigned bit = 0; bit < 32; ++bit) {
    if ((dtypes >> bit & 1U) != 0) names.push_back(dtype_name(static_cast<Dtype>(bit)));
  }
  return fmt::format("{}", fmt::join(names, " "));
}

void print_model(const Report& report) {
  const ModelConfig& c = report.config;
  fmt::print("{}\n", report.directory);
  const auto millions = static_cast<double>(parameter_count(c)) / 1e6;
  fmt::print("{}: {:.{}f} million parameters, {} layers: {} KDA, {} MLA{}\n", c.family, millions,
             millions < 100 ? 2 : 0, c.layers.size(), c.count(Mixer::kKda), c.count(Mixer::kMla),
             c.has_indexer()
                 ? fmt::format(" with indexers {} x {}, top-k {}", c.indexer.heads, c.indexer.head_dim, c.indexer.top_k)
                 : "");
  fmt::print("hidden {}, vocabulary {}, context {}\n", c.hidden, c.vocab, c.max_positions);
  fmt::print("KDA {} x {}, {} gate; MLA {} heads, latent {} + {}{}\n", c.kda.heads, c.kda.head_dim,
             c.kda.gate_lower_bound < 0 ? fmt::format("bounded ({})", c.kda.gate_lower_bound) : "unbounded",
             c.mla.heads, c.mla.kv_lora_rank, c.mla.rope, c.mla.output_gate ? ", output gate" : "");
  if (c.moe.experts > 0) {
    fmt::print("{} experts, {} a token, width {}{}{}\n", c.moe.experts, c.moe.top_k, c.moe.expert_width,
               c.moe.latent > 0 ? fmt::format(" in a latent of {}", c.moe.latent) : "",
               c.moe.shared_width > 0 ? fmt::format(", shared width {}", c.moe.shared_width) : "");
  }
  fmt::print("{}, {}, vision {}\n", c.activation == Activation::kSitu ? "SiTU" : "SwiGLU",
             c.attn_res_block > 0 ? fmt::format("attention residuals in blocks of {}", c.attn_res_block)
                                  : std::string("plain residuals"),
             c.vision ? fmt::format("{} layers", c.vision->layers) : "none");
  fmt::print("stop tokens {}\n", fmt::join(c.stop_tokens, ", "));
  if (!report.digest.empty()) fmt::print("digest {}\n", report.digest);
}

void print_memory(const Report& report) {
  const SequenceBytes bytes = sequence_bytes(report.config, kEngineCacheElements);
  const std::int64_t weights = sum(report.weights).bytes;
  fmt::print("\nMemory (bf16 caches): weights {}; a user {} of state, {} B a token (latent {}, index keys {})\n",
             format_bytes(weights), format_bytes(bytes.state()), bytes.per_token(), bytes.latent_per_token,
             bytes.index_per_token);
  fmt::print("{:>12}", "context");
  for (const std::int64_t users : kUsers) fmt::print("{:>12}", fmt::format("{} user{}", users, users > 1 ? "s" : ""));
  fmt::print("   (with weights)\n");
  for (const std::int64_t length : context_lengths(report.config)) {
    fmt::print("{:>12}", length);
    for (const std::int64_t users : kUsers) fmt::print("{:>12}", format_bytes(weights + users * bytes.total(length)));
    fmt::print("\n");
  }
}

void print_report(const Report& report) {
  print_model(report);
  fmt::print("\n{:<16}{:>9}{:>12}  {}\n", "weights", "tensors", "bytes", "stored as");
  for (std::size_t kind = 0; kind < kTensorKinds; ++kind) {
    const KindBytes& row = report.weights[kind];
    if (row.tensors == 0) continue;
    fmt::print("{:<16}{:>9}{:>12}  {}\n", tensor_kind_name(static_cast<TensorKind>(kind)), row.tensors,
               format_bytes(row.bytes), dtype_list(row.dtypes));
  }
  const KindBytes total = sum(report.weights);
  fmt::print("{:<16}{:>9}{:>12}\n", "all", total.tensors, format_bytes(total.bytes));
  print_memory(report);
  if (report.odd.empty()) return;
  fmt::print("\nOdd:\n");
  for (const std::string& line : report.odd) fmt::print("  {}\n", line);
}

Json to_json(const Report& report) {
  const ModelConfig& c = report.config;
  const SequenceBytes bytes = sequence_bytes(c, kEngineCacheElements);
  const KindBytes total = sum(report.weights);
  Json json = {{"directory", report.directory},
               {"family", c.family},
               {"parameters", parameter_count(c)},
               {"layers", {{"all", c.layers.size()}, {"kda", c.count(Mixer::kKda)}, {"mla", c.count(Mixer::kMla)}}},
               {"hidden", c.hidden},
               {"vocab", c.vocab},
               {"max_positions", c.max_positions},
               {"experts", c.moe.experts},
               {"experts_per_token", c.moe.top_k},
               {"index_top_k", c.indexer.top_k},
               {"vision", c.vision.has_value()},
               {"stop_tokens", c.stop_tokens},
               {"digest", report.digest},
               {"weights_present", report.weights_present}};
  for (std::size_t kind = 0; kind < kTensorKinds; ++kind) {
    const KindBytes& row = report.weights[kind];
    if (row.tensors == 0) continue;
    json["weights"][tensor_kind_name(static_cast<TensorKind>(kind))] = {
        {"tensors", row.tensors}, {"bytes", row.bytes}, {"stored_as", dtype_list(row.dtypes)}};
  }
  json["weights"]["all"] = {{"tensors", total.tensors}, {"bytes", total.bytes}};
  json["sequence"] = {{"recurrent_bytes", bytes.recurrent},
                      {"convolution_bytes", bytes.convolution},
                      {"latent_bytes_per_token", bytes.latent_per_token},
                      {"index_bytes_per_token", bytes.index_per_token}};
  for (const std::int64_t length : context_lengths(c)) {
    for (const std::int64_t users : kUsers) {
      json["memory"].push_back(
          {{"context", length}, {"users", users}, {"bytes", total.bytes + users * bytes.total(length)}});
    }
  }
  json["odd"] = report.odd;
  return json;
}

}  // namespace

void register_inspect(const CommandGroups& groups, int& exit_code) {
  struct Arguments {
    std::string directory;
    std::string cache_directory;
    bool json = false;
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = groups.root->add_subcommand("inspect", "What a checkpoint is and what memory it needs");
  auto* what = command->add_option_group("what", "");
  what->add_option("dir", arguments->directory, "Checkpoint folder");
  what->add_option("--cache", arguments->cache_directory, "Prefix cache directory");
  what->require_option(1);
  command->add_flag("--json", arguments->json, "Machine-readable output");
  command->callback([arguments, &exit_code] {
    if (!arguments->cache_directory.empty()) {
      exit_code = inspect_cache(arguments->cache_directory, arguments->json);
      return;
    }
    const auto report = inspect(arguments->directory);
    if (!report.ok()) {
      exit_code = command_failed("inspect", report.status());
    } else if (arguments->json) {
      fmt::print("{}\n", to_json(*report).dump(1));
    } else {
      print_report(*report);
    }
  });
}

}  // namespace perigee::cli
