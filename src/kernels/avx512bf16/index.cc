// Scores of the DSA indexer (spec 4.2), lanes along heads. ReLU, head weights and the sum over vectors of heads stay in
// registers. Bound by products: heads dim multiply-adds a key; 48 keys on, the next ones come from memory.
#include "kernels/avx512/slots.h"
#include "kernels/avx512bf16/heads.h"
#include "kernels/avx512bf16/slots.h"
#include "kernels/wide/key_rows.inl"

namespace perigee::avx512bf16 {
namespace {

constexpr int kKeys = 8;
constexpr std::int64_t kAhead = 48;

// One query. pairs as pack_heads makes them; weights: [groups][16], zero for heads that are not there.
struct PackedQuery {
  Element* pairs;
  float* weights;
};

void pack_query(const float* q, const float* w, std::int64_t heads, std::int64_t dim, const PackedQuery& out) {
  pack_heads(q, heads, dim, out.pairs);
  for (std::int64_t first = 0; first < heads; first += kLanes) {
    store(out.weights + first, load_n(w + first, heads - first < kLanes ? heads - first : kLanes));
  }
}

// Adds kGroups vectors of heads to the scores of kKeys keys.
template <int kGroups, typename Next>
inline void add_heads(const std::byte* const* keys, const Next& next, std::int64_t dim, const Element* q,
                      std::int64_t stride, const float* weights, Vec* scores) {
  Vec acc[kKeys][kGroups];
  dot_heads(keys, next, dim, q, stride, acc);
#pragma GCC unroll 2
  for (int g = 0; g < kGroups; ++g) {
    const Vec weight = load(weights + g * kLanes);
    // max(zero, NaN) is NaN in this operand order: a damaged key must not look like a low score.
#pragma GCC unroll 8
    for (int k = 0; k < kKeys; ++k) scores[k] = fma(weight, larger(zero(), acc[k][g]), scores[k]);
  }
}

}  // namespace

void index_scores(const IndexQueries& queries, const PagedRows& keys, std::int64_t begin, std::int64_t end,
                  float* scores, std::int64_t scores_stride) {
  const std::int64_t dim = keys.row;
  if (keys.format == KeyFormat::kF32 || dim % 2 != 0) {
    return avx512::index_scores(queries, keys, begin, end, scores, scores_stride);
  }
  const std::int64_t groups = head_groups(queries.heads);
  const std::int64_t query_floats = (dim / 2 + 1) * groups * kLanes;
  float* memory = scratch(Scratch::kQueries, queries.count * query_floats);
  const auto packed = [=](std::int64_t i) {
    float* at = memory + i * query_floats;
    return PackedQuery{reinterpret_cast<Element*>(at), at + dim / 2 * groups * kLanes};
  };
  for (std::int64_t i = 0; i < queries.count; ++i) {
    pack_query(queries.q + i * queries.q_stride, queries.w + i * queries.w_stride, queries.heads, dim, packed(i));
  }
  for (std::int64_t s = begin; s < end; s += kKeys) {
    const std::int64_t count = end - s < kKeys ? end - s : kKeys;
    const std::byte* rows[kKeys];
    NextKeys<kKeys> next;
    for (std::int64_t k = 0; k < kKeys; ++k) {
      rows[k] = key_row(keys, s + (k < count ? k : count - 1));
      next.rows[k] = key_row(keys, s + k + kAhead < end ? s + k + kAhead : end - 1);
    }
    for (std::int64_t i = 0; i < queries.count; ++i) {
      const PackedQuery query = packed(i);
      Vec sums[kKeys];
#pragma GCC unroll 8
      for (int k = 0; k < kKeys; ++k) sums[k] = zero();
      const auto add_groups = [&]<int kGroups>(std::int64_t g, const auto& ahead) {
        add_heads<kGroups>(rows, ahead, dim, query.pairs + g * 32, groups * 32, query.weights + g * kLanes, sums);
      };
      std::int64_t g = 0;
      if (i == 0) {  // the first query of a tile asks for later keys
        if (groups == 1) {
          add_groups.template operator()<1>(0, next);
        } else {
          add_groups.template operator()<2>(0, next);
        }
        g = groups == 1 ? 1 : 2;
      }
      for (; g + 2 <= groups; g += 2) add_groups.template operator()<2>(g, NoNextKeys());
      if (g < groups) add_groups.template operator()<1>(g, NoNextKeys());
      alignas(32) float values[kKeys];
      _mm256_store_ps(values, sum_lanes(sums[0], sums[1], sums[2], sums[3], sums[4], sums[5], sums[6], sums[7]));
      for (std::int64_t k = 0; k < count; ++k) scores[i * scores_stride + s - begin + k] = values[k];
    }
  }
}

}  // namespace perigee::avx512bf16
