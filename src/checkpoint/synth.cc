#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/checked.h"
#include "base/threads.h"
#include "checkpoint/inventory.h"
#include "checkpoint/loaded_checkpoint.h"
#include "checkpoint/synth_plan.h"

namespace perigee {
namespace {

constexpr std::int64_t kAlignment = 64;
constexpr std::int64_t kChunkBytes = std::int64_t{1} << 20;  // a multiple of every element size

}  // namespace

Result<std::vector<GeneratedTensor>> generated_tensors(const ModelConfig& config, const SynthOptions& options) {
  if (config.expert_format == ExpertFormat::kOther) {
    return make_error(StatusCode::kUnimplemented,
                      "quantization_config.format: weights are generated as mxfp4-pack-quantized, pack-quantized or "
                      "without quantisation only");
  }
  const std::int64_t in = config.moe.latent > 0 ? config.moe.latent : config.hidden;
  if (config.expert_format == ExpertFormat::kMxfp4 && (in % 32 != 0 || config.moe.expert_width % 32 != 0)) {
    return invalid_argument("MXFP4 experts: expected widths that 32 divides, found {} and {}", in,
                            config.moe.expert_width);
  }
  std::vector<GeneratedTensor> tensors;
  for (const TensorSpec& spec : expected_tensors(config, options, nullptr)) {
    for (GeneratedTensor& tensor : stored_tensors(spec, options)) tensors.push_back(std::move(tensor));
  }
  return tensors;
}

Result<std::unique_ptr<Checkpoint>> synthesise_checkpoint(const Json& config, const Json* generation_config,
                                                          const SynthOptions& options, const LoadOptions& load) {
  CheckpointParts parts;
  PERIGEE_ASSIGN_OR_RETURN(parts.config, parse_model_config(config, generation_config));
  PERIGEE_ASSIGN_OR_RETURN(const std::vector<GeneratedTensor> tensors, generated_tensors(parts.config, options));
  parts.directory = "(generated)";
  parts.config_text = config.dump();
  parts.files = {"(generated)"};
  parts.variants = options;

  std::int64_t total = 0;
  for (const GeneratedTensor& tensor : tensors) total += align_up(tensor.bytes(), kAlignment);
  PERIGEE_ASSIGN_OR_RETURN(MemoryRegion region, MemoryRegion::allocate(static_cast<std::size_t>(total)));

  struct Chunk {
    const GeneratedTensor* tensor;
    std::span<std::byte> out;
    std::int64_t first;
  };
  std::vector<Chunk> chunks;
  std::vector<TensorView> views;
  std::int64_t offset = 0;
  for (const GeneratedTensor& tensor : tensors) {
    const auto bytes =
        region.bytes().subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(tensor.bytes()));
    offset += align_up(tensor.bytes(), kAlignment);
    views.push_back({tensor.name, tensor.dtype, tensor.shape, bytes});
    for (std::int64_t begin = 0; begin < tensor.bytes(); begin += kChunkBytes) {
      const std::int64_t size = std::min(kChunkBytes, tensor.bytes() - begin);
      chunks.push_back({&tensor, bytes.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(size)),
                        begin / dtype_bytes(tensor.dtype)});
    }
  }
  ThreadPool pool;
  pool.run(static_cast<std::int64_t>(chunks.size()), [&](std::int64_t index, int /*thread*/) {
    const Chunk& chunk = chunks[static_cast<std::size_t>(index)];
    fill_elements(*chunk.tensor, options.seed, chunk.first, chunk.out);
  });
  PERIGEE_ASSIGN_OR_RETURN(parts.tensors, TensorTable::build(std::move(views)));
  parts.regions.push_back(std::move(region));
  return LoadedCheckpoint::create(std::move(parts), load);
}

Result<std::unique_ptr<Checkpoint>> synthesise_checkpoint(const std::string& directory, const LoadOptions& load) {
  PERIGEE_ASSIGN_OR_RETURN(const SynthSource source, read_synth_source(directory));
  auto checkpoint = synthesise_checkpoint(*source.config, source.generation_config.get(), source.options, load);
  if (!checkpoint.ok()) return checkpoint.status().with_context(directory);
  return checkpoint;
}

Result<SynthSource> read_synth_source(const std::string& directory) {
  SynthSource source;
  PERIGEE_ASSIGN_OR_RETURN(Json config, read_json_file(directory + "/config.json"));
  source.config = std::make_shared<Json>(std::move(config));
  const std::string generation_path = directory + "/generation_config.json";
  if (std::filesystem::exists(generation_path)) {
    PERIGEE_ASSIGN_OR_RETURN(Json generation, read_json_file(generation_path));
    source.generation_config = std::make_shared<Json>(std::move(generation));
  }
  const std::string synth_path = directory + "/synth.json";
  if (std::filesystem::exists(synth_path)) {
    PERIGEE_ASSIGN_OR_RETURN(const Json synth, read_json_file(synth_path));
    auto options = parse_synth_options(synth);
    if (!options.ok()) return options.status().with_context(synth_path);
    source.options = *std::move(options);
  }
  return source;
}

}  // namespace perigee
