// Absorbed MLA over pages (spec 3.2) as a matrix product: all heads of all queries of a tile share the key rows.
//
// Keys of a segment are taken in blocks of 64 list entries, expanded to floats once in L2. Scores use the tile of
// gemm.cc (4 keys x 3 heads, lanes along the row); values use 4 heads x 3 vectors, lanes along the latent, keys
// ascending. A query's arithmetic depends on its own list only: a tile merely shares the expanded block. Bound by FMA:
// 2 (kv + rope) + 2 kv flops a head and key.
#include "kernels/wide/key_lists.inl"
#include "kernels/wide/key_rows.inl"

namespace perigee::PERIGEE_PATH {
namespace {

void expand_key(const std::byte* from, KeyFormat format, std::int64_t n, float* out) {
  std::int64_t i = 0;
  if (format == KeyFormat::kF32) {
    const auto* floats = reinterpret_cast<const float*>(from);
    for_lanes(n, [=](std::int64_t at, std::int64_t lanes) { store(out + at, load_n(floats + at, lanes)); });
    return;
  }
  for (; i + kLanes <= n; i += kLanes) store(out + i, load_bf16(from + 2 * i));
  if (i < n) {
    std::uint16_t part[kLanes] = {};
    __builtin_memcpy(part, from + 2 * i, static_cast<std::size_t>(2 * (n - i)));
    store(out + i, load_bf16(reinterpret_cast<const std::byte*>(part)));
  }
}

// scores[h][j] for 4 keys j and kHeads rows of q.
template <int kHeads>
inline void score_tile(const float* keys, std::int64_t stride, const float* const* q, std::int64_t vectors,
                       float* const* scores) {
  Vec acc[4][kHeads];
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) acc[j][h] = zero();
  }
  for (std::int64_t v = 0; v < vectors; ++v) {
    Vec qs[kHeads];
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) qs[h] = load_once(q[h] + v * kLanes);
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const Vec key = load_once(keys + j * stride + v * kLanes);
#pragma GCC unroll 4
      for (int h = 0; h < kHeads; ++h) acc[j][h] = fma(key, qs[h], acc[j][h]);
    }
  }
#pragma GCC unroll 4
  for (int h = 0; h < kHeads; ++h) _mm_storeu_ps(scores[h], sum_lanes(acc[0][h], acc[1][h], acc[2][h], acc[3][h]));
}

// acc[h][0..kLanes kVectors) += sum_j p[h][j] values[j][..] over `count` keys, ascending.
template <int kHeads, int kVectors>
inline void value_tile(const float* values, std::int64_t stride, std::int64_t count, const float* p, float* acc,
                       std::int64_t acc_stride) {
  Vec sums[kHeads][kVectors];
#pragma GCC unroll 4
  for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sums[h][v] = load(acc + h * acc_stride + v * kLanes);
  }
  for (std::int64_t j = 0; j < count; ++j) {
    Vec row[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) row[v] = load_once(values + j * stride + v * kLanes);
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
      const Vec share = broadcast_once(p + h * kBlockKeys + j);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[h][v] = fma(share, row[v], sums[h][v]);
    }
  }
#pragma GCC unroll 4
  for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) store(acc + h * acc_stride + v * kLanes, sums[h][v]);
  }
}

template <int kVectors>
inline void value_strip(const float* values, std::int64_t stride, std::int64_t count, const float* p,
                        std::int64_t heads, float* acc, std::int64_t acc_stride) {
  std::int64_t h = 0;
  for (; h + 4 <= heads; h += 4) {
    value_tile<4, kVectors>(values, stride, count, p + h * kBlockKeys, acc + h * acc_stride, acc_stride);
  }
  for (; h < heads; ++h) {
    value_tile<1, kVectors>(values, stride, count, p + h * kBlockKeys, acc + h * acc_stride, acc_stride);
  }
}

void add_values(const float* values, std::int64_t stride, std::int64_t count, const float* p, std::int64_t heads,
                std::int64_t width, float* acc) {
  std::int64_t v = 0;
  const std::int64_t vectors = width / kLanes;
  // Never one vector alone at the end, whose four chains would wait for latency: 64 are 20 times 3 and twice 2.
  for (; vectors - v >= 5 || vectors - v == 3; v += 3) {
    value_strip<3>(values + v * kLanes, stride, count, p, heads, acc + v * kLanes, width);
  }
  for (; vectors - v >= 2; v += 2)
    value_strip<2>(values + v * kLanes, stride, count, p, heads, acc + v * kLanes, width);
  for (; v < vectors; ++v) value_strip<1>(values + v * kLanes, stride, count, p, heads, acc + v * kLanes, width);
  for (std::int64_t h = 0; h < heads; ++h) {
    for (std::int64_t c = vectors * kLanes; c < width; ++c) {
      float sum = acc[h * width + c];
      for (std::int64_t j = 0; j < count; ++j) sum = __builtin_fmaf(p[h * kBlockKeys + j], values[j * stride + c], sum);
      acc[h * width + c] = sum;
    }
  }
}

// Online softmax of one head over one block: turns scores into shares and rescales the running sums.
inline void soften(float* scores, std::int64_t count, float scale, float* m, float* l, float* acc, std::int64_t width) {
  Vec maxima = all(-__builtin_inff());
  for_lanes(count, [&](std::int64_t j, std::int64_t lanes) {
    const Vec score = times(load(scores + j), all(scale));
    maxima = larger(maxima, first_lanes(score, lanes, all(-__builtin_inff())));
  });
  const float block_max = max_lanes(maxima);
  const float raised = *m > block_max ? *m : block_max;
  Vec sum = zero();
  for_lanes(count, [&](std::int64_t j, std::int64_t lanes) {
    const Vec score = times(load(scores + j), all(scale));
    const Vec share = first_lanes(exp(minus(score, all(raised))), lanes, zero());
    store(scores + j, share);
    sum = plus(sum, share);
  });
  const float keep = *m == raised ? 1.0F : first_lane(exp(all(*m - raised)));
  *l = *l * keep + sum_lanes(sum);
  *m = raised;
  if (keep == 1.0F) return;
  for_lanes(width, [=](std::int64_t i, std::int64_t lanes) {
    store_n(acc + i, lanes, times(load_n(acc + i, lanes), all(keep)));
  });
}

// One block of expanded keys and one query.
void attend(const MlaShape& shape, const float* keys, std::int64_t stride, std::int64_t count, const float* q,
            std::int64_t q_stride, const MlaPartial& partial) {
  float* scores = scratch(Scratch::kScores, (shape.heads + 3) * kBlockKeys);
  for (std::int64_t h = 0; h < shape.heads; h += 6) {
    const std::int64_t h_end = h + 6 < shape.heads ? h + 6 : shape.heads;
    for (std::int64_t j = 0; j < count; j += 4) {
      for (std::int64_t i = h; i < h_end; i += 3) {
        const float* rows[3];
        float* out[3];
        for (std::int64_t n = 0; n < 3; ++n) {
          const std::int64_t head = i + n < h_end ? i + n : h_end - 1;
          rows[n] = q + head * q_stride;
          out[n] = scores + head * kBlockKeys + j;
        }
        const std::int64_t vectors = stride / kLanes;
        if (h_end - i == 1) {
          score_tile<1>(keys + j * stride, stride, rows, vectors, out);
        } else if (h_end - i == 2) {
          score_tile<2>(keys + j * stride, stride, rows, vectors, out);
        } else {
          score_tile<3>(keys + j * stride, stride, rows, vectors, out);
        }
      }
    }
  }
  for (std::int64_t h = 0; h < shape.heads; ++h) {
    soften(scores + h * kBlockKeys, count, shape.scale, partial.m + h, partial.l + h, partial.acc + h * shape.kv,
           shape.kv);
  }
  add_values(keys, stride, count, scores, shape.heads, shape.kv, partial.acc);
}

// Rows of q padded with zeros to whole vectors; the caller's rows where they are whole already.
const float* padded_queries(const MlaShape& shape, const float* q, std::int64_t stride) {
  const std::int64_t width = shape.kv + shape.rope;
  if (width == stride) return q;
  float* padded = scratch(Scratch::kQueries, shape.heads * stride);
  for (std::int64_t h = 0; h < shape.heads; ++h) {
    for (std::int64_t i = 0; i < stride; ++i) padded[h * stride + i] = i < width ? q[h * width + i] : 0.0F;
  }
  return padded;
}

}  // namespace

void mla_segment(const MlaShape& shape, const PagedRows& keys, std::span<const MlaQuery> queries, std::int64_t segment,
                 std::span<const MlaPartial> partials) {
  const std::int64_t width = shape.kv + shape.rope;
  const std::int64_t stride = (width + kLanes - 1) / kLanes * kLanes;
  const auto count = static_cast<std::int64_t>(queries.size());
  float* block = scratch(Scratch::kKeys, kBlockKeys * stride);
  for (std::int64_t i = 0; i < count; ++i) begin_partial(shape, partials.data()[i]);

  std::int64_t dense_end = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const MlaQuery& query = queries.data()[i];
    const Range range = entries_of(query, segment);
    if (query.selected == nullptr) {
      if (range.last > dense_end) dense_end = range.last;
      continue;
    }
    for (std::int64_t first = range.first; first < range.last; first += kBlockKeys) {
      const std::int64_t n = range.last - first < kBlockKeys ? range.last - first : kBlockKeys;
      for (std::int64_t j = 0; j < n; ++j) {
        expand_key(key_row(keys, query.selected[first + j]), keys.format, width, block + j * stride);
      }
      attend(shape, block, stride, n, padded_queries(shape, query.q, stride), stride, partials.data()[i]);
    }
  }
  for (std::int64_t first = segment * kAttentionSegment; first < dense_end; first += kBlockKeys) {
    const std::int64_t filled = dense_end - first < kBlockKeys ? dense_end - first : kBlockKeys;
    for (std::int64_t j = 0; j < filled; ++j) {
      expand_key(key_row(keys, first + j), keys.format, width, block + j * stride);
    }
    for (std::int64_t i = 0; i < count; ++i) {
      const MlaQuery& query = queries.data()[i];
      if (query.selected != nullptr) continue;
      const Range range = entries_of(query, segment);
      const std::int64_t n = range.last - first < kBlockKeys ? range.last - first : kBlockKeys;
      if (n > 0) attend(shape, block, stride, n, padded_queries(shape, query.q, stride), stride, partials.data()[i]);
    }
  }
}

void mla_merge(const MlaShape& shape, const MlaPartial& next, const MlaPartial& running) {
  for (std::int64_t h = 0; h < shape.heads; ++h) {
    if (next.l[h] == 0) continue;
    const float raised = running.m[h] > next.m[h] ? running.m[h] : next.m[h];
    const Vec old_share = exp(all(running.m[h] - raised));
    const Vec share = exp(all(next.m[h] - raised));
    running.m[h] = raised;
    running.l[h] = running.l[h] * first_lane(old_share) + next.l[h] * first_lane(share);
    float* to = running.acc + h * shape.kv;
    const float* from = next.acc + h * shape.kv;
    for_lanes(shape.kv, [=](std::int64_t i, std::int64_t lanes) {
      const Vec kept = times(load_n(to + i, lanes), old_share);
      store_n(to + i, lanes, fma(load_n(from + i, lanes), share, kept));
    });
  }
}

void mla_finish(const MlaShape& shape, const MlaPartial& running, float* out, Rounding rounding) {
  for (std::int64_t h = 0; h < shape.heads; ++h) {
    const float* from = running.acc + h * shape.kv;
    float* to = out + h * shape.kv;
    const Vec total = all(running.l[h]);
    for_lanes(shape.kv, [=](std::int64_t i, std::int64_t lanes) {
      store_n(to + i, lanes, rounded(over(load_n(from + i, lanes), total), rounding));
    });
  }
}

}  // namespace perigee::PERIGEE_PATH
