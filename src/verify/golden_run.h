// One golden folder on its way through the checks. Internal to src/verify.
#pragma once

#include <string>

#include "checkpoint/safetensors.h"
#include "model/model.h"
#include "verify/golden.h"
#include "verify/golden_capture.h"
#include "verify/report.h"

namespace perigee {

// f32: logits, norms, hidden rows, states, caches.
inline constexpr double kRowTolerance = 2e-5;

struct GoldenRun {
  std::string directory;
  std::string name;  // of the folder
  Model& model;
  const Json& measured;  // measured.json, or null
  CheckReport& report;

  bool f32() const { return model.precision() == Precision::kF32; }
  void add(const std::string& item, const std::string& quantity, double worst, double tolerance,
           const std::string& note = {}) const {
    report.add({name, item, quantity, worst, tolerance, worst <= tolerance, note});
  }
};

// Whole prompts: logits, norms, hidden rows, states, caches, selections, routes.
Status verify_prompts(const GoldenRun& run);
// Half layers from exact inputs.
Status verify_layers(const GoldenRun& run);
// Greedy continuation, token by token (f32) or teacher-forced (bf16).
Status verify_greedy(const GoldenRun& run);

// Operator vectors: the folder `ops`. Adds lines to `report`.
Status verify_ops(const std::string& directory, const Kernels& kernels, CheckReport& report);

// Shared by prompts and layers. `rows`: which captured rows the stored ones are.
Status compare_selections(const GoldenRun& run, const SafetensorsFile& file, const std::string& item,
                          const std::string& prefix, std::span<const std::int32_t> rows,
                          const std::vector<CapturedSelection>& captured, std::vector<bool>* same);
Status compare_routings(const GoldenRun& run, const SafetensorsFile& file, const std::string& item,
                        const std::string& prefix, std::span<const std::int32_t> rows,
                        const std::vector<CapturedRouting>& captured, std::vector<bool>* same);
Status compare_recurrent(const GoldenRun& run, const SafetensorsFile& file, const std::string& item,
                         const std::string& prefix, std::int64_t layer, std::span<const float> recurrent,
                         double state_tolerance);

}  // namespace perigee
