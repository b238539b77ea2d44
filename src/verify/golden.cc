#include "verify/golden.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/sha256.h"
#include "model/sequence_storage.h"
#include "verify/golden_compare.h"
#include "verify/golden_run.h"

namespace perigee {
namespace {

namespace fs = std::filesystem;

constexpr double kGreedyNoise = 1e-4;     // f32: a token may differ only where the recorded margin is below this
constexpr double kClearMarginBf16 = 0.5;  // bf16: steps that count
constexpr double kGreedyShareBf16 = 0.8;

// The generated weights are the stored ones: SHA-256 of every tensor of the manifest.
Status verify_manifest(const GoldenRun& run, const Checkpoint& checkpoint) {
  PERIGEE_ASSIGN_OR_RETURN(const Json manifest,
                           read_json_file(run.directory + "/manifest.json", {.keys_per_object = 1U << 20U}));
  if (!manifest.contains("tensors") || !manifest.at("tensors").is_object()) {
    return data_loss("{}/manifest.json: expected an object \"tensors\"", run.directory);
  }
  std::size_t wrong = 0;
  std::string first;
  for (const auto& [name, entry] : manifest.at("tensors").items()) {
    const TensorView* tensor = checkpoint.tensors().find(name);
    if (tensor != nullptr && to_hex(sha256(tensor->data)) == entry.value("sha256", "")) continue;
    ++wrong;
    if (first.empty()) first = name;
  }
  const std::size_t expected = manifest.at("tensors").size();
  wrong += checkpoint.tensors().size() > expected ? checkpoint.tensors().size() - expected : 0;
  run.add("weights", "sha256", static_cast<double>(wrong), 0,
          wrong == 0 ? fmt::format("{} tensors", expected) : fmt::format("first difference: {}", first));
  return {};
}

// Python writes infinite margins as a bare word that JSON does not have; none of them is a limit.
Result<Json> read_measured(const std::string& path) {
  if (!fs::exists(path)) return Json();
  PERIGEE_ASSIGN_OR_RETURN(std::string text, read_file(path, std::size_t{64} << 20));
  for (const std::string_view word : {"-Infinity", "Infinity", "NaN"}) {
    for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at)) {
      text.replace(at, word.size(), "null");
    }
  }
  auto measured = parse_json(text);
  if (!measured.ok()) return measured.status().with_context(path);
  return measured;
}

Result<CheckReport> verify_folder(const std::string& directory, const GoldenOptions& options, const Kernels& kernels,
                                  ThreadPool& pool, CheckReport report) {
  PERIGEE_ASSIGN_OR_RETURN(const auto checkpoint, synthesise_checkpoint(directory));
  PERIGEE_ASSIGN_OR_RETURN(const auto model, Model::create(*checkpoint, kernels, pool, options.precision));
  PERIGEE_ASSIGN_OR_RETURN(const Json measured, read_measured(directory + "/measured.json"));
  const GoldenRun run{.directory = directory,
                      .name = fs::path(directory).filename().string(),
                      .model = *model,
                      .measured = measured,
                      .report = report};
  PERIGEE_RETURN_IF_ERROR(verify_manifest(run, *checkpoint));
  if (fs::exists(directory + "/prompts.safetensors")) PERIGEE_RETURN_IF_ERROR(verify_prompts(run));
  if (fs::exists(directory + "/layers.safetensors")) PERIGEE_RETURN_IF_ERROR(verify_layers(run));
  if (fs::exists(directory + "/greedy.safetensors")) PERIGEE_RETURN_IF_ERROR(verify_greedy(run));
  return report;
}

// A path like "tiny-a/" has an empty last component.
std::string without_trailing_slash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

}  // namespace

Status verify_greedy(const GoldenRun& run) {
  PERIGEE_ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::open(run.directory + "/greedy.safetensors"));
  PERIGEE_ASSIGN_OR_RETURN(const auto prompt, file.elements<std::int32_t>("prompt"));
  PERIGEE_ASSIGN_OR_RETURN(const auto tokens, file.elements<std::int32_t>("tokens"));
  PERIGEE_ASSIGN_OR_RETURN(const auto margins, file.elements<float>("margins"));
  const auto vocab = static_cast<std::size_t>(run.model.config().vocab);
  SequenceStorage sequence(run.model.state_layout());
  const auto feed = [&](std::span<const std::int32_t> ids, WantLogits logits) {
    const Segment segment = sequence.next(ids, logits);
    const StepOutput output = run.model.forward({&segment, 1});
    sequence.advance(static_cast<std::int64_t>(ids.size()));
    return output.logits;
  };

  if (run.f32()) {
    // As a server decodes: the prompt in one step, then one token a step.
    std::span<const float> logits = feed(prompt, WantLogits::kLast);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (argmax(logits) != static_cast<std::size_t>(tokens[i]) && double{margins[i]} > kGreedyNoise) ++wrong;
      if (i + 1 < tokens.size()) logits = feed(tokens.subspan(i, 1), WantLogits::kLast);
    }
    run.add("greedy", "tokens", static_cast<double>(wrong), 0, fmt::format("{} steps", tokens.size()));
    return {};
  }
  std::vector<std::int32_t> all(prompt.begin(), prompt.end());
  all.insert(all.end(), tokens.begin(), tokens.end());
  const std::span<const float> logits = feed(all, WantLogits::kAll);
  std::size_t clear = 0;
  std::size_t equal = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (double{margins[i]} <= kClearMarginBf16) continue;
    ++clear;
    const auto row = logits.subspan((prompt.size() - 1 + i) * vocab, vocab);
    if (argmax(row) == static_cast<std::size_t>(tokens[i])) ++equal;
  }
  run.add("greedy", "teacher-forced argmax",
          clear == 0 ? 0 : 1 - static_cast<double>(equal) / static_cast<double>(clear), 1 - kGreedyShareBf16 + 1e-9,
          fmt::format("{} of {} clear steps equal", equal, clear));
  return {};
}

Result<CheckReport> verify_goldens(const std::string& path, const GoldenOptions& options) {
  const std::string directory = without_trailing_slash(path);
  std::error_code error;
  if (!fs::is_directory(directory, error)) {
    return make_error(StatusCode::kNotFound, "{}: expected a folder of goldens", directory);
  }
  PERIGEE_ASSIGN_OR_RETURN(const Kernels* kernels, default_kernels(options.isa));
  ThreadPool pool(options.threads);
  CheckReport report;
  report.title = fmt::format("goldens: {} path, {} activations, {} threads", kernels->isa,
                             options.precision == Precision::kF32 ? "f32" : "bf16", pool.size());
  std::vector<std::string> folders;
  if (fs::exists(directory + "/manifest.json")) {
    folders.push_back(directory);
  } else {
    for (const auto& entry : fs::directory_iterator(directory, error)) {
      if (fs::exists(entry.path() / "manifest.json")) folders.push_back(entry.path().string());
    }
    std::sort(folders.begin(), folders.end());
  }
  const bool ops_only = fs::path(directory).filename() == "ops";
  const std::string ops = ops_only ? directory : directory + "/ops";
  const bool has_ops = fs::exists(ops + "/norms.safetensors");
  if (folders.empty() && !has_ops) {
    return make_error(StatusCode::kNotFound, "{}: expected a manifest.json here or in a sub-folder", directory);
  }
  for (const std::string& folder : folders) {
    auto result = verify_folder(folder, options, *kernels, pool, std::move(report));
    if (!result.ok()) return result.status().with_context(folder);
    report = std::move(*result);
  }
  // The operator vectors are fp32 results, whatever the activations of the models.
  if (has_ops) PERIGEE_RETURN_IF_ERROR(verify_ops(ops, *kernels, report));
  return report;
}

}  // namespace perigee
