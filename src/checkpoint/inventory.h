// The one table of the tensors that a model consists of (spec model.md 1.6, 4.2, 8.2, 10): the loader, the generator
// and the inspector all walk it, so they cannot disagree about a name or a shape.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/model_config.h"
#include "checkpoint/synth_options.h"
#include "checkpoint/tensor.h"
#include "checkpoint/tensor_fill.h"
#include "checkpoint/weights.h"

namespace perigee {

enum class TensorKind : std::uint8_t {
  kEmbedding,
  kHead,
  kNorm,
  kAttnRes,
  kKda,
  kMla,
  kIndexer,
  kDense,
  kRouter,
  kLatent,
  kShared,
  kExpert,
  kVision,
};
constexpr std::size_t kTensorKinds = 13;
const char* tensor_kind_name(TensorKind kind);

// What the loader does with a tensor.
enum class TensorUse : std::uint8_t {
  kPlainMatrix,  // BF16 or F32 only
  kMatrix,       // any weight format
  kVector,       // widened to float at `offset` of the destination
  kFactor,       // widened and multiplied into the destination, which an earlier tensor filled
  kDecay,        // A_log: flattened, its padding checked, exponentiated
  kUnread,       // shape is checked, nothing else
};

struct TensorSpec {
  std::string name;  // stored name in the released spelling, with prefix and ".weight"
  TensorKind kind = TensorKind::kNorm;
  TensorUse use = TensorUse::kMatrix;
  Dtype dtype = Dtype::kBf16;  // as released
  Shape shape;
  FillRule rule;
  ExpertFormat stored_as = ExpertFormat::kBf16;  // other than BF16: generated as codes and scales
  bool optional = false;
  bool keep_f32 = false;           // released as F32; a lower type is accepted with a warning (spec 13.3)
  bool keep_bf16 = false;          // never re-quantised: read by another operator, or it decides about what is kept
  std::int64_t other_columns = 0;  // a second legal number of columns; 0: none
  std::int64_t offset = 0;         // kVector: first element in the destination
  Matrix* matrix = nullptr;        // destinations, inside the ModelWeights that was given
  FloatVector* vector = nullptr;
};

// Every tensor of the text model and, with a vision config, of the tower, layer by layer. `weights` (may be null) is
// shaped for the model and named as destination. `options` decides the variants that generated checkpoints may have.
std::vector<TensorSpec> expected_tensors(const ModelConfig& config, const SynthOptions& options, ModelWeights* weights);

// The tensors that a generated checkpoint stores for one entry: itself, or codes, scales (and shape).
std::vector<GeneratedTensor> stored_tensors(const TensorSpec& spec, const SynthOptions& options);

// "x.weight" -> "x" + suffix.
std::string replace_weight(const std::string& name, std::string_view suffix);

}  // namespace perigee
