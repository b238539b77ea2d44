#include "engine/sampler.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <limits>

namespace perigee {
namespace {

constexpr float kForbidden = -std::numeric_limits<float>::infinity();

std::uint64_t mix(std::uint64_t x) {  // splitmix64's finaliser: a bijection with full avalanche
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9U;
  x ^= x >> 27;
  x *= 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

// Of logits below the best one; the last bucket takes the rest, whose weights are below e^-64.
constexpr std::size_t kBuckets = 1024;
constexpr double kBucketsANat = 16;

constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15U;

}  // namespace

Status check_sampling(const SamplingParams& params, std::int64_t vocab) {
  const auto range = [](const char* field, double value, double low, double high) {
    if (value >= low && value <= high) return Status();
    return invalid_argument("{}: expected a number from {} to {}, found {}", field, low, high, value);
  };
  PERIGEE_RETURN_IF_ERROR(range("temperature", params.temperature, 0, 100));
  PERIGEE_RETURN_IF_ERROR(range("top_p", params.top_p, 0, 1));
  PERIGEE_RETURN_IF_ERROR(range("min_p", params.min_p, 0, 1));
  PERIGEE_RETURN_IF_ERROR(range("repetition_penalty", params.repetition_penalty, 1e-3, 1e3));
  PERIGEE_RETURN_IF_ERROR(range("presence_penalty", params.presence_penalty, -100, 100));
  PERIGEE_RETURN_IF_ERROR(range("frequency_penalty", params.frequency_penalty, -100, 100));
  PERIGEE_RETURN_IF_ERROR(range("top_k", params.top_k, 0, std::numeric_limits<std::int32_t>::max()));
  PERIGEE_RETURN_IF_ERROR(range("top_logprobs", params.top_logprobs, -1, 20));
  for (const auto& [id, bias] : params.logit_bias) {
    if (id < 0 || id >= vocab)
      return invalid_argument("logit_bias: expected ids from 0 to {}, found {}", vocab - 1, id);
    if (!std::isfinite(bias)) return invalid_argument("logit_bias: expected finite numbers for id {}", id);
  }
  return {};
}

Sampler::Sampler(SamplingParams params, std::span<const TokenId> prompt, std::vector<TokenId> stop_ids,
                 std::int32_t branch)
    : params_(std::move(params)), stop_ids_(std::move(stop_ids)), branch_(branch) {
  if (params_.repetition_penalty != 1.0F) {
    for (const TokenId id : prompt) ++prompt_[id];
  }
}

double Sampler::uniform() const {
  std::uint64_t x = mix(params_.seed + kGolden);
  x = mix(x ^ (static_cast<std::uint64_t>(branch_) + 1) * kGolden);
  x = mix(x ^ (static_cast<std::uint64_t>(step_) + 1) * kGolden);
  return static_cast<double>(x >> 11) * 0x1.0p-53;
}

void Sampler::apply_penalties(std::vector<float>& logits) const {
  for (const auto& [id, bias] : params_.logit_bias) logits[static_cast<std::size_t>(id)] += bias;
  const auto repeat = [&](TokenId id) {
    float& logit = logits[static_cast<std::size_t>(id)];
    logit = logit > 0 ? logit / params_.repetition_penalty : logit * params_.repetition_penalty;
  };
  if (params_.repetition_penalty != 1.0F) {
    for (const auto& [id, count] : prompt_) repeat(id);
    for (const auto& [id, count] : generated_) {
      if (!prompt_.contains(id)) repeat(id);
    }
  }
  if (params_.presence_penalty != 0 || params_.frequency_penalty != 0) {
    for (const auto& [id, count] : generated_) {
      logits[static_cast<std::size_t>(id)] -=
          params_.presence_penalty + params_.frequency_penalty * static_cast<float>(count);
    }
  }
}

Status Sampler::apply_mask(std::vector<float>& logits, TokenConstraint* constraint) {
  if (step_ < params_.min_tokens) {
    for (const TokenId id : stop_ids_) {
      if (id >= 0 && static_cast<std::size_t>(id) < logits.size()) logits[static_cast<std::size_t>(id)] = kForbidden;
    }
  }
  if (constraint == nullptr) return {};
  allowed_.assign((logits.size() + 31) / 32, 0xFFFFFFFFU);
  const auto start = std::chrono::steady_clock::now();
  const bool masked = constraint->mask(allowed_);
  mask_seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (!masked) return {};
  bool any = false;
  for (std::size_t word = 0; word < allowed_.size(); ++word) {
    const std::uint32_t bits = allowed_[word];
    const std::size_t end = std::min(logits.size(), word * 32 + 32);
    for (std::size_t id = word * 32; id < end; ++id) {
      if (((bits >> (id % 32)) & 1U) == 0) {
        logits[id] = kForbidden;
      } else if (logits[id] > kForbidden) {
        any = true;
      }
    }
  }
  if (!any) return make_error(StatusCode::kInternal, "the grammar allows no token at step {}", step_);
  return {};
}

// Temperature, then min_p, top_k and top_p; candidates in the total order (logit descending, id ascending). Linear in
// the vocabulary: candidates fall into buckets by logit, and only the two buckets are sorted in which top_p and the
// draw end.
TokenId Sampler::draw(std::vector<float>& logits) {
  const auto best = std::max_element(logits.begin(), logits.end());  // the first, so the lowest id
  if (params_.temperature == 0 || params_.top_k == 1) return static_cast<TokenId>(best - logits.begin());

  const float top = *best;
  const double inverse = 1.0 / static_cast<double>(params_.temperature);
  const auto distance = [&](float logit) { return static_cast<double>(top - logit) * inverse; };
  candidates_.clear();
  const double floor = static_cast<double>(params_.min_p);
  for (std::size_t id = 0; id < logits.size(); ++id) {
    if (!(logits[id] > kForbidden)) continue;
    const double weight = std::exp(-distance(logits[id]));
    if (weight < floor || weight == 0) continue;
    candidates_.push_back({logits[id], static_cast<TokenId>(id), weight});
  }
  const auto before = [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  };
  if (params_.top_k > 0 && static_cast<std::size_t>(params_.top_k) < candidates_.size()) {
    std::nth_element(candidates_.begin(), candidates_.begin() + params_.top_k - 1, candidates_.end(), before);
    candidates_.resize(static_cast<std::size_t>(params_.top_k));
    std::sort(candidates_.begin(), candidates_.end(), before);
  }

  const auto bucket_of = [&](float logit) {
    return static_cast<std::size_t>(std::min(distance(logit) * kBucketsANat, static_cast<double>(kBuckets - 1)));
  };
  std::array<double, kBuckets> sums{};
  double total = 0;
  for (const Candidate& c : candidates_) {
    sums[bucket_of(c.logit)] += c.weight;
    total += c.weight;
  }
  // Fills bucket_ with the candidates of one bucket, in the total order.
  const auto open = [&](std::size_t bucket) {
    bucket_.clear();
    for (const Candidate& c : candidates_) {
      if (bucket_of(c.logit) == bucket) bucket_.push_back(c);
    }
    std::sort(bucket_.begin(), bucket_.end(), before);
  };
  // The weight of all buckets before `bucket`, which is the first to reach `goal` (or the last one that is not empty).
  const auto reach = [&](double goal, std::size_t& bucket) {
    double sum = 0;
    double behind = 0;
    for (std::size_t i = 0; i < kBuckets; ++i) {
      if (sums[i] == 0) continue;
      bucket = i;
      behind = sum;
      sum += sums[i];
      if (sum >= goal) break;
    }
    return behind;
  };

  if (params_.top_p < 1.0F) {
    const double keep = total * static_cast<double>(params_.top_p);
    std::size_t last = 0;
    double kept = reach(keep, last);
    open(last);
    double inside = 0;  // of the last bucket
    float logit = 0;
    TokenId id = 0;
    for (const Candidate& c : bucket_) {
      inside += c.weight;
      logit = c.logit;
      id = c.id;
      if (kept + inside >= keep) break;
    }
    std::erase_if(candidates_, [&](const Candidate& c) { return before({logit, id, 0}, c); });
    std::fill(sums.begin() + static_cast<std::ptrdiff_t>(last), sums.end(), 0.0);
    sums[last] = inside;
    total = kept + inside;
  }
  const double goal = uniform() * total;
  std::size_t drawn = 0;
  double left = goal - reach(goal, drawn);
  open(drawn);
  for (const Candidate& c : bucket_) {
    left -= c.weight;
    if (left < 0) return c.id;
  }
  return bucket_.back().id;
}

Result<SampledToken> Sampler::sample(std::span<const float> logits, TokenConstraint* constraint) {
  float top = kForbidden;
  double sum = 0;
  for (const float logit : logits) {
    if (!std::isfinite(logit)) return data_loss("logits at step {} hold {}, expected finite numbers", step_, logit);
    top = std::max(top, logit);
  }
  SampledToken result;
  adjusted_.assign(logits.begin(), logits.end());
  apply_penalties(adjusted_);
  PERIGEE_RETURN_IF_ERROR(apply_mask(adjusted_, constraint));
  result.id = draw(adjusted_);
  if (params_.top_logprobs >= 0) {
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit - top));
    const double log_total = std::log(sum) + static_cast<double>(top);
    const auto logprob = [&](TokenId id) {
      return static_cast<float>(static_cast<double>(logits[static_cast<std::size_t>(id)]) - log_total);
    };
    result.logprob = logprob(result.id);
    const auto wanted = std::min(static_cast<std::size_t>(params_.top_logprobs), logits.size());
    candidates_.clear();
    for (std::size_t id = 0; id < logits.size(); ++id) candidates_.push_back({logits[id], static_cast<TokenId>(id), 0});
    std::partial_sort(
        candidates_.begin(), candidates_.begin() + static_cast<std::ptrdiff_t>(wanted), candidates_.end(),
        [](const auto& a, const auto& b) { return a.logit != b.logit ? a.logit > b.logit : a.id < b.id; });
    for (std::size_t i = 0; i < wanted; ++i) result.top.push_back({candidates_[i].id, logprob(candidates_[i].id)});
  }
  if (constraint != nullptr) constraint->accept(result.id);
  ++generated_[result.id];
  ++step_;
  return result;
}

}  // namespace perigee
