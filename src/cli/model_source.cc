#include "cli/model_source.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

namespace perigee::cli {
namespace {

// A K3.1-shaped model of 45 M parameters with the real vocabulary, so that the whole way from text to text works
// without a download. Its weights come from the generator (seed 1).
constexpr const char* kBuiltInConfig = R"({
 "architectures": ["KimiK31ForConditionalGeneration"], "model_type": "kimi_k31", "dtype": "bfloat16",
 "tie_word_embeddings": false, "bos_token_id": 163584, "eos_token_id": 163586, "pad_token_id": 163839,
 "text_config": {
  "architectures": ["KimiLinearForCausalLM"], "model_type": "kimi_linear", "dtype": "bfloat16", "vocab_size": 163840,
  "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 8, "num_attention_heads": 4,
  "num_key_value_heads": 4, "hidden_act": "situ", "activation_situ_beta": 4.0, "activation_situ_linear_beta": 25.0,
  "rms_norm_eps": 1e-05, "max_position_embeddings": 65536, "q_lora_rank": 64, "kv_lora_rank": 96,
  "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32, "mla_use_nope": true,
  "mla_use_output_gate": true, "num_experts": 16, "num_experts_per_token": 4, "num_shared_experts": 1,
  "moe_intermediate_size": 64, "routed_expert_hidden_size": 96, "latent_moe_use_norm": true,
  "first_k_dense_replace": 1, "moe_layer_freq": 1, "moe_renormalize": true,
  "moe_router_activation_func": "sigmoid", "use_grouped_topk": true, "num_expert_group": 1, "topk_group": 1,
  "topk_method": "noaux_tc", "routed_scaling_factor": 1.0, "attn_res_block_size": 4,
  "num_nextn_predict_layers": 0, "tie_word_embeddings": false,
  "linear_attn_config": {"full_attn_layers": [4, 8], "kda_layers": [1, 2, 3, 5, 6, 7], "gate_lower_bound": -5.0,
   "head_dim": 32, "num_heads": 4, "short_conv_kernel_size": 4, "use_full_rank_gate": true},
  "bos_token_id": 163584, "eos_token_id": 163586, "pad_token_id": 163839,
  "dsa_config": {"index_n_heads": 4, "index_head_dim": 32, "index_topk": 512, "layers": [4, 8]}
 }
})";

Result<std::unique_ptr<Checkpoint>> built_in_checkpoint(const LoadOptions& load) {
  PERIGEE_ASSIGN_OR_RETURN(const Json config, parse_json(kBuiltInConfig));
  SynthOptions options;
  options.seed = 1;
  return synthesise_checkpoint(config, nullptr, options, load);
}

Result<EngineOptions> engine_options(const EngineFlags& flags) {
  EngineOptions options;
  options.isa = flags.isa;
  options.threads = flags.threads;
  options.precision = flags.precision();
  if (!flags.memory.empty()) {
    PERIGEE_ASSIGN_OR_RETURN(options.memory_bytes, parse_bytes(flags.memory));
  }
  options.context_tokens = flags.context;
  options.max_branches = flags.max_branches;
  options.scheduler.max_step_tokens = flags.step_tokens;
  options.prefix_cache = !flags.no_cache;
  options.share_tenants = flags.share_cache;
  options.cache.snapshot_interval = flags.cache_interval;
  options.cache.disk.directory = flags.cache_directory;
  PERIGEE_ASSIGN_OR_RETURN(options.cache.disk.budget_bytes, parse_bytes(flags.cache_disk));
  if (!flags.cache_disk_writes.empty()) {
    PERIGEE_ASSIGN_OR_RETURN(options.cache.disk.write_bytes_per_day, parse_bytes(flags.cache_disk_writes));
  }
  options.cache_audit = flags.cache_audit;
  return options;
}

}  // namespace

Result<std::int64_t> parse_bytes(const std::string& text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string unit(end, text.data() + text.size());
  if (!unit.empty() && (unit.back() == 'B' || unit.back() == 'b')) unit.pop_back();
  if (!unit.empty() && unit.back() == 'i') unit.pop_back();
  const std::string_view units = "KMGT";
  double scale = 1;
  if (unit.size() == 1 && units.find(static_cast<char>(std::toupper(unit[0]))) != std::string_view::npos) {
    const auto power = units.find(static_cast<char>(std::toupper(unit[0]))) + 1;
    for (std::size_t i = 0; i < power; ++i) scale *= 1024;
    unit.clear();
  }
  if (error != std::errc() || !unit.empty() || !(number >= 0) || number * scale > 9e18) {
    return invalid_argument("size: expected a number of bytes such as 512M or 24G, found \"{}\"", text);
  }
  return static_cast<std::int64_t>(number * scale);
}

void add_weights_flag(CLI::App& app, std::string& weights) {
  app.add_option("--weights", weights, "stored, or int8: BF16 matrices become int8 groups (faster; other numbers)")
      ->check(CLI::IsMember({"stored", "int8"}))
      ->capture_default_str();
}

Result<std::unique_ptr<Checkpoint>> open_checkpoint(const std::string& directory, const std::string& weights,
                                                    bool parallel_read, bool show_progress) {
  const LoadOptions load{.weights = weights == "int8" ? WeightsAs::kInt8 : WeightsAs::kStored,
                         .parallel_read = parallel_read,
                         .show_progress = show_progress};
  return directory.empty() ? built_in_checkpoint(load) : Checkpoint::open(directory, load);
}

void add_model_flags(CLI::App& app, ModelFlags& flags) {
  app.add_option("dir", flags.directory,
                 "Model folder in the Hugging Face format; without it, a built-in generated model");
  app.add_option("--threads", flags.threads, "Threads (default: one a core)")->check(CLI::Range(0, 1024));
  app.add_option("--isa", flags.isa, "scalar, avx2, avx512, avx512bf16 or amx (default: PERIGEE_ISA or the best)");
  app.add_option("--path", flags.path, "Activations: bf16, or f32 (the slow reference)")
      ->check(CLI::IsMember({"bf16", "f32"}))
      ->capture_default_str();
  add_weights_flag(app, flags.weights);
}

void add_engine_flags(CLI::App& app, EngineFlags& flags) {
  add_model_flags(app, flags);
  app.add_option("--memory", flags.memory, "Memory for everything, such as 24G (default: 90 % of the machine)");
  app.add_option("--context", flags.context, "Longest sequence in tokens (default: what model and memory allow)")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--max-branches", flags.max_branches, "Sequences running at once (default: 64, or what memory allows)")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--step-tokens", flags.step_tokens, "Most tokens of one step")
      ->check(CLI::Range(16, 65536))
      ->capture_default_str();
  app.add_flag("--parallel-read", flags.parallel_read, "Read the shards into memory instead of mapping them");
  app.add_flag("--no-cache", flags.no_cache, "No prefix cache");
  app.add_flag("--share-cache", flags.share_cache, "API keys share one prefix cache (default: each key its own)");
  app.add_option("--cache-dir", flags.cache_directory, "Folder of the disk tier of the prefix cache");
  app.add_option("--cache-disk", flags.cache_disk, "Size of the disk tier, such as 200G; 0: no limit")
      ->capture_default_str();
  app.add_option("--cache-disk-writes", flags.cache_disk_writes,
                 "Bytes a day that the disk tier may write (default: what a consumer SSD survives for five years)");
  app.add_option("--cache-interval", flags.cache_interval, "Tokens between middle snapshots of a prompt; 0: none")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--cache-audit", flags.cache_audit, "Share of cache hits that are recomputed and compared bit by bit")
      ->check(CLI::Range(0.0, 1.0));
}

Result<LoadedModel> load_model(const EngineFlags& flags, bool quiet) {
  LoadedModel loaded;
  PERIGEE_ASSIGN_OR_RETURN(const EngineOptions options, engine_options(flags));
  PERIGEE_ASSIGN_OR_RETURN(loaded.checkpoint,
                           open_checkpoint(flags.directory, flags.weights, flags.parallel_read, !quiet));
  if (flags.directory.empty()) {
    loaded.generated = true;
    loaded.name = "perigee-generated";
  } else {
    std::string folder = flags.directory;
    while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
    loaded.name = std::filesystem::path(folder).filename().string();
  }
  const ModelConfig& config = loaded.checkpoint->config();
  loaded.dialect = &dialect_of_family(config.family);
  PERIGEE_ASSIGN_OR_RETURN(Tokenizer tokenizer, Tokenizer::for_checkpoint(loaded.checkpoint->directory(), config.vocab,
                                                                          loaded.dialect->specials));
  loaded.tokenizer = std::make_unique<Tokenizer>(std::move(tokenizer));
  for (const std::string& warning : loaded.checkpoint->warnings()) {
    std::fprintf(stderr, "perigee: %s\n", warning.c_str());
  }
  if (!quiet) {
    const StateLayout layout(config, options.precision == Precision::kBf16 ? KeyFormat::kBf16 : KeyFormat::kF32);
    PERIGEE_ASSIGN_OR_RETURN(const EngineMemory memory, plan_engine_memory(*loaded.checkpoint, layout, options));
    std::fprintf(stderr, "perigee: %s\n", memory.to_string().c_str());
  }
  PERIGEE_ASSIGN_OR_RETURN(loaded.engine, open_engine(*loaded.checkpoint, options));
  return loaded;
}

}  // namespace perigee::cli
