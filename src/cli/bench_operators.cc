// Operators at the widths of K3.1 (hidden 7168, 96 heads) or of one of its experts, on generated operands.
#include <algorithm>
#include <numeric>

#include "base/huge_buffer.h"
#include "base/numeric.h"
#include "cli/bench.h"
#include "kernels/top_k.h"

namespace perigee::cli {
namespace {

// Fills memory with finite numbers of any format: bytes 0x30..0x3F read as small positive floats, bf16 values, codes
// and scales alike.
void fill(std::byte* data, std::int64_t bytes, std::uint64_t seed) {
  for (std::int64_t i = 0; i < bytes; ++i) {
    seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
    data[i] = static_cast<std::byte>(0x30 + (seed >> 60));
  }
}

std::vector<float> random_floats(std::int64_t n, std::uint64_t seed) {
  std::vector<float> out(static_cast<std::size_t>(n));
  for (float& value : out) {
    seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
    value = static_cast<float>(static_cast<std::int64_t>(seed >> 40) - (1 << 23)) * 0x1p-23F;
  }
  return out;
}

constexpr std::int64_t kIndexHeads = 32;
constexpr std::int64_t kIndexDim = 128;
constexpr std::int64_t kTopK = 2048;
constexpr std::int64_t kLongContext = 1 << 20;

struct Weights {
  HugeBuffer memory;
  Matrix view;
};

Weights make_weights(WeightFormat format, std::int64_t rows, std::int64_t cols) {
  Weights w;
  w.view = {.format = format, .rows = rows, .cols = cols, .group = 32};
  std::int64_t scale_bytes = 0;
  switch (format) {
    case WeightFormat::kBf16:
      w.view.row_bytes = 2 * cols;
      break;
    case WeightFormat::kMxfp4:
      w.view.row_bytes = cols / 2;
      w.view.scale_format = ScaleFormat::kE8m0;
      scale_bytes = cols / 32;
      break;
    default:
      w.view.row_bytes = format == WeightFormat::kInt8Group ? cols : cols / 2;
      w.view.scale_format = ScaleFormat::kBf16;
      scale_bytes = cols / 16;
      break;
  }
  w.memory = HugeBuffer(rows * (w.view.row_bytes + scale_bytes));
  fill(w.memory.data(), w.memory.size(), 7);
  w.view.data = w.memory.data();
  w.view.scale_row_bytes = scale_bytes;
  if (scale_bytes > 0) w.view.scales = w.memory.data() + rows * w.view.row_bytes;
  return w;
}

const char* name_of(WeightFormat format) {
  switch (format) {
    case WeightFormat::kBf16:
      return "bf16";
    case WeightFormat::kMxfp4:
      return "mxfp4";
    case WeightFormat::kInt8Group:
      return "int8";
    default:
      return "int4";
  }
}

class Operators {
 public:
  Operators(const Kernels& kernels, const Roofline& roofline, const BenchOptions& options)
      : kernels_(kernels), roofline_(roofline), options_(options), pool_(roofline.threads) {}

  std::vector<Figure> run() {
    for (const WeightFormat format :
         {WeightFormat::kBf16, WeightFormat::kMxfp4, WeightFormat::kInt4Group, WeightFormat::kInt8Group}) {
      products(format);
    }
    kda(1);
    kda(256);
    attention("mla dense, 1 query, 8192 keys", 1, 8192, false);
    attention("mla dense, tile of 8 queries, 8192 keys", 8, 8192, false);
    attention("mla sparse, 2048 of 65536 keys", 1, 65536, true);
    index("index scores, 1 query, 262144 keys", 1, 262144);
    index("index scores, tile of 8, 65536 keys", 8, 65536);
    top_k();
    sparse_step();
    rows();
    return std::move(figures_);
  }

 private:
  void add(const std::string& group, const std::string& name, double bytes, double flops,
           const std::function<void()>& body) {
    Figure figure{.group = group,
                  .name = name,
                  .threads = roofline_.threads,
                  .time = measure(roofline_.threads, options_.budget, body),
                  .bytes = bytes,
                  .flops = flops};
    set_share(figure, roofline_, kernels_.isa);
    figures_.push_back(std::move(figure));
    options_.on_figure(figures_.back());
  }

  // A tall matrix, larger than the last-level cache, and tasks of the size that the model uses.
  void products(WeightFormat format) {
    constexpr std::int64_t kCols = 7168;
    const std::int64_t rows = format == WeightFormat::kBf16 ? 12288 : 36864;
    const Weights w = make_weights(format, rows, kCols);
    for (const std::int64_t tokens : {1, 2, 4, 8, 16, 32, 256}) {
      const std::int64_t used = tokens <= 2 ? rows : std::max<std::int64_t>(1024, rows / (4 * tokens) / 64 * 64);
      std::vector<float> x = random_floats(tokens * kCols, 3);
      for (float& value : x) value = round_bf16(value);
      std::vector<float> y(static_cast<std::size_t>(tokens * rows));
      const std::int64_t task = used / (4 * roofline_.threads);
      const double bytes = static_cast<double>(used) * static_cast<double>(w.view.row_bytes + w.view.scale_row_bytes);
      const double flops = 2.0 * static_cast<double>(used * kCols * tokens);
      add("gemm", fmt::format("{} [{}, {}] x {}", name_of(format), used, kCols, tokens), bytes, flops, [&] {
        pool_.run(4 * roofline_.threads, [&](std::int64_t i, int) {
          kernels_.gemm_bf16(w.view, i * task, (i + 1) * task, x.data(), kCols, tokens, y.data(), rows,
                             Rounding::kBf16);
        });
      });
    }
  }

  void kda(std::int64_t tokens) {
    constexpr std::int64_t kDim = 128;
    constexpr std::int64_t kHeads = 96;
    const std::int64_t width = kHeads * kDim;
    const std::vector<float> x = random_floats(tokens * width, 4);
    std::vector<float> g(x.size());
    for (std::size_t i = 0; i < g.size(); ++i) g[i] = -std::fabs(x[i]);
    const std::vector<float> beta(static_cast<std::size_t>(tokens * kHeads), 0.5F);
    std::vector<float> o(x.size());
    const HugeBuffer memory(kHeads * kDim * kDim * 4);
    auto* state = reinterpret_cast<float*>(memory.data());
    // Three multiply-adds, one multiplication a state element and token (k S, q S, k u and the decay).
    add("kda", fmt::format("{} heads, {} tokens", kHeads, tokens), 8.0 * kHeads * kDim * kDim,
        7.0 * kHeads * kDim * kDim * static_cast<double>(tokens), [&] {
          pool_.run(kHeads, [&](std::int64_t h, int) {
            kernels_.kda_head({.tokens = tokens,
                               .dim = kDim,
                               .stride = width,
                               .q = x.data() + h * kDim,
                               .k = x.data() + h * kDim,
                               .v = x.data() + h * kDim,
                               .g = g.data() + h * kDim,
                               .beta = beta.data() + h,
                               .beta_stride = kHeads,
                               .state = state + h * kDim * kDim,
                               .o = o.data() + h * kDim},
                              Rounding::kBf16);
          });
        });
  }

  struct Cache {
    HugeBuffer memory;
    std::vector<std::byte*> pages;
    PagedRows rows;
  };
  static Cache make_cache(std::int64_t row, std::int64_t tokens) {
    Cache cache;
    const std::int64_t page_bytes = kPageTokens * row * 2;
    cache.memory = HugeBuffer(tokens / kPageTokens * page_bytes);
    fill(cache.memory.data(), cache.memory.size(), 5);
    // Neighbouring pages of a sequence lie apart, as those of a shared pool do.
    const std::int64_t pages = tokens / kPageTokens;
    for (std::int64_t i = 0; i < pages; ++i) cache.pages.push_back(cache.memory.data() + i * 37 % pages * page_bytes);
    cache.rows = {.pages = cache.pages, .offset = 0, .row = row, .format = KeyFormat::kBf16};
    return cache;
  }

  void attention(const std::string& name, std::int64_t queries, std::int64_t tokens, bool sparse) {
    const MlaShape shape{.heads = 96, .kv = 512, .rope = 64, .scale = 0.0721688F};
    const Cache cache = make_cache(shape.kv + shape.rope, tokens);
    const std::int64_t width = shape.heads * (shape.kv + shape.rope);
    const std::vector<float> q = random_floats(queries * width, 6);
    std::vector<std::int32_t> selected;
    // An odd distance: rows a power of two apart would share the sets of L1, which scattered keys do not.
    const std::int64_t apart = tokens / 2048 - 1;
    for (std::int64_t i = 0; sparse && i < 2048; ++i) selected.push_back(static_cast<std::int32_t>(i * apart));
    const std::int64_t keys = sparse ? 2048 : tokens;
    const std::int64_t partial = shape.heads * (shape.kv + 2);
    const std::int64_t segments = sparse ? 1 : tokens / kAttentionSegment;
    const std::int64_t copies = sparse ? 4 * roofline_.threads : 1;  // as many tasks as threads need
    std::vector<float> memory(static_cast<std::size_t>(partial * queries * segments * copies));
    const double flops = 2.0 * static_cast<double>(copies * queries * keys * shape.heads * (2 * shape.kv + shape.rope));
    const double bytes = sparse ? 0 : 2.0 * static_cast<double>(keys * (shape.kv + shape.rope));
    add("attention", name, bytes, flops, [&] {
      pool_.run(copies * segments, [&](std::int64_t task, int) {
        std::vector<MlaQuery> tile;
        std::vector<MlaPartial> partials;
        for (std::int64_t i = 0; i < queries; ++i) {
          MlaQuery query{.q = q.data() + i * width, .keys = tokens};
          if (sparse) {
            query.selected = selected.data();
            query.selected_count = 2048;
          }
          tile.push_back(query);
          float* at = memory.data() + (task * queries + i) * partial;
          partials.push_back({at, at + shape.heads, at + 2 * shape.heads});
        }
        kernels_.mla_segment(shape, cache.rows, tile, task % segments, partials);
      });
    });
  }

  void index(const std::string& name, std::int64_t queries, std::int64_t keys) {
    constexpr std::int64_t kHeads = kIndexHeads;
    constexpr std::int64_t kDim = kIndexDim;
    const Cache cache = make_cache(kDim, keys);
    const std::vector<float> q = random_floats(queries * kHeads * kDim, 8);
    const std::vector<float> w = random_floats(queries * kHeads, 9);
    std::vector<float> scores(static_cast<std::size_t>(queries * keys));
    constexpr std::int64_t kTask = 4096;
    add("dsa", name, 2.0 * static_cast<double>(keys * kDim), 2.0 * static_cast<double>(queries * keys * kHeads * kDim),
        [&] {
          pool_.run(keys / kTask, [&](std::int64_t task, int) {
            kernels_.index_scores({.count = queries,
                                   .heads = kHeads,
                                   .q = q.data(),
                                   .q_stride = kHeads * kDim,
                                   .w = w.data(),
                                   .w_stride = kHeads},
                                  cache.rows, task * kTask, (task + 1) * kTask, scores.data() + task * kTask, keys);
          });
        });
  }

  void top_k() {
    if (roofline_.threads != 1) return;
    const std::vector<float> scores = random_floats(kLongContext, 10);
    std::vector<std::int32_t> selected(kTopK);
    add("dsa", fmt::format("top {} of {} scores", kTopK, kLongContext), 4.0 * kLongContext, 0,
        [&] { select_top_k(scores.data(), kLongContext, kTopK, selected.data()); });
  }

  // What one DSA layer of K3.1 does in a decode step with a million keys: all scores, the selection, attention over it.
  // The bytes are one reading of the index keys.
  void sparse_step() {
    const MlaShape shape{.heads = 96, .kv = 512, .rope = 64, .scale = 0.0721688F};
    constexpr std::int64_t kTask = 4096;
    const Cache index = make_cache(kIndexDim, kLongContext);
    const Cache latent = make_cache(shape.kv + shape.rope, kLongContext);
    const std::vector<float> index_q = random_floats(kIndexHeads * kIndexDim, 8);
    const std::vector<float> w = random_floats(kIndexHeads, 9);
    const std::vector<float> q = random_floats(shape.heads * (shape.kv + shape.rope), 6);
    std::vector<float> scores(kLongContext);
    std::vector<std::int32_t> selected(kTopK);
    PiecewiseTopK top;
    std::vector<float> partial(static_cast<std::size_t>(shape.heads * (shape.kv + 2)));
    const double flops = 2.0 * kLongContext * kIndexHeads * kIndexDim +
                         2.0 * kTopK * 96 * static_cast<double>(2 * shape.kv + shape.rope);
    add("dsa", fmt::format("decode step, {} keys", kLongContext), 2.0 * kLongContext * kIndexDim, flops, [&] {
      top.start(kLongContext, kTopK, kTask, kLongContext);
      pool_.run(top.pieces(), [&](std::int64_t task, int) {
        kernels_.index_scores({.count = 1, .heads = kIndexHeads, .q = index_q.data(), .w = w.data()}, index.rows,
                              task * kTask, (task + 1) * kTask, scores.data() + task * kTask, kLongContext);
        top.note(task, scores.data());
      });
      top.bound();
      pool_.run(top.pieces(), [&](std::int64_t task, int) { top.collect(task, scores.data()); });
      top.finish(scores.data(), selected.data());
      const std::int64_t groups = roofline_.threads;
      pool_.run(groups, [&](std::int64_t group, int) {
        MlaShape part = shape;
        part.heads = shape.heads / groups;
        const std::int64_t head = group * part.heads;
        const MlaQuery query{.q = q.data() + head * (shape.kv + shape.rope),
                             .keys = kLongContext,
                             .selected = selected.data(),
                             .selected_count = kTopK};
        const MlaPartial sums{partial.data() + head, partial.data() + shape.heads + head,
                              partial.data() + 2 * shape.heads + head * shape.kv};
        kernels_.mla_segment(part, latent.rows, {&query, 1}, 0, {&sums, 1});
      });
    });
  }

  void rows() {
    if (roofline_.threads != 1) return;
    constexpr std::int64_t kN = 7168;
    const std::vector<float> a = random_floats(kN, 11);
    const std::vector<float> b = random_floats(kN, 12);
    std::vector<float> y(kN);
    add("rows", "rms_norm 7168, 64 times", 64 * 12.0 * kN, 0, [&] {
      for (int i = 0; i < 64; ++i) kernels_.rms_norm(a.data(), b.data(), kN, 1e-5F, y.data(), NormRounding::kTwice);
    });
    add("rows", "situ 7168, 64 times", 64 * 12.0 * kN, 0, [&] {
      for (int i = 0; i < 64; ++i) kernels_.situ(a.data(), b.data(), kN, 4, 25, y.data(), Rounding::kBf16);
    });
    const std::vector<const float*> sources(9, a.data());
    add("rows", "attn_res_mix 9 x 7168, 64 times", 64 * 36.0 * kN, 0, [&] {
      for (int i = 0; i < 64; ++i) kernels_.attn_res_mix(sources, b.data(), kN, 1e-5F, y.data(), Rounding::kBf16);
    });
  }

  const Kernels& kernels_;
  const Roofline& roofline_;
  const BenchOptions& options_;
  ThreadPool pool_;
  std::vector<Figure> figures_;
};

}  // namespace

std::vector<Figure> bench_operators(const Kernels& kernels, const Roofline& roofline, const BenchOptions& options) {
  return Operators(kernels, roofline, options).run();
}

}  // namespace perigee::cli
