#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "model/sequence_storage.h"
#include "verify/golden_compare.h"
#include "verify/golden_run.h"

namespace perigee {
namespace {

constexpr double kClearGap = 1.0;  // bf16: rows whose top-2 gap must keep the argmax
constexpr double kArgmaxShare = 0.9;

// bf16 limit of the median logits row, by prompt length (goldens' README).
double median_limit(const Json& measured, const std::string& prompt, std::size_t tokens) {
  if (tokens == 1) return 0.05;
  if (tokens < 12) return 0.06;
  double recorded = 0;
  if (measured.is_object() && measured.contains(prompt)) {
    const Json& entry = measured.at(prompt);
    if (entry.contains("bf16")) recorded = entry.at("bf16").at("logits").value("median", 0.0);
  }
  return tokens < 150 ? std::max(0.10, 2 * recorded) : 2 * recorded + 0.10;
}

std::vector<float> pick_rows(std::span<const float> all, std::span<const std::int32_t> rows, std::size_t width) {
  std::vector<float> picked;
  picked.reserve(rows.size() * width);
  for (const std::int32_t row : rows) {
    const auto from = all.subspan(static_cast<std::size_t>(row) * width, width);
    picked.insert(picked.end(), from.begin(), from.end());
  }
  return picked;
}

void compare_bf16_logits(const GoldenRun& run, const std::string& prompt, std::size_t tokens,
                         std::span<const float> got, std::span<const float> want, std::size_t vocab) {
  const std::vector<double> errors = row_errors(got, want, vocab);
  run.add(prompt, "logits (median row)", median(errors), median_limit(run.measured, prompt, tokens),
          fmt::format("worst row {:.3f}", worst(errors)));
  if (tokens < 12 || tokens >= 150) return;
  std::size_t clear = 0;
  std::size_t equal = 0;
  for (std::size_t r = 0; r * vocab < want.size(); ++r) {
    const auto row = want.subspan(r * vocab, vocab);
    std::vector<float> sorted(row.begin(), row.end());
    std::partial_sort(sorted.begin(), sorted.begin() + 2, sorted.end(), std::greater<>());
    if (double{sorted[0]} - double{sorted[1]} <= kClearGap) continue;
    ++clear;
    if (argmax(got.subspan(r * vocab, vocab)) == argmax(row)) ++equal;
  }
  const double differing = clear == 0 ? 0 : 1.0 - static_cast<double>(equal) / static_cast<double>(clear);
  run.add(prompt, "argmax (clear rows)", differing, 1 - kArgmaxShare + 1e-9,
          fmt::format("{} of {} equal", equal, clear));
}

Status compare_caches(const GoldenRun& run, const SafetensorsFile& file, const std::string& prompt,
                      const std::string& prefix, std::int64_t layer, const SequenceStorage& sequence) {
  const StateLayout::MlaPlace& place = run.model.state_layout().mla[static_cast<std::size_t>(layer)];
  const auto compare = [&](const std::string& name, std::int64_t offset, std::int64_t width) -> Status {
    if (file.find(prefix + name) == nullptr) return {};
    PERIGEE_ASSIGN_OR_RETURN(const auto want, file.elements<float>(prefix + name));
    double error = 0;
    for (std::int64_t t = 0; t < sequence.position(); ++t) {
      error = std::max(error,
                       row_error(sequence.row(t, offset, width),
                                 want.subspan(static_cast<std::size_t>(t * width), static_cast<std::size_t>(width))));
    }
    run.add(prompt, prefix.substr(prompt.size() + 1) + name, error, kRowTolerance);
    return {};
  };
  PERIGEE_RETURN_IF_ERROR(compare("mla_rows", place.latent, run.model.config().mla.latent_row()));
  if (place.index < 0) return {};
  return compare("index_keys", place.index, run.model.config().indexer.head_dim);
}

Status verify_prompt(const GoldenRun& run, const SafetensorsFile& file, const std::string& prompt) {
  const ModelConfig& config = run.model.config();
  const auto hidden = static_cast<std::size_t>(config.hidden);
  const auto vocab = static_cast<std::size_t>(config.vocab);
  const std::string prefix = prompt + ".";
  PERIGEE_ASSIGN_OR_RETURN(const auto ids, file.elements<std::int32_t>(prefix + "ids"));
  PERIGEE_ASSIGN_OR_RETURN(const auto logits, file.elements<float>(prefix + "logits"));
  std::vector<std::int32_t> rows(logits.size() / vocab);
  std::iota(rows.begin(), rows.end(), static_cast<std::int32_t>(ids.size() - rows.size()));
  if (file.find(prefix + "rows") != nullptr) {
    PERIGEE_ASSIGN_OR_RETURN(const auto stored, file.elements<std::int32_t>(prefix + "rows"));
    rows.assign(stored.begin(), stored.end());
  }
  const auto bad = [&](std::int32_t row) { return row < 0 || static_cast<std::size_t>(row) >= ids.size(); };
  if (ids.empty() || rows.size() * vocab != logits.size() || std::any_of(rows.begin(), rows.end(), bad)) {
    return data_loss("{}: {}: rows and logits do not fit {} ids", file.path(), prompt, ids.size());
  }
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= config.vocab)
      return data_loss("{}: {}ids: expected 0..{}, found {}", file.path(), prefix, config.vocab - 1, id);
  }

  GoldenCapture capture(static_cast<std::int64_t>(ids.size()), config);
  SequenceStorage sequence(run.model.state_layout());
  const Segment segment = sequence.next(ids, WantLogits::kAll);
  const StepOutput output = run.model.forward({&segment, 1}, &capture);
  sequence.advance(static_cast<std::int64_t>(ids.size()));

  const std::vector<float> got = pick_rows(output.logits, rows, vocab);
  if (!run.f32()) {
    compare_bf16_logits(run, prompt, ids.size(), got, logits, vocab);
    return {};
  }
  run.add(prompt, "logits", worst(row_errors(got, logits, vocab)), kRowTolerance);
  if (file.find(prefix + "final_norm") != nullptr) {
    PERIGEE_ASSIGN_OR_RETURN(const auto want, file.elements<float>(prefix + "final_norm"));
    run.add(prompt, "final_norm", worst(row_errors(pick_rows(output.final_rows, rows, hidden), want, hidden)),
            kRowTolerance);
  }
  if (file.find(prefix + "hidden") != nullptr) {
    PERIGEE_ASSIGN_OR_RETURN(const auto want, file.elements<float>(prefix + "hidden"));
    const std::size_t per_layer = want.size() / config.layers.size();  // the last rows of each layer
    double error = 0;
    for (std::size_t layer = 0; layer < config.layers.size(); ++layer) {
      const std::vector<float>& mine = capture.hidden[static_cast<std::int64_t>(layer)];
      error = std::max(error, worst(row_errors(std::span(mine).last(per_layer),
                                               want.subspan(layer * per_layer, per_layer), hidden)));
    }
    run.add(prompt, "hidden", error, kRowTolerance);
  }
  for (std::int64_t layer = 0; layer < static_cast<std::int64_t>(config.layers.size()); ++layer) {
    const std::string at = fmt::format("{}L{}.", prefix, layer);
    if (file.find(at + "kda_state") != nullptr) {
      PERIGEE_RETURN_IF_ERROR(compare_recurrent(run, file, prompt, at, layer, sequence.recurrent(), kRowTolerance));
    }
    if (config.layers[static_cast<std::size_t>(layer)].mixer == Mixer::kMla) {
      PERIGEE_RETURN_IF_ERROR(compare_caches(run, file, prompt, at, layer, sequence));
    }
    if (file.find(at + "dsa.sel") != nullptr) {
      PERIGEE_RETURN_IF_ERROR(compare_selections(run, file, prompt, at, rows, capture.selections[layer], nullptr));
    }
    if (file.find(at + "moe.ids") != nullptr) {
      PERIGEE_RETURN_IF_ERROR(compare_routings(run, file, prompt, at, rows, capture.routings[layer], nullptr));
    }
  }
  return {};
}

}  // namespace

Status verify_prompts(const GoldenRun& run) {
  PERIGEE_ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::open(run.directory + "/prompts.safetensors"));
  // Prompts in ascending length: "p7" before "p12".
  std::set<std::pair<std::size_t, std::string>> prompts;
  for (const TensorView& tensor : file.tensors()) {
    const std::size_t dot = tensor.name.find('.');
    if (tensor.name.ends_with(".ids") && dot + 4 == tensor.name.size())
      prompts.emplace(dot, tensor.name.substr(0, dot));
  }
  for (const auto& [length, prompt] : prompts) PERIGEE_RETURN_IF_ERROR(verify_prompt(run, file, prompt));
  return {};
}

}  // namespace perigee
