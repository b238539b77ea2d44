// What `run`, `serve` and others start from: a checkpoint (a folder, or the built-in generated model) and an engine on
// it.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "checkpoint/weights.h"
#include "engine/open_engine.h"
#include "text/dialect.h"
#include "text/tokenizer.h"

namespace CLI {
class App;
}

namespace perigee::cli {

struct ModelFlags {
  std::string directory;  // empty: the built-in model
  int threads = 0;
  std::string isa;
  std::string path = "bf16";
  std::string weights = "stored";

  Precision precision() const { return path == "f32" ? Precision::kF32 : Precision::kBf16; }
};

struct EngineFlags : ModelFlags {
  std::string memory;  // "24G"; empty: most of the machine
  std::int64_t context = 0;
  std::int64_t max_branches = 0;
  std::int64_t step_tokens = 2048;
  bool parallel_read = false;
  bool no_cache = false;
  bool share_cache = false;
  std::string cache_directory;
  std::string cache_disk = "0";
  std::string cache_disk_writes;
  std::int64_t cache_interval = 32768;
  double cache_audit = 0;
};

// The model folder as a positional argument and how it is computed. `flags` outlives the parse.
void add_model_flags(CLI::App& app, ModelFlags& flags);
// The same and the flags of the engine.
void add_engine_flags(CLI::App& app, EngineFlags& flags);

struct LoadedModel {
  std::unique_ptr<Checkpoint> checkpoint;
  std::unique_ptr<Engine> engine;  // uses the checkpoint
  std::string name;
  bool generated = false;  // the built-in model: random weights, so the text means nothing
  const Dialect* dialect = nullptr;
  std::unique_ptr<Tokenizer> tokenizer;
};

// The checkpoint of a folder, or the built-in model where `directory` is empty. `weights`: as add_weights_flag has it.
Result<std::unique_ptr<Checkpoint>> open_checkpoint(const std::string& directory, const std::string& weights,
                                                    bool parallel_read, bool show_progress);
// --weights.
void add_weights_flag(CLI::App& app, std::string& weights);

// Loads, plans the memory (printed on stderr unless `quiet`) and starts the engine.
Result<LoadedModel> load_model(const EngineFlags& flags, bool quiet);

// "512M", "24G", "1.5T", or plain bytes.
Result<std::int64_t> parse_bytes(const std::string& text);

}  // namespace perigee::cli
