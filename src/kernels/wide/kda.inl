// Kimi Delta Attention, token form (spec 2.2-2.5).

namespace perigee::PERIGEE_PATH {
namespace {

constexpr std::int64_t kTokens = 16;  // tokens whose prepared vectors share L1 with a slice of the state
constexpr int kSliceVectors = 4;
constexpr std::int64_t kSlice = kSliceVectors * kLanes;  // columns of the state worked on at a time

// What every slice needs of one token: rows of `dim` floats.
struct Prepared {
  float* decay;  // e^g
  float* q;      // normalised and scaled
  float* k;      // normalised
  float kq;      // k . q
  float beta;
};

inline float dot(const float* a, const float* b, std::int64_t n) {
  Vec sum = zero();
  for_lanes(n, [&](std::int64_t i, std::int64_t lanes) { sum = fma(load_n(a + i, lanes), load_n(b + i, lanes), sum); });
  return sum_lanes(sum);
}

inline void scale_into(const float* x, float factor, std::int64_t n, float* out) {
  const Vec factors = all(factor);
  for_lanes(n,
            [=](std::int64_t i, std::int64_t lanes) { store_n(out + i, lanes, times(load_n(x + i, lanes), factors)); });
}

void prepare(const KdaHead& head, std::int64_t token, Prepared* out) {
  const std::int64_t n = head.dim;
  const float* q = head.q + token * head.stride;
  const float* k = head.k + token * head.stride;
  const float* g = head.g + token * head.stride;
  const float width_scale = inverse_root(static_cast<float>(n));
  scale_into(q, inverse_root(dot(q, q, n) + 1e-6F) * width_scale, n, out->q);
  scale_into(k, inverse_root(dot(k, k, n) + 1e-6F), n, out->k);
  float* decay = out->decay;
  for_lanes(n, [=](std::int64_t i, std::int64_t lanes) { store_n(decay + i, lanes, exp(load_n(g + i, lanes))); });
  out->kq = dot(out->k, out->q, n);
  out->beta = head.beta[token * head.beta_stride];
}

// One token over kSliceVectors vectors of columns of the state, rows `stride` apart. With Sd the decayed state:
// u = beta (v - Sd^T k), o = Sd^T q + (k . q) u, S = Sd + k u^T. The rank-one update of the previous token
// (`previous_k` and u) is applied on the way in, so the state is read and written once a token; the last one is applied
// by finish().
template <int kVectors>
inline void advance(float* state, std::int64_t stride, std::int64_t n, const float* previous_k, Vec* u,
                    const Prepared& token, const float* v, float* o, Rounding rounding) {
  Vec retrieved[kVectors];
  Vec read[kVectors];
#pragma GCC unroll 4
  for (int j = 0; j < kVectors; ++j) retrieved[j] = read[j] = zero();
  for (std::int64_t i = 0; i < n; ++i) {
    float* row = state + i * stride;
    const Vec decay = broadcast(token.decay + i);
    const Vec k = broadcast(token.k + i);
    const Vec q = broadcast(token.q + i);
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) {
      Vec s = load(row + j * kLanes);
      if (previous_k != nullptr) s = fma(broadcast(previous_k + i), u[j], s);
      s = times(s, decay);
      store(row + j * kLanes, s);
      retrieved[j] = fma(s, k, retrieved[j]);
      read[j] = fma(s, q, read[j]);
    }
  }
#pragma GCC unroll 4
  for (int j = 0; j < kVectors; ++j) {
    u[j] = times(all(token.beta), minus(load(v + j * kLanes), retrieved[j]));
    store(o + j * kLanes, rounded(fma(all(token.kq), u[j], read[j]), rounding));
  }
}

template <int kVectors>
inline void finish(const float* from, std::int64_t from_stride, float* to, std::int64_t to_stride, std::int64_t n,
                   const float* k, const Vec* u) {
  for (std::int64_t i = 0; i < n; ++i) {
    const Vec key = broadcast(k + i);
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) {
      store(to + i * to_stride + j * kLanes, fma(key, u[j], load(from + i * from_stride + j * kLanes)));
    }
  }
}

// `count` prepared tokens from `first` over one slice of columns.
template <int kVectors>
void slice(const KdaHead& head, std::int64_t column, std::int64_t first, std::int64_t count, const Prepared* tokens,
           float* copy, Rounding rounding) {
  const std::int64_t n = head.dim;
  float* state = head.state + column;
  float* work = state;
  std::int64_t stride = n;
  if (count > 1) {
    // Rows of the state are a power of two apart, which would leave a slice a few sets of L1.
    work = copy;
    stride = kVectors * kLanes;
    for (std::int64_t i = 0; i < n; ++i) {
      for (int j = 0; j < kVectors; ++j) store(work + i * stride + j * kLanes, load(state + i * n + j * kLanes));
    }
  }
  Vec u[kVectors];
  for (std::int64_t t = 0; t < count; ++t) {
    const std::int64_t at = (first + t) * head.stride + column;
    if (t == 0) {
      advance<kVectors>(work, stride, n, nullptr, u, tokens[t], head.v + at, head.o + at, rounding);
    } else {
      advance<kVectors>(work, stride, n, tokens[t - 1].k, u, tokens[t], head.v + at, head.o + at, rounding);
    }
  }
  finish<kVectors>(work, stride, state, n, n, tokens[count - 1].k, u);
}

inline Vec silu(Vec x) {
  return times(x, sigmoid(x));
}

}  // namespace

void short_conv(const float* x, std::int64_t x_stride, const float* weight, std::int64_t channels, std::int64_t tokens,
                float* state, std::int64_t state_stride, float* y, std::int64_t y_stride, Rounding rounding) {
  for_lanes(channels, [=](std::int64_t c, std::int64_t lanes) {
    // Taps of kLanes channels, transposed from [channel][4].
    alignas(64) float taps[4][kLanes] = {};
    for (std::int64_t i = 0; i < lanes; ++i) {
      for (int j = 0; j < 4; ++j) taps[j][i] = weight[4 * (c + i) + j];
    }
    const Vec w0 = load(taps[0]);
    const Vec w1 = load(taps[1]);
    const Vec w2 = load(taps[2]);
    const Vec w3 = load(taps[3]);
    Vec a = load_n(state + c, lanes);
    Vec b = load_n(state + state_stride + c, lanes);
    Vec d = load_n(state + 2 * state_stride + c, lanes);
    for (std::int64_t t = 0; t < tokens; ++t) {
      const Vec now = load_n(x + t * x_stride + c, lanes);
      Vec sum = times(w0, a);
      sum = fma(w1, b, sum);
      sum = fma(w2, d, sum);
      sum = fma(w3, now, sum);
      store_n(y + t * y_stride + c, lanes, rounded(silu(sum), rounding));
      a = b;
      b = d;
      d = now;
    }
    store_n(state + c, lanes, a);
    store_n(state + state_stride + c, lanes, b);
    store_n(state + 2 * state_stride + c, lanes, d);
  });
}

void kda_gate(const float* z, const float* dt_bias, float a, float lower_bound, std::int64_t n, float* g) {
  for_lanes(n, [=](std::int64_t i, std::int64_t lanes) {
    const Vec shifted = plus(load_n(z + i, lanes), load_n(dt_bias + i, lanes));
    if (lower_bound < 0) {
      store_n(g + i, lanes, times(all(lower_bound), sigmoid(times(all(a), shifted))));
    } else {
      const Vec e = exp(minus_magnitude(shifted));
      const Vec softplus = plus(larger(zero(), shifted), log1p(e));
      store_n(g + i, lanes, times(all(-a), softplus));
    }
  });
}

void kda_head(const KdaHead& head, Rounding rounding) {
  const std::int64_t n = head.dim;
  if (n % kLanes != 0) {
    scalar_kernels().kda_head(head, rounding);
    return;
  }
  float* memory = scratch(Scratch::kActivations, kTokens * 3 * n);
  float* copy = scratch(Scratch::kWeights, n * kSlice);
  Prepared tokens[kTokens];
  for (std::int64_t t = 0; t < kTokens; ++t) {
    tokens[t].decay = memory + 3 * t * n;
    tokens[t].k = memory + (3 * t + 1) * n;
    tokens[t].q = memory + (3 * t + 2) * n;
  }
  for (std::int64_t first = 0; first < head.tokens; first += kTokens) {
    const std::int64_t count = head.tokens - first < kTokens ? head.tokens - first : kTokens;
    for (std::int64_t t = 0; t < count; ++t) prepare(head, first + t, &tokens[t]);
    std::int64_t column = 0;
    for (; column + kSlice <= n; column += kSlice) {
      slice<kSliceVectors>(head, column, first, count, tokens, copy, rounding);
    }
    for (; column < n; column += kLanes) slice<1>(head, column, first, count, tokens, copy, rounding);
  }
}

}  // namespace perigee::PERIGEE_PATH
