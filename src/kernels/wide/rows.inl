// Norms, activations and sums over one row: bound by memory or, for the activations, by their polynomials.

namespace perigee::PERIGEE_PATH {
namespace {

// Four chains so that the additions' latency does not bound; their order depends on n alone.
template <typename Term>
inline float sum_terms(std::int64_t n, Term term) {
  Vec sums[4] = {zero(), zero(), zero(), zero()};
  std::int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) sums[j] = term(i + j * kLanes, kLanes, sums[j]);
  }
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    if (i < n) sums[j] = term(i, n - i < kLanes ? n - i : kLanes, sums[j]);
    i += kLanes;
  }
  return sum_lanes(plus(plus(sums[0], sums[1]), plus(sums[2], sums[3])));
}

inline float sum_squares(const float* x, std::int64_t n) {
  return sum_terms(n, [x](std::int64_t i, std::int64_t lanes, Vec sum) {
    const Vec value = load_n(x + i, lanes);
    return fma(value, value, sum);
  });
}

}  // namespace

void rms_norm(const float* x, const float* weight, std::int64_t n, float eps, float* y, NormRounding rounding) {
  const Vec scale = all(inverse_root(sum_squares(x, n) / static_cast<float>(n) + eps));
  for_lanes(n, [=](std::int64_t i, std::int64_t lanes) {
    Vec normed = times(load_n(x + i, lanes), scale);
    if (rounding == NormRounding::kTwice) normed = round_bf16(normed);
    const Vec product = times(normed, load_n(weight + i, lanes));
    store_n(y + i, lanes, rounding == NormRounding::kNone ? product : round_bf16(product));
  });
}

void layer_norm(const float* x, const float* weight, const float* bias, std::int64_t n, float eps, float* y,
                Rounding rounding) {
  const float mean =
      sum_terms(n, [x](std::int64_t i, std::int64_t lanes, Vec sum) { return plus(sum, load_n(x + i, lanes)); }) /
      static_cast<float>(n);
  const float squares = sum_terms(n, [x, mean](std::int64_t i, std::int64_t lanes, Vec sum) {
    const Vec centred = first_lanes(minus(load_n(x + i, lanes), all(mean)), lanes, zero());
    return fma(centred, centred, sum);
  });
  const Vec scale = all(inverse_root(squares / static_cast<float>(n) + eps));
  for_lanes(n, [=](std::int64_t i, std::int64_t lanes) {
    const Vec normed = times(minus(load_n(x + i, lanes), all(mean)), scale);
    const Vec shift = bias == nullptr ? zero() : load_n(bias + i, lanes);
    store_n(y + i, lanes, rounded(fma(normed, load_n(weight + i, lanes), shift), rounding));
  });
}

void kda_output_norm(const float* o, const float* weight, const float* r, std::int64_t n, float eps, float* y,
                     Rounding rounding) {
  const Vec scale = all(inverse_root(sum_squares(o, n) / static_cast<float>(n) + eps));
  for_lanes(n, [=](std::int64_t i, std::int64_t lanes) {
    const Vec normed = times(times(load_n(o + i, lanes), scale), load_n(weight + i, lanes));
    store_n(y + i, lanes, rounded(times(normed, sigmoid(load_n(r + i, lanes))), rounding));
  });
}

void attn_res_mix(std::span<const float* const> sources, const float* weight, std::int64_t n, float eps, float* out,
                  Rounding rounding) {
  const auto count = static_cast<std::int64_t>(sources.size());
  float* shares = scratch(Scratch::kScores, count + kLanes);
  float maximum = -__builtin_inff();
  for (std::int64_t s = 0; s < count; ++s) {
    const float* source = sources.data()[s];
    const float scale = inverse_root(sum_squares(source, n) / static_cast<float>(n) + eps);
    shares[s] = scale * sum_terms(n, [source, weight](std::int64_t i, std::int64_t lanes, Vec sum) {
                  return fma(load_n(source + i, lanes), load_n(weight + i, lanes), sum);
                });
    maximum = shares[s] > maximum || shares[s] != shares[s] ? shares[s] : maximum;
  }
  float total = 0;
  for (std::int64_t s = 0; s < count; ++s) {
    shares[s] = first_lane(exp(all(shares[s] - maximum)));
    total += shares[s];
  }
  for (std::int64_t s = 0; s < count; ++s) shares[s] /= total;
  for_lanes(n, [=](std::int64_t i, std::int64_t lanes) {
    Vec sum = zero();
    for (std::int64_t s = 0; s < count; ++s) {
      sum = fma(all(shares[s]), load_n(sources.data()[s] + i, lanes), sum);
    }
    store_n(out + i, lanes, rounded(sum, rounding));
  });
}

void situ(const float* gate, const float* up, std::int64_t n, float beta, float linear_beta, float* y,
          Rounding rounding) {
  const float inverse = 1.0F / beta;
  const float linear_inverse = linear_beta == 0 ? 0.0F : 1.0F / linear_beta;
  for_lanes(n, [=](std::int64_t i, std::int64_t lanes) {
    const Vec g = load_n(gate + i, lanes);
    Vec u = load_n(up + i, lanes);
    if (linear_beta != 0) u = times(all(linear_beta), tanh(times(u, all(linear_inverse))));
    const Vec capped = times(all(beta), tanh(times(g, all(inverse))));
    store_n(y + i, lanes, rounded(times(times(capped, sigmoid(g)), u), rounding));
  });
}

void swiglu(const float* gate, const float* up, std::int64_t n, float* y, Rounding rounding) {
  for_lanes(n, [=](std::int64_t i, std::int64_t lanes) {
    const Vec g = load_n(gate + i, lanes);
    const Vec silu = rounded(times(g, sigmoid(g)), rounding);
    store_n(y + i, lanes, rounded(times(silu, load_n(up + i, lanes)), rounding));
  });
}

void sigmoid_gate(const float* x, const float* r, std::int64_t n, float* y, Rounding rounding) {
  for_lanes(n, [=](std::int64_t i, std::int64_t lanes) {
    const Vec gate = rounded(sigmoid(load_n(r + i, lanes)), rounding);
    store_n(y + i, lanes, rounded(times(load_n(x + i, lanes), gate), rounding));
  });
}

void add(const float* a, const float* b, std::int64_t n, float* y, Rounding rounding) {
  for_lanes(n, [=](std::int64_t i, std::int64_t lanes) {
    store_n(y + i, lanes, rounded(plus(load_n(a + i, lanes), load_n(b + i, lanes)), rounding));
  });
}

void weighted_sum(std::span<const float* const> rows, const float* weights, std::int64_t n, float* y,
                  Rounding rounding) {
  const float* const* row = rows.data();
  const auto count = static_cast<std::int64_t>(rows.size());
  for_lanes(n, [=](std::int64_t i, std::int64_t lanes) {
    Vec sum = zero();
    for (std::int64_t s = 0; s < count; ++s) {
      sum = fma(all(weights[s]), load_n(row[s] + i, lanes), sum);
    }
    store_n(y + i, lanes, rounded(sum, rounding));
  });
}

}  // namespace perigee::PERIGEE_PATH
