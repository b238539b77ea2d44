#include <algorithm>
#include <numeric>

#include "base/numeric.h"
#include "model/sequence_storage.h"
#include "verify/golden_compare.h"
#include "verify/golden_run.h"

namespace perigee {
namespace {

constexpr double kAttentionBf16 = 0.05;
constexpr double kMlpBf16 = 0.015;
constexpr double kStateBf16 = 0.02;

Result<std::vector<float>> exact_rows(const SafetensorsFile& file, const std::string& name) {
  PERIGEE_ASSIGN_OR_RETURN(const auto stored, file.elements<bf16>(name));
  std::vector<float> values(stored.size());
  std::transform(stored.begin(), stored.end(), values.begin(), [](bf16 value) { return to_float(value); });
  return values;
}

double worst_where(const std::vector<double>& errors, const std::vector<bool>& counts) {
  double result = 0;
  for (std::size_t i = 0; i < errors.size(); ++i) {
    if (counts[i]) result = std::max(result, errors[i]);
  }
  return result;
}

class HalfLayers {
 public:
  HalfLayers(const GoldenRun& run, const SafetensorsFile& file, std::span<const std::int32_t> ids)
      : run_(run), file_(file), ids_(ids), all_rows_(ids.size()) {
    std::iota(all_rows_.begin(), all_rows_.end(), 0);
  }

  Status attention(std::int64_t layer) {
    const std::string at = fmt::format("L{}.", layer);
    PERIGEE_ASSIGN_OR_RETURN(const auto want, file_.elements<float>(at + "attn_out"));
    Residual residual;
    PERIGEE_RETURN_IF_ERROR(fill(residual, layer, at + "in", layer));
    GoldenCapture capture(static_cast<std::int64_t>(ids_.size()), run_.model.config());
    SequenceStorage sequence(run_.model.state_layout());
    const Segment segment = sequence.next(ids_, WantLogits::kNone);
    StepContext step = run_.model.make_step({&segment, 1}, &capture);
    run_.model.attention_half(step, layer, residual);

    std::vector<bool> same(ids_.size(), true);
    if (file_.find(at + "dsa.sel") != nullptr) {
      PERIGEE_RETURN_IF_ERROR(
          compare_selections(run_, file_, "layers", at, all_rows_, capture.selections[layer], &same));
    }
    const auto errors = row_errors(capture.attention[layer], want, hidden());
    run_.add("layers", at + "attn_out", worst_where(errors, same), run_.f32() ? kRowTolerance : kAttentionBf16);
    if (file_.find(at + "kda_state") == nullptr) return {};
    return compare_recurrent(run_, file_, "layers", at, layer, sequence.recurrent(),
                             run_.f32() ? kRowTolerance : kStateBf16);
  }

  Status mlp(std::int64_t layer) {
    const std::string at = fmt::format("L{}.", layer);
    PERIGEE_ASSIGN_OR_RETURN(const auto want, file_.elements<float>(at + "out"));
    Residual residual;
    PERIGEE_RETURN_IF_ERROR(fill(residual, layer, at + "mid_in", layer + 1));
    GoldenCapture capture(static_cast<std::int64_t>(ids_.size()), run_.model.config());
    SequenceStorage sequence(run_.model.state_layout());
    const Segment segment = sequence.next(ids_, WantLogits::kNone);
    StepContext step = run_.model.make_step({&segment, 1}, &capture);
    run_.model.mlp_half(step, layer, residual);

    std::vector<bool> same(ids_.size(), true);
    if (file_.find(at + "moe.ids") != nullptr) {
      PERIGEE_RETURN_IF_ERROR(compare_routings(run_, file_, "layers", at, all_rows_, capture.routings[layer], &same));
    }
    const auto errors = row_errors({residual.prefix(), want.size()}, want, hidden());
    run_.add("layers", at + "out", worst_where(errors, same), run_.f32() ? kRowTolerance : kMlpBf16);
    if (!run_.f32() || file_.find(at + "moe.latent") == nullptr) return {};
    PERIGEE_ASSIGN_OR_RETURN(const auto sum, file_.elements<float>(at + "moe.latent"));
    run_.add("layers", at + "moe.latent", worst(row_errors(capture.routed_sum[layer], sum, sum.size() / ids_.size())),
             kRowTolerance);
    return {};
  }

 private:
  std::size_t hidden() const { return static_cast<std::size_t>(run_.model.config().hidden); }

  // The prefix from `name`, and as blocks the layer inputs of every boundary below `pushed`.
  Status fill(Residual& residual, std::int64_t layer, const std::string& name, std::int64_t pushed) const {
    const ModelConfig& config = run_.model.config();
    residual.start(config, static_cast<std::int64_t>(ids_.size()));
    for (std::int64_t block = 0; config.attn_res_block > 0 && block < pushed; block += config.attn_res_block) {
      PERIGEE_ASSIGN_OR_RETURN(const auto rows, exact_rows(file_, fmt::format("L{}.in", block)));
      PERIGEE_RETURN_IF_ERROR(check_size(rows.size(), block));
      residual.push(rows.data());
    }
    PERIGEE_ASSIGN_OR_RETURN(const auto prefix, exact_rows(file_, name));
    PERIGEE_RETURN_IF_ERROR(check_size(prefix.size(), layer));
    std::copy(prefix.begin(), prefix.end(), residual.prefix());
    return {};
  }

  Status check_size(std::size_t found, std::int64_t layer) const {
    if (found == ids_.size() * hidden()) return {};
    return data_loss("{}: inputs of layer {}: expected {} values, found {}", file_.path(), layer,
                     ids_.size() * hidden(), found);
  }

  const GoldenRun& run_;
  const SafetensorsFile& file_;
  std::span<const std::int32_t> ids_;
  std::vector<std::int32_t> all_rows_;
};

}  // namespace

Status verify_layers(const GoldenRun& run) {
  PERIGEE_ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::open(run.directory + "/layers.safetensors"));
  PERIGEE_ASSIGN_OR_RETURN(const auto ids, file.elements<std::int32_t>("ids"));
  HalfLayers halves(run, file, ids);
  for (std::int64_t layer = 0; layer < static_cast<std::int64_t>(run.model.config().layers.size()); ++layer) {
    if (file.find(fmt::format("L{}.attn_out", layer)) != nullptr) PERIGEE_RETURN_IF_ERROR(halves.attention(layer));
    if (file.find(fmt::format("L{}.out", layer)) != nullptr) PERIGEE_RETURN_IF_ERROR(halves.mlp(layer));
  }
  return {};
}

}  // namespace perigee
