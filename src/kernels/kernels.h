// The operator table. scalar/ holds the truth, one file a formula; avx2/, avx512/, avx512bf16/ and
// amx/ override slots.
//
// Contract of every slot (design section 5): an output element is computed by one call, with its sums in one
// order that depends on nothing but the operator's own sizes (never on the number of tokens in the call, on the
// row range, on alignment or on threads). So calls may be split over tokens, rows, heads and threads at will.
//
// Activations are float arrays. On the bf16 path they hold bf16 values, and each rounding point of
// spec model.md 0.3 is a `Rounding` argument here. Strides count elements. Outputs never alias inputs unless a
// slot says so. All functions are thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/matrix.h"
#include "base/status.h"
#include "base/tokens.h"

namespace perigee {

enum class Rounding : std::uint8_t { kNone, kBf16 };

// kTwice is torch's RMSNorm module: bf16 before the weight and after it; kOnce is a fused norm.
enum class NormRounding : std::uint8_t { kNone, kOnce, kTwice };

// Rows of the paged latent and index-key caches: pages of 64 tokens. Page i holds its 64 rows of `row` elements at
// pages[i] + offset (one page serves all layers; the offset is this layer's part of it). Queries that meet bf16 rows
// hold bf16 values, as on the bf16 path.
enum class KeyFormat : std::uint8_t { kF32, kBf16 };

struct PagedRows {
  std::span<std::byte* const> pages;
  std::int64_t offset = 0;  // bytes
  std::int64_t row = 0;     // elements
  KeyFormat format = KeyFormat::kF32;
};

// Attention over a long key list is cut after every so many of its entries (positions, where all keys are attended);
// partial results merge in ascending order, so any number of threads can share one query.
inline constexpr std::int64_t kAttentionSegment = 4096;

// One query token of absorbed MLA, all heads. Keys are positions 0..keys-1, or the `selected_count` positions of the
// ascending list `selected`.
struct MlaQuery {
  const float* q = nullptr;  // [heads, kv + rope], not scaled
  std::int64_t keys = 0;
  const std::int32_t* selected = nullptr;
  std::int64_t selected_count = 0;

  std::int64_t entries() const { return selected == nullptr ? keys : selected_count; }
};

struct MlaShape {
  std::int64_t heads = 0;
  std::int64_t kv = 0;    // latent width; values are the first kv elements of a key row
  std::int64_t rope = 0;  // unrotated extra width of q and keys
  float scale = 0;
};

// Partial softmax of one query over one segment: maximum, sum of exponentials, weighted value sum.
// `m`, `l`: [heads]; `acc`: [heads, kv]. A segment without keys has m = -inf, l = 0, acc = 0.
struct MlaPartial {
  float* m = nullptr;
  float* l = nullptr;
  float* acc = nullptr;
};

// A tile of DSA index queries that score the same keys.
struct IndexQueries {
  std::int64_t count = 0;
  std::int64_t heads = 0;
  const float* q = nullptr;  // query i: [heads, keys.row] at q + i * q_stride
  std::int64_t q_stride = 0;
  const float* w = nullptr;  // query i: [heads] at w + i * w_stride
  std::int64_t w_stride = 0;
};

struct KdaHead {
  std::int64_t tokens = 0;
  std::int64_t dim = 0;      // K = V
  std::int64_t stride = 0;   // distance of two tokens in q, k, v, g and o
  const float* q = nullptr;  // [tokens, dim] after convolution and SiLU, before the L2 norm and scale
  const float* k = nullptr;
  const float* v = nullptr;
  const float* g = nullptr;     // log decay, <= 0
  const float* beta = nullptr;  // after the sigmoid
  std::int64_t beta_stride = 0;
  float* state = nullptr;  // [K, V], updated in place
  float* o = nullptr;      // [tokens, dim]
};

struct Kernels {
  std::string_view isa;

  // y[t, r] = sum_k w[r, k] * x[t, k] for r in [row_begin, row_end); y points at row 0 of the output.
  void (*gemm)(const Matrix& w, std::int64_t row_begin, std::int64_t row_end, const float* x, std::int64_t x_stride,
               std::int64_t tokens, float* y, std::int64_t y_stride, Rounding rounding);
  // The same for an x that holds bf16 values, as on the bf16 path: integer weights meet it in block integers
  // (block_integers.h), with the same bits on every path, but for what is multiplied in bf16 exactly: MXFP4 on AVX-512
  // BF16, all 4-bit weights on AMX.
  void (*gemm_bf16)(const Matrix& w, std::int64_t row_begin, std::int64_t row_end, const float* x,
                    std::int64_t x_stride, std::int64_t tokens, float* y, std::int64_t y_stride, Rounding rounding);
  // y[t, c] = sum_r w[r, c] * x[t, r], all columns: W_UK^T q of absorbed MLA (spec 3.2). F32 and BF16 weights.
  void (*gemm_transposed)(const Matrix& w, const float* x, std::int64_t x_stride, std::int64_t tokens, float* y,
                          std::int64_t y_stride, Rounding rounding);

  // spec 1.5. x, y: [n]; may alias.
  void (*rms_norm)(const float* x, const float* weight, std::int64_t n, float eps, float* y, NormRounding rounding);
  // Biased variance; `bias` may be null (spec 4.2). May alias.
  void (*layer_norm)(const float* x, const float* weight, const float* bias, std::int64_t n, float eps, float* y,
                     Rounding rounding);

  // spec 2.2: y[t, c] = silu(sum_j w[c, j] x[t-3+j, c]) for channels [0, channels). `state` [3, state_stride] holds
  // the last three inputs, oldest first, and is advanced by `tokens`.
  void (*short_conv)(const float* x, std::int64_t x_stride, const float* weight, std::int64_t channels,
                     std::int64_t tokens, float* state, std::int64_t state_stride, float* y, std::int64_t y_stride,
                     Rounding rounding);
  // spec 2.4: log decay of one head and token. lower_bound < 0 selects the bounded gate, 0 the unbounded one.
  void (*kda_gate)(const float* z, const float* dt_bias, float a, float lower_bound, std::int64_t n, float* g);
  // spec 2.3 and 2.5, token form in fp32; o is rounded as asked.
  void (*kda_head)(const KdaHead& head, Rounding rounding);
  // spec 2.1 step 9: y = o * rsqrt(mean(o^2) + eps) * w * sigmoid(r), one rounding. May alias.
  void (*kda_output_norm)(const float* o, const float* weight, const float* r, std::int64_t n, float eps, float* y,
                          Rounding rounding);

  // spec 3.2: one segment, entries [segment * kAttentionSegment, ...) of each query's list, of a tile of queries over
  // the same pages; partials[i] belongs to queries[i]. Heads are independent of each other, so a call may take a part
  // of them (with shape.heads their number and pointers to the first one). Dense queries of one tile share the work on
  // the keys (bound: FMA, 4-16 queries fill L2).
  void (*mla_segment)(const MlaShape& shape, const PagedRows& keys, std::span<const MlaQuery> queries,
                      std::int64_t segment, std::span<const MlaPartial> partials);
  // Merges the next segment into a running partial, which starts with m = -inf, l = 0, acc = 0. Called once a segment
  // in ascending order, so the result does not depend on who computed the parts.
  void (*mla_merge)(const MlaShape& shape, const MlaPartial& next, const MlaPartial& running);
  // out [heads, kv] = acc / l.
  void (*mla_finish)(const MlaShape& shape, const MlaPartial& running, float* out, Rounding rounding);

  // spec 4.2: scores[i * scores_stride + s - begin] = sum_h w_i[h] relu(q_i[h] . key[s]) for s in [begin, end).
  // w carries the constants n^-1/2 hd^-1/2.
  void (*index_scores)(const IndexQueries& queries, const PagedRows& keys, std::int64_t begin, std::int64_t end,
                       float* scores, std::int64_t scores_stride);

  // spec 5.1: out = sum_s softmax(a)_s V_s, a_s = sum_d V_s[d] rsqrt(mean(V_s^2) + eps) * weight[d];
  // weight = norm * proj. out may not alias a source.
  void (*attn_res_mix)(std::span<const float* const> sources, const float* weight, std::int64_t n, float eps,
                       float* out, Rounding rounding);

  // spec 6.1; linear_beta 0 leaves the up branch uncapped. May alias.
  void (*situ)(const float* gate, const float* up, std::int64_t n, float beta, float linear_beta, float* y,
               Rounding rounding);
  // silu(gate) rounded, times up, rounded (spec 10). May alias.
  void (*swiglu)(const float* gate, const float* up, std::int64_t n, float* y, Rounding rounding);
  // y = x * round(sigmoid(r)), rounded (spec 3.1 step 6). May alias.
  void (*sigmoid_gate)(const float* x, const float* r, std::int64_t n, float* y, Rounding rounding);
  // y = a + b. May alias.
  void (*add)(const float* a, const float* b, std::int64_t n, float* y, Rounding rounding);
  // y = sum_i weights[i] * rows[i], ascending i, fp32 (spec 6.3).
  void (*weighted_sum)(std::span<const float* const> rows, const float* weights, std::int64_t n, float* y,
                       Rounding rounding);
};

const Kernels& scalar_kernels();

// The table of the named path ("scalar", "avx2", "avx512", "avx512bf16", "amx"), or of the best one for an empty name.
// Fails when this machine lacks the instructions, naming what is missing.
Result<const Kernels*> select_kernels(std::string_view isa);

// The path that was asked for; for an empty name that of the environment variable PERIGEE_ISA, or the best one.
Result<const Kernels*> default_kernels(std::string_view isa = {});

// Columns [begin, end) of one row as floats, exact products of code and scale. out: [end - begin].
void dequantize(const Matrix& w, std::int64_t row, std::int64_t begin, std::int64_t end, float* out);
// The scale of one element, as a float.
float weight_scale(const Matrix& w, std::int64_t row, std::int64_t column);
inline void dequantize_row(const Matrix& w, std::int64_t row, float* out) {
  dequantize(w, row, 0, w.cols, out);
}

// The min(k, n) positions of the total order (score descending, position ascending), listed ascending into
// `selected`; returns their number. -0 counts as +0. (spec 4.3)
std::int64_t select_top_k(const float* scores, std::int64_t n, std::int64_t k, std::int32_t* selected);

}  // namespace perigee
