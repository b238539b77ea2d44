// From logits to a token (and log-probabilities). Counter-based randomness: the draw of step i depends on
// (seed, branch, i) only, so a reply does not depend on the batch around it. Ties go to the lower id everywhere.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "engine/engine.h"

namespace perigee {

struct SampledToken {
  TokenId id = -1;
  float logprob = 0;              // of the model itself: before penalties, masks and temperature
  std::vector<TokenLogprob> top;  // descending, when asked for
};

// One branch of one request. Not thread-safe.
class Sampler {
 public:
  // `prompt` counts for the repetition penalty. Stop ids are masked before min_tokens.
  Sampler(SamplingParams params, std::span<const TokenId> prompt, std::vector<TokenId> stop_ids, std::int32_t branch);

  // Fails with kDataLoss on NaN or infinity in the logits, and with kInternal when the constraint allows no token.
  Result<SampledToken> sample(std::span<const float> logits, TokenConstraint* constraint);

  // What the constraint's mask took in the last sample().
  double mask_seconds() const { return mask_seconds_; }

 private:
  struct Candidate {
    float logit;
    TokenId id;
    double weight;
  };

  void apply_penalties(std::vector<float>& logits) const;
  Status apply_mask(std::vector<float>& logits, TokenConstraint* constraint);
  TokenId draw(std::vector<float>& logits);
  double uniform() const;

  SamplingParams params_;
  std::vector<TokenId> stop_ids_;
  std::int32_t branch_;
  std::int64_t step_ = 0;
  double mask_seconds_ = 0;
  std::unordered_map<TokenId, std::int32_t> generated_;  // count of each sampled id
  std::unordered_map<TokenId, std::int32_t> prompt_;     // ids of the prompt, only with a repetition penalty
  std::vector<float> adjusted_;
  std::vector<Candidate> candidates_;
  std::vector<Candidate> bucket_;
  std::vector<std::uint32_t> allowed_;
};

// A bound-checked copy of the limits that every client shares; the message names the field.
Status check_sampling(const SamplingParams& params, std::int64_t vocab);

}  // namespace perigee
