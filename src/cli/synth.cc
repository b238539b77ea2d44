// `perigee synth CONFIG OUT`: a random checkpoint of any shape in the released layout.
#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>

#include "checkpoint/checkpoint_writer.h"
#include "checkpoint/progress.h"
#include "cli/commands.h"
#include "cli/exit_code.h"

namespace perigee::cli {
namespace {

struct SynthArguments {
  std::string config;
  std::string out;
  std::int64_t seed = -1;
  std::int64_t layers = 0;
  std::int64_t experts = 0;
  double shard_gigabytes = 5;
};

Result<WriteSummary> run(const SynthArguments& arguments) {
  std::filesystem::path folder(arguments.config);
  if (folder.filename() == "config.json") folder = folder.parent_path();
  PERIGEE_ASSIGN_OR_RETURN(SynthSource source, read_synth_source(folder.empty() ? "." : folder.string()));
  if (arguments.seed >= 0) source.options.seed = static_cast<std::uint64_t>(arguments.seed);
  PERIGEE_RETURN_IF_ERROR(shrink_config(*source.config, arguments.layers, arguments.experts));
  return write_generated_checkpoint(
      source, arguments.out,
      {.shard_bytes = static_cast<std::int64_t>(arguments.shard_gigabytes * 1e9), .show_progress = true});
}

}  // namespace

void register_synth(const CommandGroups& groups, int& exit_code) {
  auto arguments = std::make_shared<SynthArguments>();
  CLI::App* command = groups.root->add_subcommand("synth", "Write a random checkpoint of any shape");
  command->add_option("config", arguments->config, "config.json, or a folder with it (and synth.json)")->required();
  command->add_option("out", arguments->out, "New folder for the checkpoint")->required();
  command->add_option("--seed", arguments->seed, "Seed instead of that of synth.json")->check(CLI::NonNegativeNumber);
  command->add_option("--layers", arguments->layers, "Only the first layers")->check(CLI::PositiveNumber);
  command->add_option("--experts", arguments->experts, "Fewer routed experts")->check(CLI::PositiveNumber);
  command->add_option("--shard-size", arguments->shard_gigabytes, "GB in one file")->check(CLI::Range(0.001, 1000.0));
  command->callback([arguments, &exit_code] {
    const auto summary = run(*arguments);
    if (!summary.ok()) {
      exit_code = command_failed("synth", summary.status());
      return;
    }
    fmt::print("{}: {} tensors, {}, {} file{}\n", arguments->out, summary->tensors, format_bytes(summary->bytes),
               summary->shards, summary->shards > 1 ? "s" : "");
  });
}

}  // namespace perigee::cli
