// Runs golden folders (layout: config.json, synth.json, manifest.json, prompts, layers and greedy .safetensors) against
// this build: generates the weights, checks their digests, and compares each stored quantity with the tolerances that
// the goldens state for fp32 and bf16 engines.
#pragma once

#include <string>

#include "base/status.h"
#include "model/model.h"
#include "verify/report.h"

namespace perigee {

struct GoldenOptions {
  Precision precision = Precision::kF32;
  std::string isa;  // empty: PERIGEE_ISA or the best path
  int threads = 0;  // 0: one a core
};

// `directory`: one golden folder, or a folder of them; sub-folders without a manifest.json are passed over, except
// `ops` (operator vectors). Errors are problems with the files; differences are failed lines of the report.
Result<CheckReport> verify_goldens(const std::string& directory, const GoldenOptions& options);

}  // namespace perigee
