#include <algorithm>
#include <cstdlib>
#include <set>

#include "verify/golden_compare.h"
#include "verify/golden_run.h"

namespace perigee {
namespace {

// Tolerances of the goldens' README.
constexpr double kScoreTolerance = 5e-5;  // f32, absolute: indexer scores and margins
constexpr double kScoreTie = 1e-5;        // f32: keys this close may swap
constexpr double kScoreNoiseBf16 = 0.03;  // bf16: keys this close to the k-th may swap
constexpr double kRowsDifferBf16 = 0.10;  // bf16: share of rows whose selection may differ
constexpr double kRouteWeightTolerance = 1e-5;
constexpr double kRouteMarginTolerance = 2e-5;
constexpr double kRouteNoiseBf16 = 0.005;  // bf16: margin below which another expert set is legitimate
constexpr double kConvolutionTolerance = 2e-5;

// The largest distance from the k-th score of any key that only one of the two selections has.
double swap_distance(const CapturedSelection& mine, const std::vector<std::int32_t>& want) {
  if (mine.selected == want || mine.selected.empty()) return mine.selected == want ? 0 : INFINITY;
  double kth = INFINITY;
  for (const std::int32_t key : mine.selected) kth = std::min(kth, double{mine.scores[static_cast<std::size_t>(key)]});
  std::vector<std::int32_t> different;
  std::set_symmetric_difference(mine.selected.begin(), mine.selected.end(), want.begin(), want.end(),
                                std::back_inserter(different));
  double distance = 0;
  for (const std::int32_t key : different) {
    if (key < 0 || static_cast<std::size_t>(key) >= mine.scores.size()) return INFINITY;
    distance = std::max(distance, std::abs(double{mine.scores[static_cast<std::size_t>(key)]} - kth));
  }
  return distance;
}

}  // namespace

Status compare_selections(const GoldenRun& run, const SafetensorsFile& file, const std::string& item,
                          const std::string& prefix, std::span<const std::int32_t> rows,
                          const std::vector<CapturedSelection>& captured, std::vector<bool>* same) {
  PERIGEE_ASSIGN_OR_RETURN(const auto selected, file.elements<std::int32_t>(prefix + "dsa.sel"));
  PERIGEE_ASSIGN_OR_RETURN(const auto margins, file.elements<float>(prefix + "dsa.margin"));
  const std::size_t k = selected.size() / rows.size();
  double swapped = 0;
  double margin_error = 0;
  std::size_t different = 0;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const CapturedSelection& mine = captured[static_cast<std::size_t>(rows[r])];
    std::vector<std::int32_t> want;
    for (const std::int32_t key : selected.subspan(r * k, k)) {
      if (key >= 0) want.push_back(key);
    }
    const bool equal = mine.selected == want;
    if (same != nullptr) (*same)[static_cast<std::size_t>(rows[r])] = equal;
    if (!equal) ++different;
    swapped = std::max(swapped, swap_distance(mine, want));
    margin_error = std::max(margin_error, absolute_error(mine.margin, double{margins[r]}));
  }
  const std::string note = different > 0 ? fmt::format("{} of {} rows differ, keys within the noise of the k-th score",
                                                       different, rows.size())
                                         : "";
  if (run.f32()) {
    run.add(item, prefix + "dsa.sel", swapped, kScoreTie, note);
    run.add(item, prefix + "dsa.margin", margin_error, kScoreTolerance);
  } else if (item == "layers") {
    run.add(item, prefix + "dsa.sel", swapped, kScoreNoiseBf16, note);
    run.add(item, prefix + "dsa.rows", static_cast<double>(different) / static_cast<double>(rows.size()),
            kRowsDifferBf16);
  }
  if (!run.f32()) return {};
  const bool whole = file.find(prefix + "dsa.scores") != nullptr;
  if (!whole && file.find(prefix + "dsa.scores_last") == nullptr) return {};
  PERIGEE_ASSIGN_OR_RETURN(const auto scores,
                           file.elements<float>(prefix + (whole ? "dsa.scores" : "dsa.scores_last")));
  const std::size_t keys = captured.size();
  double score_error = 0;
  for (std::size_t r = whole ? 0 : keys - 1; r < keys; ++r) {
    const auto want = scores.subspan(whole ? r * keys : 0, keys);
    for (std::size_t s = 0; s < captured[r].scores.size(); ++s) {
      score_error = std::max(score_error, absolute_error(double{captured[r].scores[s]}, double{want[s]}));
    }
  }
  run.add(item, prefix + "dsa.scores", score_error, kScoreTolerance);
  return {};
}

Status compare_routings(const GoldenRun& run, const SafetensorsFile& file, const std::string& item,
                        const std::string& prefix, std::span<const std::int32_t> rows,
                        const std::vector<CapturedRouting>& captured, std::vector<bool>* same) {
  PERIGEE_ASSIGN_OR_RETURN(const auto ids, file.elements<std::int32_t>(prefix + "moe.ids"));
  PERIGEE_ASSIGN_OR_RETURN(const auto weights, file.elements<float>(prefix + "moe.weights"));
  PERIGEE_ASSIGN_OR_RETURN(const auto margins, file.elements<float>(prefix + "moe.margin"));
  const std::size_t k = ids.size() / rows.size();
  double weight_error = 0;
  double margin_error = 0;
  double widest_flip = 0;
  std::size_t different = 0;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const CapturedRouting& mine = captured[static_cast<std::size_t>(rows[r])];
    const auto want = ids.subspan(r * k, k);
    const bool equal = std::set(mine.ids.begin(), mine.ids.end()) == std::set(want.begin(), want.end());
    if (same != nullptr) (*same)[static_cast<std::size_t>(rows[r])] = equal;
    if (run.f32() ? !std::equal(want.begin(), want.end(), mine.ids.begin()) : !equal) {
      ++different;
      widest_flip = std::max(widest_flip, double{margins[r]});
      continue;
    }
    margin_error = std::max(margin_error, absolute_error(mine.margin, double{margins[r]}));
    for (std::size_t i = 0; i < k; ++i) {
      weight_error = std::max(weight_error, absolute_error(double{mine.weights[i]}, double{weights[r * k + i]}));
    }
  }
  if (run.f32()) {
    run.add(item, prefix + "moe.ids", static_cast<double>(different), 0);
    run.add(item, prefix + "moe.weights", weight_error, kRouteWeightTolerance);
    run.add(item, prefix + "moe.margin", margin_error, kRouteMarginTolerance);
  } else if (item == "layers") {
    run.add(item, prefix + "moe.ids", widest_flip, kRouteNoiseBf16,
            different > 0 ? fmt::format("{} of {} rows differ, margins below the noise", different, rows.size()) : "");
  }
  return {};
}

Status compare_recurrent(const GoldenRun& run, const SafetensorsFile& file, const std::string& item,
                         const std::string& prefix, std::int64_t layer, std::span<const float> recurrent,
                         double state_tolerance) {
  const KdaConfig& kda = run.model.config().kda;
  const StateLayout::KdaPlace& place = run.model.state_layout().kda[static_cast<std::size_t>(layer)];
  PERIGEE_ASSIGN_OR_RETURN(const auto state, file.elements<float>(prefix + "kda_state"));
  PERIGEE_ASSIGN_OR_RETURN(const auto convolution, file.elements<float>(prefix + "conv_state"));
  const auto head = static_cast<std::size_t>(kda.head_dim * kda.head_dim);
  const auto mine = recurrent.subspan(static_cast<std::size_t>(place.state), state.size());
  run.add(item, prefix + "kda_state", worst(row_errors(mine, state, head)), state_tolerance);
  if (!run.f32()) return {};
  const auto taps = recurrent.subspan(static_cast<std::size_t>(place.convolution), convolution.size());
  run.add(item, prefix + "conv_state", worst(row_errors(taps, convolution, static_cast<std::size_t>(3 * kda.width()))),
          kConvolutionTolerance);
  return {};
}

}  // namespace perigee
