// Every path that this machine can run against scalar truth, over random odd sizes, and the same-bits contract of
// kernels.h: how a call is split over tokens, rows, heads, queries or keys never changes a bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <numeric>

#include "kernels/paths.h"
#include "kernels/test_data.h"
#include "kernels/top_k.h"

namespace perigee {
namespace {

using testing::OwnedMatrix;
using testing::OwnedPages;
using testing::Random;

// Largest |got - want| against the largest |want|.
void expect_close(const std::vector<float>& got, const std::vector<float>& want, float tolerance) {
  ASSERT_EQ(got.size(), want.size());
  float largest = 0;
  float error = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    ASSERT_TRUE(std::isfinite(got[i])) << "element " << i << " is " << got[i] << ", scalar has " << want[i];
    largest = std::max(largest, std::fabs(want[i]));
    error = std::max(error, std::fabs(got[i] - want[i]));
  }
  EXPECT_LE(error, tolerance * largest);
}

void expect_same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0);
}

class Paths : public ::testing::TestWithParam<const Kernels*> {
 protected:
  const Kernels& path() const { return *GetParam(); }
  const Kernels& truth() const { return scalar_kernels(); }
  // Paths that multiply the shares of attention as bf16 where keys are.
  bool rounds_shares() const { return path().isa == "avx512bf16" || path().isa == "amx"; }
  Random random{20261201};
};

struct Shape {
  WeightFormat format;
  std::int64_t group;
};

const Shape kFormats[] = {
    {WeightFormat::kF32, 32},       {WeightFormat::kBf16, 32},       {WeightFormat::kMxfp4, 32},
    {WeightFormat::kInt4Group, 32}, {WeightFormat::kInt4Group, 128}, {WeightFormat::kInt4Group, 1 << 20},
    {WeightFormat::kInt4Group, 48}, {WeightFormat::kInt8Group, 64},  {WeightFormat::kFp8Block, 128},
};

TEST_P(Paths, GemmIsCloseToScalarAndIndependentOfSplits) {
  for (const Shape& shape : kFormats) {
    for (int round = 0; round < 12; ++round) {
      const auto gemm = round % 2 == 0 ? path().gemm : path().gemm_bf16;
      const std::int64_t rows = random.between(1, 40);
      const std::int64_t cols = round < 2 ? 1100 : random.between(1, 700);
      const std::int64_t tokens = round / 2 == 1 ? 200 : random.between(1, 20);
      SCOPED_TRACE(fmt::format("format {} group {} [{}, {}] x {}", static_cast<int>(shape.format), shape.group, rows,
                               cols, tokens));
      const OwnedMatrix w =
          testing::random_matrix(random, shape.format, rows, cols, shape.group, 4 * random.between(0, 3));
      const std::int64_t x_stride = cols + random.between(0, 5);
      const std::int64_t y_stride = rows + random.between(0, 5);
      const std::vector<float> x = random.bf16s(tokens * x_stride);
      const auto size = static_cast<std::size_t>(tokens * y_stride);
      for (const Rounding rounding : {Rounding::kNone, Rounding::kBf16}) {
        std::vector<float> want(size);
        std::vector<float> whole(size);
        truth().gemm(w.view, 0, rows, x.data(), x_stride, tokens, want.data(), y_stride, rounding);
        gemm(w.view, 0, rows, x.data(), x_stride, tokens, whole.data(), y_stride, rounding);
        // Block integers: 2^-15 of the largest activation of a block, on small ones.
        const float tolerance = round % 2 == 0 ? 3e-6F : 3e-5F;
        expect_close(whole, want, rounding == Rounding::kNone ? tolerance : 1e-2F);
        std::vector<float> pieces(size);
        for (std::int64_t t = 0; t < tokens;) {
          const std::int64_t t_end = std::min(tokens, t + random.between(1, 9));
          for (std::int64_t r = 0; r < rows;) {
            const std::int64_t r_end = std::min(rows, r + random.between(1, 19));
            gemm(w.view, r, r_end, x.data() + t * x_stride, x_stride, t_end - t, pieces.data() + t * y_stride, y_stride,
                 rounding);
            r = r_end;
          }
          t = t_end;
        }
        expect_same_bits(whole, pieces);
      }
    }
  }
}

// Products in block integers have the bits of the formula on every path; those with bf16 instructions multiply MXFP4
// without them, AMX INT4 too.
TEST_P(Paths, IntegerProductsOfBf16EqualScalar) {
  if (path().isa == "amx") GTEST_SKIP() << "AMX multiplies tiles of bf16";
  const Shape formats[] = {{WeightFormat::kMxfp4, 32},         {WeightFormat::kInt4Group, 32},
                           {WeightFormat::kInt4Group, 128},    {WeightFormat::kInt4Group, 1 << 20},
                           {WeightFormat::kInt8Group, 32},     {WeightFormat::kInt8Group, 128},
                           {WeightFormat::kInt8Group, 1 << 20}};
  for (const Shape& shape : formats) {
    if (path().isa == "avx512bf16" && shape.format == WeightFormat::kMxfp4) continue;
    for (int round = 0; round < 40; ++round) {
      const std::int64_t rows = random.between(1, 60);
      const std::int64_t cols = round % 8 == 0 ? random.between(700, 2200) : random.between(1, 600);
      const std::int64_t tokens = round % 10 == 0 ? 300 : random.between(1, 12);
      SCOPED_TRACE(fmt::format("format {} group {} [{}, {}] x {}", static_cast<int>(shape.format), shape.group, rows,
                               cols, tokens));
      OwnedMatrix w = testing::random_matrix(random, shape.format, rows, cols, shape.group, 4 * random.between(0, 3));
      // Scales that are subnormal (0) or far from the others.
      if (shape.format == WeightFormat::kMxfp4 && round % 3 == 0) {
        for (std::byte& scale : w.scales) {
          if (random.between(0, 50) == 0) scale = static_cast<std::byte>(random.between(0, 1) * 200);
        }
      }
      std::vector<float> x = random.bf16s(tokens * cols);
      for (float& value : x) {
        const std::int64_t kind = random.between(0, 30);
        if (kind == 0) value = round_bf16(std::ldexp(value, static_cast<int>(random.between(-130, 30))));
        if (kind == 1) value = 0;
        if (kind == 2) value = std::copysign(1.9921875F, value);  // the largest significand
      }
      std::vector<float> want(static_cast<std::size_t>(tokens * rows));
      std::vector<float> got(want.size());
      truth().gemm_bf16(w.view, 0, rows, x.data(), cols, tokens, want.data(), rows, Rounding::kNone);
      path().gemm_bf16(w.view, 0, rows, x.data(), cols, tokens, got.data(), rows, Rounding::kNone);
      expect_same_bits(got, want);
    }
  }
}

// A NaN scale or activation reaches the rows that it belongs to, so that the guard of the engine sees it.
TEST_P(Paths, IntegerProductsPassOnNan) {
  constexpr std::int64_t kRows = 20;
  constexpr std::int64_t kCols = 320;
  OwnedMatrix w = testing::random_matrix(random, WeightFormat::kMxfp4, kRows, kCols);
  w.scales[5 * static_cast<std::size_t>(w.view.scale_row_bytes) + 3] = std::byte{255};
  for (const std::int64_t tokens : {1, 2, 7}) {
    std::vector<float> x = random.bf16s(tokens * kCols);
    std::vector<float> y(static_cast<std::size_t>(tokens * kRows));
    path().gemm_bf16(w.view, 0, kRows, x.data(), kCols, tokens, y.data(), kRows, Rounding::kBf16);
    for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i % kRows == 5) << i;
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      x[100] = bad;
      path().gemm_bf16(w.view, 0, kRows, x.data(), kCols, tokens, y.data(), kRows, Rounding::kBf16);
      for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isfinite(y[i]), i >= kRows && i % kRows != 5) << i;
    }
  }
}

// What block integers cost against the plain product: a bf16 keeps its eight bits within a factor of 64 of the largest
// of its block.
TEST(BlockIntegers, ErrorIsFarBelowBf16) {
  Random random{5};
  constexpr std::int64_t kCols = 4096;
  const OwnedMatrix w = testing::random_matrix(random, WeightFormat::kMxfp4, 16, kCols);
  const std::vector<float> x = random.bf16s(kCols);
  std::vector<float> y(16);
  scalar_kernels().gemm_bf16(w.view, 0, 16, x.data(), kCols, 1, y.data(), 16, Rounding::kNone);
  std::vector<float> row(kCols);
  for (std::int64_t r = 0; r < 16; ++r) {
    dequantize_row(w.view, r, row.data());
    double sum = 0;
    double size = 0;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const double term = static_cast<double>(row[i]) * static_cast<double>(x[i]);
      sum += term;
      size += term * term;
    }
    // Rounding the activations to bf16 has cost some 1e-3 already.
    EXPECT_NEAR(static_cast<double>(y[static_cast<std::size_t>(r)]), sum, 4e-5 * std::sqrt(size));
  }
}

TEST_P(Paths, GemmTransposed) {
  for (const WeightFormat format : {WeightFormat::kF32, WeightFormat::kBf16}) {
    for (int round = 0; round < 8; ++round) {
      const std::int64_t rows = random.between(1, 140);
      const std::int64_t cols = random.between(1, 130);
      const std::int64_t tokens = random.between(1, 11);
      const OwnedMatrix w = testing::random_matrix(random, format, rows, cols);
      const std::vector<float> x = random.bf16s(tokens * rows);
      const auto size = static_cast<std::size_t>(tokens * cols);
      std::vector<float> want(size);
      std::vector<float> whole(size);
      std::vector<float> pieces(size);
      truth().gemm_transposed(w.view, x.data(), rows, tokens, want.data(), cols, Rounding::kNone);
      path().gemm_transposed(w.view, x.data(), rows, tokens, whole.data(), cols, Rounding::kNone);
      expect_close(whole, want, 3e-6F);
      for (std::int64_t t = 0; t < tokens; ++t) {
        path().gemm_transposed(w.view, x.data() + t * rows, rows, 1, pieces.data() + t * cols, cols, Rounding::kNone);
      }
      expect_same_bits(whole, pieces);
    }
  }
}

TEST_P(Paths, Rows) {
  for (int round = 0; round < 40; ++round) {
    const std::int64_t n = random.between(1, 600);
    SCOPED_TRACE(n);
    const auto size = static_cast<std::size_t>(n);
    const std::vector<float> a = random.bf16s(n, 3);
    const std::vector<float> b = random.bf16s(n, 30);
    const std::vector<float> w = random.bf16s(n);
    const auto compare = [&](float tolerance, auto call) {
      std::vector<float> want(size);
      std::vector<float> got(size);
      call(truth(), want.data());
      call(path(), got.data());
      expect_close(got, want, tolerance);
    };
    for (const bool bf16 : {false, true}) {
      const Rounding rounding = bf16 ? Rounding::kBf16 : Rounding::kNone;
      const float tolerance = bf16 ? 8e-3F : 2e-6F;
      const auto norm = bf16 ? NormRounding::kTwice : NormRounding::kNone;
      compare(tolerance, [&](const Kernels& k, float* y) { k.rms_norm(a.data(), w.data(), n, 1e-5F, y, norm); });
      if (n > 2) {
        compare(tolerance * 2,
                [&](const Kernels& k, float* y) { k.layer_norm(a.data(), w.data(), b.data(), n, 1e-5F, y, rounding); });
      }
      compare(tolerance, [&](const Kernels& k, float* y) {
        k.kda_output_norm(a.data(), w.data(), b.data(), n, 1e-5F, y, rounding);
      });
      compare(tolerance, [&](const Kernels& k, float* y) { k.situ(a.data(), b.data(), n, 4, 25, y, rounding); });
      compare(tolerance, [&](const Kernels& k, float* y) { k.situ(a.data(), b.data(), n, 4, 0, y, rounding); });
      compare(tolerance, [&](const Kernels& k, float* y) { k.swiglu(a.data(), b.data(), n, y, rounding); });
      compare(tolerance, [&](const Kernels& k, float* y) { k.sigmoid_gate(a.data(), b.data(), n, y, rounding); });
      compare(tolerance, [&](const Kernels& k, float* y) { k.add(a.data(), b.data(), n, y, rounding); });
      const std::vector<const float*> list = {a.data(), b.data(), w.data(), a.data()};
      const std::span<const float* const> sources(list);
      const float shares[] = {0.1F, -0.5F, 2.0F, 0.25F};
      compare(tolerance, [&](const Kernels& k, float* y) { k.weighted_sum(sources, shares, n, y, rounding); });
      std::vector<float> weight = random.floats(n, 1 / std::sqrt(static_cast<float>(n)));
      compare(bf16 ? 8e-3F : 1e-5F, [&](const Kernels& k, float* y) {
        k.attn_res_mix(sources.subspan(0, 3), weight.data(), n, 1e-5F, y, rounding);
      });
    }
    compare(2e-6F, [&](const Kernels& k, float* y) { k.kda_gate(a.data(), w.data(), 1.3F, -5, n, y); });
    compare(2e-6F, [&](const Kernels& k, float* y) { k.kda_gate(a.data(), w.data(), 0.4F, 0, n, y); });
  }
}

// Relative accuracy element by element where the functions are small, large or saturated.
TEST_P(Paths, ActivationsKeepRelativeAccuracy) {
  std::vector<float> x;
  for (float v = 1e-6F; v < 90; v *= 1.03F) {
    x.push_back(v);
    x.push_back(-v);
  }
  const auto n = static_cast<std::int64_t>(x.size());
  const std::vector<float> one(x.size(), 1.0F);
  std::vector<float> want(x.size());
  std::vector<float> got(x.size());
  truth().situ(x.data(), one.data(), n, 4, 0, want.data(), Rounding::kNone);
  path().situ(x.data(), one.data(), n, 4, 0, got.data(), Rounding::kNone);
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_NEAR(got[i], want[i], 1e-6F * std::fabs(want[i]) + 1e-36F) << x[i];
  }
}

TEST_P(Paths, ShortConvolution) {
  for (int round = 0; round < 20; ++round) {
    const std::int64_t channels = random.between(1, 60);
    const std::int64_t tokens = random.between(1, 12);
    const std::vector<float> x = random.bf16s(tokens * channels);
    const std::vector<float> w = random.floats(4 * channels);
    const std::vector<float> start = random.bf16s(3 * channels);
    const auto run = [&](const Kernels& k, bool split, std::vector<float>& y) {
      std::vector<float> state = start;
      for (std::int64_t t = 0; t < tokens;) {
        const std::int64_t step = split ? std::min(tokens - t, random.between(1, 4)) : tokens;
        k.short_conv(x.data() + t * channels, channels, w.data(), channels, step, state.data(), channels,
                     y.data() + t * channels, channels, Rounding::kNone);
        t += step;
      }
      y.insert(y.end(), state.begin(), state.end());
    };
    std::vector<float> want(x.size());
    std::vector<float> got(x.size());
    std::vector<float> split(x.size());
    run(truth(), false, want);
    run(path(), false, got);
    run(path(), true, split);
    expect_close(got, want, 2e-6F);
    expect_same_bits(got, split);
  }
}

TEST_P(Paths, KdaHead) {
  for (const std::int64_t dim : {32, 64, 128}) {
    const std::int64_t tokens = 70;
    const std::int64_t stride = dim + 3;
    const std::vector<float> q = random.bf16s(tokens * stride);
    const std::vector<float> k = random.bf16s(tokens * stride);
    const std::vector<float> v = random.bf16s(tokens * stride);
    std::vector<float> g = random.floats(tokens * stride, 2);
    for (float& value : g) value = -std::fabs(value);
    std::vector<float> beta = random.floats(tokens);
    for (float& value : beta) value = 1 / (1 + std::exp(value));
    const std::vector<float> start = random.floats(dim * dim);
    const auto run = [&](const Kernels& kernels, std::int64_t longest) {
      std::vector<float> o(q.size());
      std::vector<float> state = start;
      for (std::int64_t t = 0; t < tokens;) {
        const std::int64_t step = std::min(tokens - t, longest);
        const std::int64_t at = t * stride;
        kernels.kda_head({.tokens = step,
                          .dim = dim,
                          .stride = stride,
                          .q = q.data() + at,
                          .k = k.data() + at,
                          .v = v.data() + at,
                          .g = g.data() + at,
                          .beta = beta.data() + t,
                          .beta_stride = 1,
                          .state = state.data(),
                          .o = o.data() + at},
                         Rounding::kNone);
        t += step;
      }
      o.insert(o.end(), state.begin(), state.end());
      return o;
    };
    const std::vector<float> want = run(truth(), tokens);
    const std::vector<float> whole = run(path(), tokens);
    expect_close(whole, want, 3e-6F);
    for (const std::int64_t longest : {1, 3, 16, 17, 64}) expect_same_bits(whole, run(path(), longest));
  }
}

// Runs all segments of the queries, `tile` of them at a time, and returns the outputs.
std::vector<float> attend(const Kernels& kernels, const MlaShape& shape, const PagedRows& keys,
                          const std::vector<MlaQuery>& queries, std::size_t tile) {
  const auto size = static_cast<std::size_t>(shape.heads * shape.kv);
  const auto heads = static_cast<std::size_t>(shape.heads);
  std::vector<float> out(queries.size() * size);
  for (std::size_t first = 0; first < queries.size(); first += tile) {
    const std::size_t count = std::min(tile, queries.size() - first);
    std::vector<std::vector<float>> memory;
    std::vector<MlaPartial> parts;
    std::vector<MlaPartial> running;
    for (std::size_t i = 0; i < 2 * count; ++i) {
      auto& block = memory.emplace_back(2 * heads + size, 0.0F);
      std::fill_n(block.begin(), heads, -std::numeric_limits<float>::infinity());
      (i < count ? parts : running).push_back({block.data(), block.data() + heads, block.data() + 2 * heads});
    }
    std::int64_t last = 0;
    for (std::size_t i = first; i < first + count; ++i) {
      const MlaQuery& query = queries[i];
      last = std::max(last, query.entries());
    }
    for (std::int64_t s = 0; s * kAttentionSegment < last; ++s) {
      kernels.mla_segment(shape, keys, std::span(queries).subspan(first, count), s, parts);
      for (std::size_t i = 0; i < count; ++i) kernels.mla_merge(shape, parts[i], running[i]);
    }
    for (std::size_t i = 0; i < count; ++i) {
      kernels.mla_finish(shape, running[i], out.data() + (first + i) * size, Rounding::kNone);
    }
  }
  return out;
}

TEST_P(Paths, MlaDenseSparseAndTilesAgree) {
  for (const KeyFormat format : {KeyFormat::kBf16, KeyFormat::kF32}) {
    for (int round = 0; round < 5; ++round) {
      const bool large = round == 0;
      const MlaShape shape{.heads = random.between(1, large ? 9 : 40),
                           .kv = large ? 64 : random.between(1, 70),
                           .rope = large ? 8 : random.between(1, 20),
                           .scale = 0.2F};
      const std::int64_t tokens = large ? 4200 : random.between(1, 300);
      const std::int64_t width = shape.kv + shape.rope;
      const OwnedPages pages = testing::random_pages(random, format, width, tokens, 8 * random.between(0, 2));
      const std::int64_t count = std::min<std::int64_t>(tokens, 7);
      const std::vector<float> q = random.bf16s(count * shape.heads * width);
      std::vector<std::int32_t> every(static_cast<std::size_t>(tokens));
      std::iota(every.begin(), every.end(), 0);
      std::vector<std::int32_t> some;
      for (const std::int32_t position : every) {
        if (random.between(0, 3) == 0) some.push_back(position);
      }
      if (some.empty()) some.push_back(0);
      std::vector<MlaQuery> dense;
      std::vector<MlaQuery> all_selected;
      std::vector<MlaQuery> sparse;
      for (std::int64_t i = 0; i < count; ++i) {
        const float* at = q.data() + i * shape.heads * width;
        dense.push_back({.q = at, .keys = tokens - count + i + 1});
        all_selected.push_back({.q = at,
                                .keys = tokens - count + i + 1,
                                .selected = every.data(),
                                .selected_count = tokens - count + i + 1});
        sparse.push_back({.q = at,
                          .keys = tokens,
                          .selected = some.data(),
                          .selected_count = static_cast<std::int64_t>(some.size())});
      }
      SCOPED_TRACE(fmt::format("heads {} kv {} rope {} tokens {}", shape.heads, shape.kv, shape.rope, tokens));
      // Shares rounded to bf16 are off by 2^-9 of themselves, and so may their sum be.
      const float tolerance = rounds_shares() && format == KeyFormat::kBf16 ? 4e-3F : 4e-6F;
      const std::vector<float> whole = attend(path(), shape, pages.rows, dense, dense.size());
      expect_close(whole, attend(truth(), shape, pages.rows, dense, 1), tolerance);
      expect_same_bits(whole, attend(path(), shape, pages.rows, dense, 1));
      expect_same_bits(whole, attend(path(), shape, pages.rows, dense, 3));
      expect_same_bits(whole, attend(path(), shape, pages.rows, all_selected, 2));
      expect_close(attend(path(), shape, pages.rows, sparse, 4), attend(truth(), shape, pages.rows, sparse, 1),
                   tolerance);
    }
  }
}

// In a tile a query meets blocks that hold keys behind its last one. What they hold must not matter.
TEST_P(Paths, MlaKeysBehindAQueryDoNotReachIt) {
  for (const KeyFormat format : {KeyFormat::kBf16, KeyFormat::kF32}) {
    const MlaShape shape{.heads = 20, .kv = 72, .rope = 8, .scale = 0.2F};
    constexpr std::int64_t kFilled = 99;
    const OwnedPages pages = testing::random_pages(random, format, shape.kv + shape.rope, kFilled);  // then NaN
    const std::vector<float> q = random.bf16s(4 * shape.heads * (shape.kv + shape.rope));
    std::vector<MlaQuery> queries;
    for (std::int64_t i = 0; i < 4; ++i) {
      queries.push_back({.q = q.data() + i * shape.heads * (shape.kv + shape.rope), .keys = kFilled - 1 + i});
    }
    const std::vector<float> alone = attend(path(), shape, pages.rows, queries, 1);
    const std::vector<float> tile = attend(path(), shape, pages.rows, queries, 4);
    const auto finite = static_cast<std::ptrdiff_t>(2 * shape.heads * shape.kv);
    expect_same_bits({alone.begin(), alone.begin() + finite}, {tile.begin(), tile.begin() + finite});
    for (std::size_t i = 0; i < tile.size(); ++i) {
      EXPECT_EQ(std::isfinite(tile[i]), i < static_cast<std::size_t>(finite)) << i;
    }
  }
}

// What the rounding of shares costs is less than half of what rounding the result costs (docs/numerics.md).
TEST_P(Paths, MlaSharesAreRoundedOnce) {
  const MlaShape shape{.heads = 32, .kv = 128, .rope = 64, .scale = 0.0721688F};
  const OwnedPages pages = testing::random_pages(random, KeyFormat::kBf16, shape.kv + shape.rope, 2000);
  const std::vector<float> q = random.bf16s(shape.heads * (shape.kv + shape.rope), 1.7F);
  const std::vector<MlaQuery> query = {{.q = q.data(), .keys = 2000}};
  const std::vector<float> want = attend(truth(), shape, pages.rows, query, 1);
  const std::vector<float> got = attend(path(), shape, pages.rows, query, 1);
  double error = 0;
  double size = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const auto difference = static_cast<double>(got[i] - want[i]);
    error += difference * difference;
    size += static_cast<double>(want[i]) * static_cast<double>(want[i]);
  }
  EXPECT_LT(std::sqrt(error / size), rounds_shares() ? 1e-3 : 4e-6);
}

TEST_P(Paths, IndexScores) {
  for (const KeyFormat format : {KeyFormat::kBf16, KeyFormat::kF32}) {
    for (int round = 0; round < 8; ++round) {
      const std::int64_t heads = random.between(1, 34);
      const std::int64_t dim = random.between(1, 130);
      const std::int64_t tokens = random.between(1, 200);
      const std::int64_t count = random.between(1, 4);
      const OwnedPages pages = testing::random_pages(random, format, dim, tokens, 16);
      const std::vector<float> q = random.bf16s(count * heads * dim);
      const std::vector<float> w = random.floats(count * heads, 0.1F);
      const auto score = [&](const Kernels& kernels, std::int64_t tile, std::int64_t step) {
        std::vector<float> out(static_cast<std::size_t>(count * tokens));
        for (std::int64_t i = 0; i < count; i += tile) {
          for (std::int64_t begin = 0; begin < tokens; begin += step) {
            kernels.index_scores({.count = std::min(tile, count - i),
                                  .heads = heads,
                                  .q = q.data() + i * heads * dim,
                                  .q_stride = heads * dim,
                                  .w = w.data() + i * heads,
                                  .w_stride = heads},
                                 pages.rows, begin, std::min(tokens, begin + step), out.data() + i * tokens + begin,
                                 tokens);
          }
        }
        return out;
      };
      const std::vector<float> whole = score(path(), count, tokens);
      expect_close(whole, score(truth(), count, tokens), 3e-6F);
      expect_same_bits(whole, score(path(), 1, 7));
      expect_same_bits(whole, score(path(), 3, 64));
    }
  }
}

// An emulated build holds the sources of one path over loops (avx512/emulated, amx/emulated) and names its table.
std::vector<const Kernels*> tested_paths() {
#ifdef PERIGEE_EMULATED
  return {&PERIGEE_EMULATED()};
#else
  return runnable_kernels();
#endif
}

INSTANTIATE_TEST_SUITE_P(All, Paths, ::testing::ValuesIn(tested_paths()),
                         [](const auto& test) { return std::string(test.param->isa); });

TEST(Select, SaysWhichPathsRan) {
#ifdef PERIGEE_EMULATED
  std::printf("the sources of the %s path ran over loops, not on instructions\n", PERIGEE_EMULATED().isa.data());
#endif
  std::string ran;
  for (const Kernels* kernels : runnable_kernels()) ran.append(" ").append(kernels->isa);
  std::printf("paths that ran:%s\n", ran.c_str());
  for (const std::string& missing : missing_kernels()) std::printf("did not run: %s\n", missing.c_str());
  EXPECT_FALSE(select_kernels("mmx").ok());
  EXPECT_TRUE(select_kernels("scalar").ok());
}

TEST(SelectTopK, TotalOrder) {
  const float scores[] = {1, 3, -0.0F, 0, 3, std::numeric_limits<float>::quiet_NaN(), -1};
  std::int32_t selected[7];
  const auto pick = [&](std::int64_t k) {
    const std::int64_t n = select_top_k(scores, 7, k, selected);
    return std::vector<std::int32_t>(selected, selected + n);
  };
  EXPECT_EQ(pick(1), (std::vector<std::int32_t>{1}));
  EXPECT_EQ(pick(3), (std::vector<std::int32_t>{0, 1, 4}));
  EXPECT_EQ(pick(4), (std::vector<std::int32_t>{0, 1, 2, 4}));
  EXPECT_EQ(pick(6), (std::vector<std::int32_t>{0, 1, 2, 3, 4, 6}));
  EXPECT_EQ(pick(9).size(), 7U);
  EXPECT_TRUE(pick(0).empty());
}

// NaN last, equal scores by position.
std::vector<std::int32_t> top_k_by_sorting(std::span<const float> scores, std::int64_t k) {
  std::vector<std::int32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    const float left = scores[static_cast<std::size_t>(a)];
    const float right = scores[static_cast<std::size_t>(b)];
    return left > right || (std::isnan(right) && !std::isnan(left));
  });
  order.resize(static_cast<std::size_t>(k));
  std::sort(order.begin(), order.end());
  return order;
}

TEST(SelectTopK, EqualsSorting) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  Random random{7};
  PiecewiseTopK top;
  for (int round = 0; round < 100; ++round) {
    const bool many = round % 4 == 3;
    const std::int64_t n = many ? random.between(16'000, 40'000) : random.between(1, 3000);
    // Coarse values, so that many scores are equal at the threshold.
    std::vector<float> scores = random.floats(n, 4);
    const int kind = round / 4 % 6;
    for (float& score : scores) {
      if (kind == 1) score = std::round(score);
      if (kind == 2) score = std::max(score, 0.0F) * (score < 1 ? -0.0F : 1.0F);
      if (kind == 3 && score < 3) score = kNaN;
      if (kind == 4 && score < 0) score = score < -2 ? kNaN : -kInfinity;
      if (kind == 5 && score > 0) score = score > 2 ? kNaN : kInfinity;
    }
    const std::int64_t k = random.between(1, many ? 2'500 : n);
    std::vector<std::int32_t> selected(static_cast<std::size_t>(k));
    EXPECT_EQ(select_top_k(scores.data(), n, k, selected.data()), k);
    const std::vector<std::int32_t> expected = top_k_by_sorting(scores, k);
    EXPECT_EQ(selected, expected) << "round " << round;
    if (k == n) continue;
    // One object for all rounds: what a larger one left in it must not matter.
    const std::int64_t piece = random.between(1, 5000);
    top.start(n, k, piece, n);
    for (std::int64_t i = 0; i < top.pieces(); ++i) top.note(i, scores.data());
    top.bound();
    for (std::int64_t i = top.pieces(); i-- > 0;) top.collect(i, scores.data());
    top.finish(scores.data(), selected.data());
    EXPECT_EQ(selected, expected) << "round " << round << ", pieces of " << piece;
  }
}

}  // namespace
}  // namespace perigee
