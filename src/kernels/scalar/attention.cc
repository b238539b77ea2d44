// Absorbed MLA over pages (spec 3.2) and the scores of the DSA indexer (spec 4.2).
#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/scalar/scalar.h"

namespace perigee::scalar {
namespace {

void load_key(const PagedRows& keys, std::int64_t position, float* out) {
  const std::byte* page = keys.pages[static_cast<std::size_t>(position / kPageTokens)] + keys.offset;
  const std::int64_t first = position % kPageTokens * keys.row;
  if (keys.format == KeyFormat::kF32) {
    std::memcpy(out, page + first * 4, static_cast<std::size_t>(keys.row) * 4);
    return;
  }
  for (std::int64_t i = 0; i < keys.row; ++i) {
    bf16 value;
    std::memcpy(&value, page + (first + i) * 2, 2);
    out[i] = to_float(value);
  }
}

float dot(const float* a, const float* b, std::int64_t n) {
  float sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

// The segment's entries of the query's key list: [first, last).
std::pair<std::int64_t, std::int64_t> entries_of(const MlaQuery& query, std::int64_t segment) {
  const std::int64_t begin = segment * kAttentionSegment;
  return {std::min(begin, query.entries()), std::min(begin + kAttentionSegment, query.entries())};
}

void one_segment(const MlaShape& shape, const PagedRows& keys, const MlaQuery& query, std::int64_t segment,
                 const MlaPartial& partial) {
  const std::int64_t width = shape.kv + shape.rope;
  std::vector<float> key(static_cast<std::size_t>(keys.row));
  for (std::int64_t h = 0; h < shape.heads; ++h) {
    partial.m[h] = -std::numeric_limits<float>::infinity();
    partial.l[h] = 0;
    std::fill_n(partial.acc + h * shape.kv, shape.kv, 0.0F);
  }
  const auto [first, last] = entries_of(query, segment);
  for (std::int64_t entry = first; entry < last; ++entry) {
    load_key(keys, query.selected == nullptr ? entry : query.selected[entry], key.data());
    for (std::int64_t h = 0; h < shape.heads; ++h) {
      const float score = dot(query.q + h * width, key.data(), width) * shape.scale;
      const float raised = std::fmax(partial.m[h], score);
      const float old_share = std::exp(partial.m[h] - raised);
      const float share = std::exp(score - raised);
      partial.m[h] = raised;
      partial.l[h] = partial.l[h] * old_share + share;
      float* acc = partial.acc + h * shape.kv;
      for (std::int64_t i = 0; i < shape.kv; ++i)
        acc[i] = acc[i] * old_share + share * key[static_cast<std::size_t>(i)];
    }
  }
}

}  // namespace

void mla_segment(const MlaShape& shape, const PagedRows& keys, std::span<const MlaQuery> queries, std::int64_t segment,
                 std::span<const MlaPartial> partials) {
  for (std::size_t i = 0; i < queries.size(); ++i) one_segment(shape, keys, queries[i], segment, partials[i]);
}

void mla_merge(const MlaShape& shape, const MlaPartial& next, const MlaPartial& running) {
  for (std::int64_t h = 0; h < shape.heads; ++h) {
    if (next.l[h] == 0) continue;
    const float raised = std::fmax(running.m[h], next.m[h]);
    const float old_share = std::exp(running.m[h] - raised);
    const float share = std::exp(next.m[h] - raised);
    running.m[h] = raised;
    running.l[h] = running.l[h] * old_share + next.l[h] * share;
    for (std::int64_t i = h * shape.kv; i < (h + 1) * shape.kv; ++i) {
      running.acc[i] = running.acc[i] * old_share + next.acc[i] * share;
    }
  }
}

void mla_finish(const MlaShape& shape, const MlaPartial& running, float* out, Rounding rounding) {
  for (std::int64_t h = 0; h < shape.heads; ++h) {
    for (std::int64_t i = h * shape.kv; i < (h + 1) * shape.kv; ++i) {
      out[i] = rounded(running.acc[i] / running.l[h], rounding);
    }
  }
}

void index_scores(const IndexQueries& queries, const PagedRows& keys, std::int64_t begin, std::int64_t end,
                  float* scores, std::int64_t scores_stride) {
  std::vector<float> key(static_cast<std::size_t>(keys.row));
  for (std::int64_t s = begin; s < end; ++s) {
    load_key(keys, s, key.data());
    for (std::int64_t i = 0; i < queries.count; ++i) {
      float sum = 0;
      for (std::int64_t h = 0; h < queries.heads; ++h) {
        const float product = dot(queries.q + i * queries.q_stride + h * keys.row, key.data(), keys.row);
        sum += queries.w[i * queries.w_stride + h] * std::fmax(product, 0.0F);
      }
      scores[i * scores_stride + s - begin] = sum;
    }
  }
}

}  // namespace perigee::scalar
