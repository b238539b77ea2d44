// perigee verify cache DIR: prefix cache vectors against the real index.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/json.h"
#include "cache/cache_vectors.h"
#include "cli/commands.h"

namespace perigee::cli {
namespace {

struct VerifyCacheOptions {
  std::string directory;
  std::string traces;
  bool json = false;
};

// Beside the vectors, or where the folder layout of the shared data has them.
std::string find_traces(const VerifyCacheOptions& options) {
  if (!options.traces.empty()) return options.traces;
  const std::string own = options.directory + "/traces";
  return std::filesystem::is_directory(own) ? own : options.directory + "/../../data/traces";
}

int verify_cache(const VerifyCacheOptions& options) {
  std::string scratch = (std::filesystem::temp_directory_path() / "perigee-verify-XXXXXX").string();
  if (::mkdtemp(scratch.data()) == nullptr) {
    fmt::print(stderr, "{}: cannot create a scratch directory\n", scratch);
    return 2;
  }
  spdlog::set_level(spdlog::level::off);  // the vectors damage objects on purpose
  const Result<CacheVectorReport> result = run_cache_vectors(options.directory, find_traces(options), scratch);
  std::error_code ignored;
  std::filesystem::remove_all(scratch, ignored);
  if (!result.ok()) {
    fmt::print(stderr, "{}\n", result.status().message());
    return 2;
  }
  const CacheVectorReport& report = *result;
  if (options.json) {
    Json traces = Json::array();
    for (const TraceReplay& replay : report.traces) {
      traces.push_back({{"trace", replay.trace},
                        {"interval", replay.interval},
                        {"branch", replay.branch},
                        {"restored_tokens", replay.restored_tokens},
                        {"full_hits", replay.full_hits},
                        {"states", replay.states},
                        {"hit_percent", replay.hit_percent()}});
    }
    const Json document = {{"sequences", report.sequences},
                           {"sequences_passed", report.sequences_passed},
                           {"requests", report.requests},
                           {"key_prompts", report.key_prompts},
                           {"key_prompts_passed", report.key_prompts_passed},
                           {"traces_passed", report.traces_passed},
                           {"traces", std::move(traces)},
                           {"failures", report.failures},
                           {"ok", report.failures.empty()}};
    fmt::print("{}\n", document.dump(2));
  } else {
    for (const std::string& failure : report.failures) fmt::print("FAILED {}\n", failure);
    for (const TraceReplay& replay : report.traces) {
      fmt::print("{:36} interval {:5} branch {:5} hit {:5.2f} %  states {}\n", replay.trace, replay.interval,
                 replay.branch, replay.hit_percent(), replay.states);
    }
    fmt::print("sequences {}/{} ({} requests), key prompts {}/{}, traces {}/{}\n", report.sequences_passed,
               report.sequences, report.requests, report.key_prompts_passed, report.key_prompts, report.traces_passed,
               report.traces.size());
  }
  return report.failures.empty() ? 0 : 1;
}

}  // namespace

void register_verify_cache(const CommandGroups& groups, int& exit_code) {
  CLI::App* command = groups.verify->add_subcommand("cache", "Prefix cache vectors (sequences, keys, traces)");
  auto options = std::make_shared<VerifyCacheOptions>();
  command->add_option("DIR", options->directory, "Folder with sequences.json, keys.json and traces.json")->required();
  command->add_option("--traces", options->traces, "Folder of the trace files (default: DIR/traces)");
  command->add_flag("--json", options->json, "Machine-readable report");
  command->callback([options, &exit_code] { exit_code = verify_cache(*options); });
}

}  // namespace perigee::cli
