// Operator vectors (float64 reference). Limits are those of the goldens' README: 2e-6 of the tensor's largest |value|;
// activations 2e-6 |want| + 2e-7 element by element; bf16 results one ulp on at most 1 % of the elements;
// dequantisation and selections exact.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>

#include "base/numeric.h"
#include "checkpoint/safetensors.h"
#include "model/moe.h"
#include "verify/golden_compare.h"
#include "verify/golden_run.h"

namespace perigee {
namespace {

struct Tensor {
  std::vector<std::int64_t> shape;
  std::vector<double> values;
  std::vector<std::byte> bytes;

  std::vector<float> floats() const { return {values.begin(), values.end()}; }
  std::vector<std::int32_t> ints() const { return {values.begin(), values.end()}; }
};

template <typename T>
std::vector<double> widen(std::span<const std::byte> bytes, double (*to_double)(T)) {
  std::vector<double> out(bytes.size() / sizeof(T));
  for (std::size_t i = 0; i < out.size(); ++i) {
    T value;
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    out[i] = to_double(value);
  }
  return out;
}

class Vectors {
 public:
  explicit Vectors(const std::string& path) {
    auto file = SafetensorsFile::open(path);
    if (!file.ok()) {
      status_ = file.status();
      return;
    }
    for (const auto& entry : file->header().tensors) {
      const TensorView* view = file->find(entry.name);
      Tensor& tensor = tensors_[entry.name];
      for (std::size_t i = 0; i < view->shape.rank(); ++i) tensor.shape.push_back(view->shape[i]);
      tensor.bytes.assign(view->data.begin(), view->data.end());
      switch (view->dtype) {
        case Dtype::kF32:
          tensor.values = widen<float>(view->data, [](float v) { return double{v}; });
          break;
        case Dtype::kF64:
          tensor.values = widen<double>(view->data, [](double v) { return v; });
          break;
        case Dtype::kBf16:
          tensor.values = widen<bf16>(view->data, [](bf16 v) { return double{to_float(v)}; });
          break;
        case Dtype::kI32:
          tensor.values = widen<std::int32_t>(view->data, [](std::int32_t v) { return double(v); });
          break;
        default:
          break;
      }
    }
  }

  const Tensor& operator[](const std::string& name) const {
    const auto found = tensors_.find(name);
    if (found != tensors_.end()) return found->second;
    static const Tensor kNone;
    return kNone;
  }
  bool has(const std::string& name) const { return tensors_.contains(name); }
  const Status& status() const { return status_; }

 private:
  Status status_;
  std::map<std::string, Tensor> tensors_;
};

// Runs the vectors on one path and adds a line for each result.
class OpsRun {
 public:
  OpsRun(const Kernels& kernels, CheckReport& report) : kernels_(kernels), report_(report) {}

  void norms(const Vectors& v);
  void activations(const Vectors& v);
  void kda_gate(const Vectors& v);
  void short_convolution(const Vectors& v);
  void kda_head(const Vectors& v);
  void mla(const Vectors& v);
  void index_scores(const Vectors& v);
  void selection(const Vectors& v);
  void attn_res(const Vectors& v);
  void router(const Vectors& v);
  void dequantisation(const Vectors& v);

 private:
  void add(const std::string& name, double worst, double tolerance) {
    report_.add({"ops", "ops", name, worst, tolerance, worst <= tolerance, {}});
  }
  void exact(const std::string& name, bool equal) { add(name, equal ? 0 : 1, 0); }
  void within(const std::string& name, const std::vector<float>& got, const Tensor& want, double share);
  void elements(const std::string& name, const std::vector<float>& got, const Tensor& want);
  void bf16_ulps(const std::string& name, const std::vector<float>& got, const Tensor& want);
  void route(const std::string& name, const Vectors& v, const MoeConfig& moe, const std::vector<float>& bias,
             std::vector<float> logits);

  const Kernels& kernels_;
  CheckReport& report_;
};

void OpsRun::within(const std::string& name, const std::vector<float>& got, const Tensor& want, double share) {
  double largest = 0;
  double error = got.size() == want.values.size() && !got.empty() ? 0 : INFINITY;
  for (std::size_t i = 0; i < std::min(got.size(), want.values.size()); ++i) {
    largest = std::max(largest, std::abs(want.values[i]));
    error = std::max(error, absolute_error(double{got[i]}, want.values[i]));
  }
  add(name, largest > 0 ? error / largest : error, share);
}

// The worst element against its own limit: 1 is the limit.
void OpsRun::elements(const std::string& name, const std::vector<float>& got, const Tensor& want) {
  double share = got.size() == want.values.size() && !got.empty() ? 0 : INFINITY;
  for (std::size_t i = 0; i < std::min(got.size(), want.values.size()); ++i) {
    share = std::max(share, absolute_error(double{got[i]}, want.values[i]) / (2e-6 * std::abs(want.values[i]) + 2e-7));
  }
  add(name, share, 1);
}

// Share of elements that differ; more than one ulp anywhere fails.
void OpsRun::bf16_ulps(const std::string& name, const std::vector<float>& got, const Tensor& want) {
  double different = got.size() == want.values.size() && !got.empty() ? 0 : INFINITY;
  for (std::size_t i = 0; i < std::min(got.size(), want.values.size()); ++i) {
    const auto expected = static_cast<float>(want.values[i]);
    if (got[i] == expected) continue;
    const int ulps = std::abs(int{to_bf16(got[i]).bits} - int{to_bf16(expected).bits});
    different += ulps <= 1 ? 1 : INFINITY;
  }
  add(name, different / static_cast<double>(std::max<std::size_t>(got.size(), 1)), 0.01);
}

void OpsRun::norms(const Vectors& v) {
  for (const auto& [name, eps] : {std::pair<std::string, float>{"rmsnorm_1e-05", 1e-5F}, {"rmsnorm_1e-06", 1e-6F}}) {
    const std::vector<float> x = v[name + ".x"].floats();
    const std::vector<float> w = v[name + ".w"].floats();
    const auto n = static_cast<std::int64_t>(w.size());
    std::vector<float> y(x.size());
    std::vector<float> y_bf16(x.size());
    for (std::size_t at = 0; at < x.size(); at += w.size()) {
      kernels_.rms_norm(&x[at], w.data(), n, eps, &y[at], NormRounding::kNone);
      kernels_.rms_norm(&x[at], w.data(), n, eps, &y_bf16[at], NormRounding::kTwice);
    }
    within(name + ".y", y, v[name + ".y"], 2e-6);
    bf16_ulps(name + ".y_bf16", y_bf16, v[name + ".y_bf16"]);
  }
  for (const std::string name : {"layernorm_16", "layernorm_128"}) {
    const std::vector<float> x = v[name + ".x"].floats();
    const std::vector<float> w = v[name + ".w"].floats();
    std::vector<float> bias;
    if (v.has(name + ".b")) bias = v[name + ".b"].floats();
    std::vector<float> y(x.size());
    for (std::size_t at = 0; at < x.size(); at += w.size()) {
      kernels_.layer_norm(&x[at], w.data(), bias.empty() ? nullptr : bias.data(), static_cast<std::int64_t>(w.size()),
                          1e-5F, &y[at], Rounding::kNone);
    }
    within(name + ".y", y, v[name + ".y"], 2e-6);
  }
}

void OpsRun::activations(const Vectors& v) {
  const std::vector<float> g = v["situ.g"].floats();
  const std::vector<float> u = v["situ.u"].floats();
  const auto n = static_cast<std::int64_t>(g.size());
  std::vector<float> y(g.size());
  kernels_.situ(g.data(), u.data(), n, 4, 25, y.data(), Rounding::kNone);
  elements("situ.y", y, v["situ.y"]);
  kernels_.situ(g.data(), u.data(), n, 4, 0, y.data(), Rounding::kNone);
  elements("situ.y_nolinear", y, v["situ.y_nolinear"]);
  kernels_.swiglu(g.data(), u.data(), n, y.data(), Rounding::kNone);
  elements("swiglu.y", y, v["swiglu.y"]);
  const std::vector<float> x = v["act.x"].floats();
  const std::vector<float> one(x.size(), 1.0F);
  const auto m = static_cast<std::int64_t>(x.size());
  y.resize(x.size());
  kernels_.swiglu(x.data(), one.data(), m, y.data(), Rounding::kNone);
  elements("act.silu", y, v["act.silu"]);
  kernels_.sigmoid_gate(one.data(), x.data(), m, y.data(), Rounding::kNone);
  elements("act.sigmoid", y, v["act.sigmoid"]);
}

void OpsRun::kda_gate(const Vectors& v) {
  const std::vector<float> z = v["kda_gate.z"].floats();
  const std::vector<float> a_log = v["kda_gate.A_log"].floats();
  const std::vector<float> bias = v["kda_gate.dt_bias"].floats();
  for (const auto& [name, bound] :
       {std::pair<std::string, float>{"g_lb5.0", -5.0F}, {"g_lb3.5", -3.5F}, {"g_unbounded", 0.0F}}) {
    std::vector<float> g(z.size());
    for (std::size_t row = 0; row < z.size() / 8; ++row) {
      const std::size_t head = row % 3;
      kernels_.kda_gate(&z[row * 8], &bias[head * 8], std::exp(a_log[head]), bound, 8, &g[row * 8]);
    }
    elements("kda_gate." + name, g, v["kda_gate." + name]);
  }
}

void OpsRun::short_convolution(const Vectors& v) {
  const std::vector<float> x = v["conv.x"].floats();
  const std::vector<float> w = v["conv.w"].floats();
  for (const Rounding rounding : {Rounding::kNone, Rounding::kBf16}) {
    std::vector<float> y(x.size());
    std::vector<float> state(36);
    for (std::int64_t t = 0; t < 11; ++t) {
      kernels_.short_conv(&x[static_cast<std::size_t>(t * 12)], 12, w.data(), 12, 1, state.data(), 12,
                          &y[static_cast<std::size_t>(t * 12)], 12, rounding);
      const std::string after = "conv.state_after_" + std::to_string(t + 1);
      if (v.has(after)) {
        exact(after, state == v[after].floats());
      }
    }
    if (rounding == Rounding::kNone) {
      within("conv.y", y, v["conv.y"], 2e-6);
    } else {
      bf16_ulps("conv.y_bf16", y, v["conv.y_bf16"]);
    }
  }
}

void OpsRun::kda_head(const Vectors& v) {
  for (const std::string name : {"kda_near0", "kda_near5", "kda_mixed", "kda_128", "kda_unbounded"}) {
    const std::vector<std::int64_t> shape = v[name + ".q"].shape;
    const std::int64_t tokens = shape[0];
    const std::int64_t heads = shape[1];
    const std::int64_t dim = shape[2];
    const std::vector<float> q = v[name + ".q"].floats();
    const std::vector<float> k = v[name + ".k"].floats();
    const std::vector<float> values = v[name + ".v"].floats();
    const std::vector<float> g = v[name + ".g"].floats();
    const std::vector<float> beta = v[name + ".beta"].floats();
    std::vector<float> state(static_cast<std::size_t>(heads * dim * dim));
    if (v.has(name + ".state_in")) state = v[name + ".state_in"].floats();
    std::vector<float> o(q.size());
    for (std::int64_t h = 0; h < heads; ++h) {
      kernels_.kda_head({.tokens = tokens,
                         .dim = dim,
                         .stride = heads * dim,
                         .q = q.data() + h * dim,
                         .k = k.data() + h * dim,
                         .v = values.data() + h * dim,
                         .g = g.data() + h * dim,
                         .beta = beta.data() + h,
                         .beta_stride = heads,
                         .state = state.data() + h * dim * dim,
                         .o = o.data() + h * dim},
                        Rounding::kNone);
    }
    within(name + ".o", o, v[name + ".o"], 2e-6);
    within(name + ".state_out", state, v[name + ".state_out"], 2e-6);
  }
  const std::vector<float> o = v["kda_onorm.o"].floats();
  const std::vector<float> r = v["kda_onorm.r"].floats();
  const std::vector<float> w = v["kda_onorm.w"].floats();
  std::vector<float> y(o.size());
  for (std::size_t at = 0; at < o.size(); at += 64) {
    kernels_.kda_output_norm(&o[at], w.data(), &r[at], 64, 1e-5F, &y[at], Rounding::kNone);
  }
  within("kda_onorm.y", y, v["kda_onorm.y"], 2e-6);
}

void OpsRun::mla(const Vectors& v) {
  for (const std::string name : {"mla_small", "mla_real"}) {
    const Tensor& rows = v[name + ".rows"];
    const Tensor& kv_b = v[name + ".kv_b"];
    const std::vector<float> q = v[name + ".q"].floats();
    const std::int64_t queries = v[name + ".q"].shape[0];
    const std::int64_t heads = v[name + ".q"].shape[1];
    const std::int64_t q_width = v[name + ".q"].shape[2];
    const std::int64_t kv = kv_b.shape[1];
    const std::int64_t rope = rows.shape[1] - kv;
    const std::int64_t nope = q_width - rope;
    const std::int64_t value = kv_b.shape[0] / heads - nope;
    const auto pos0 = static_cast<std::int64_t>(v[name + ".pos0"].values[0]);
    const std::vector<std::int32_t> selected = v[name + ".sel"].ints();
    const std::int64_t k = v[name + ".sel"].shape[1];
    const MlaShape shape{
        .heads = heads, .kv = kv, .rope = rope, .scale = 1.0F / std::sqrt(static_cast<float>(q_width))};

    std::vector<std::byte> halves(static_cast<std::size_t>(kPageTokens * (kv + rope) * 2));
    std::memcpy(halves.data(), rows.bytes.data(), rows.bytes.size());
    std::vector<std::byte> floats(2 * halves.size());
    const std::vector<float> row_values = rows.floats();
    std::memcpy(floats.data(), row_values.data(), row_values.size() * sizeof(float));

    // The two uses of the operator: exact activations over rows of floats; on the bf16 path the absorbed query is
    // rounded: 2^-9 an element, seen as up to 2^-9 of a result.
    for (const auto& [sparse, format] : {std::pair{false, KeyFormat::kF32}, std::pair{true, KeyFormat::kF32},
                                         std::pair{false, KeyFormat::kBf16}, std::pair{true, KeyFormat::kBf16}}) {
      const bool rounds = format == KeyFormat::kBf16;
      std::vector<std::byte*> pages = {rounds ? halves.data() : floats.data()};
      const PagedRows keys{.pages = pages, .offset = 0, .row = kv + rope, .format = format};
      std::vector<float> out(static_cast<std::size_t>(queries * heads * value));
      for (std::int64_t t = 0; t < queries; ++t) {
        std::vector<float> absorbed(static_cast<std::size_t>(heads * (kv + rope)));
        std::vector<float> part(static_cast<std::size_t>(heads * (kv + 2)));
        std::vector<float> latent(static_cast<std::size_t>(heads * kv));
        const auto head_rows = [&](std::int64_t h, std::int64_t first, std::int64_t count) {
          Matrix w{.format = WeightFormat::kBf16,
                   .rows = kv_b.shape[0],
                   .cols = kv,
                   .data = kv_b.bytes.data(),
                   .row_bytes = 2 * kv};
          return w.slice_rows(h * (nope + value) + first, count);
        };
        for (std::int64_t h = 0; h < heads; ++h) {
          const float* from = q.data() + (t * heads + h) * q_width;
          float* to = absorbed.data() + h * (kv + rope);
          kernels_.gemm_transposed(head_rows(h, 0, nope), from, q_width, 1, to, kv,
                                   rounds ? Rounding::kBf16 : Rounding::kNone);
          std::copy_n(from + nope, rope, to + kv);
        }
        std::vector<std::int32_t> list;
        for (std::int64_t i = 0; i < k; ++i) {
          const std::int32_t position = selected[static_cast<std::size_t>(t * k + i)];
          if (position >= 0) list.push_back(position);
        }
        MlaQuery query{.q = absorbed.data(), .keys = pos0 + t + 1};
        if (sparse) {
          query.selected = list.data();
          query.selected_count = static_cast<std::int64_t>(list.size());
        }
        const MlaPartial partial{part.data(), part.data() + heads, part.data() + 2 * heads};
        kernels_.mla_segment(shape, keys, std::span(&query, 1), 0, std::span(&partial, 1));
        kernels_.mla_finish(shape, partial, latent.data(), Rounding::kNone);
        for (std::int64_t h = 0; h < heads; ++h) {
          kernels_.gemm(head_rows(h, nope, value), 0, value, latent.data() + h * kv, kv, 1,
                        out.data() + (t * heads + h) * value, value, Rounding::kNone);
        }
      }
      const std::string wanted = name + (sparse ? ".o_selected" : ".o_causal");
      within(wanted + (rounds ? " (bf16)" : ""), out, v[wanted], rounds ? 8e-3 : 2e-6);
    }
  }
}

void OpsRun::index_scores(const Vectors& v) {
  const std::vector<float> q = v["index.Q"].floats();
  const std::vector<float> w = v["index.w"].floats();
  std::vector<std::byte> page(static_cast<std::size_t>(kPageTokens * 16 * 2));
  std::memcpy(page.data(), v["index.K"].bytes.data(), v["index.K"].bytes.size());
  std::vector<std::byte*> pages = {page.data()};
  const PagedRows keys{.pages = pages, .offset = 0, .row = 16, .format = KeyFormat::kBf16};
  std::vector<float> scores(std::size_t{6} * 24);
  kernels_.index_scores({.count = 6, .heads = 5, .q = q.data(), .q_stride = 80, .w = w.data(), .w_stride = 5}, keys, 0,
                        24, scores.data(), 24);
  const std::vector<std::int32_t> sel = v["index.sel"].ints();
  double error = 0;
  bool same = true;
  for (std::int64_t t = 0; t < 6; ++t) {
    const std::int64_t causal = 18 + t + 1;
    for (std::int64_t s = 0; s < causal; ++s) {
      const auto at = static_cast<std::size_t>(t * 24 + s);
      error = std::max(error, absolute_error(double{scores[at]}, v["index.scores"].values[at]));
    }
    std::vector<std::int32_t> picked(8);
    same = same && select_top_k(&scores[static_cast<std::size_t>(t * 24)], causal, 8, picked.data()) == 8 &&
           std::equal(picked.begin(), picked.end(), sel.begin() + t * 8);
  }
  add("index.scores", error, 5e-5);
  exact("index.sel", same);
}

void OpsRun::attn_res(const Vectors& v) {
  for (const std::int64_t count : {2, 3, 9}) {
    const std::string name = "attnres_" + std::to_string(count);
    const std::vector<float> sources = v[name + ".sources"].floats();
    std::vector<float> weight = v[name + ".norm"].floats();
    const std::vector<float> proj = v[name + ".proj"].floats();
    for (std::size_t i = 0; i < weight.size(); ++i) weight[i] *= proj[i];
    std::vector<float> out(std::size_t{4} * 160);
    for (std::int64_t t = 0; t < 4; ++t) {
      std::vector<const float*> rows;
      for (std::int64_t s = 0; s < count; ++s) rows.push_back(sources.data() + (s * 4 + t) * 160);
      kernels_.attn_res_mix(rows, weight.data(), 160, 1e-5F, out.data() + t * 160, Rounding::kNone);
    }
    within(name + ".out", out, v[name + ".out"], 2e-6);
  }
}

// An identity matrix as the activations makes GEMM return the weights themselves, so this covers every decoder.
void OpsRun::dequantisation(const Vectors& v) {
  const auto check = [&](const std::string& name, const Matrix& w, const Tensor& want) {
    double wrong = 0;
    std::vector<float> row(static_cast<std::size_t>(w.cols));
    std::vector<float> product(static_cast<std::size_t>(w.rows));
    // Scale byte FEh overflows fp32 for codes above 3/2: the other columns of such a row give 0 * inf.
    std::vector<bool> finite(static_cast<std::size_t>(w.rows), true);
    for (std::int64_t r = 0; r < w.rows; ++r) {
      dequantize(w, r, 0, w.cols, row.data());
      for (std::int64_t c = 0; c < w.cols; ++c) {
        const auto value = static_cast<float>(want.values[static_cast<std::size_t>(r * w.cols + c)]);
        wrong += row[static_cast<std::size_t>(c)] == value ? 0 : 1;
        if (!std::isfinite(value)) finite[static_cast<std::size_t>(r)] = false;
      }
    }
    for (std::int64_t c = 0; c < w.cols; ++c) {
      std::vector<float> unit(static_cast<std::size_t>(w.cols));
      unit[static_cast<std::size_t>(c)] = 1;
      kernels_.gemm(w, 0, w.rows, unit.data(), w.cols, 1, product.data(), w.rows, Rounding::kNone);
      for (std::int64_t r = 0; r < w.rows; ++r) {
        const auto value = static_cast<float>(want.values[static_cast<std::size_t>(r * w.cols + c)]);
        if (finite[static_cast<std::size_t>(r)]) wrong += product[static_cast<std::size_t>(r)] == value ? 0 : 1;
      }
    }
    add(name, wrong, 0);
  };
  for (const std::string name : {"mxfp4", "mxfp4_mixed"}) {
    const Tensor& packed = v[name + ".packed"];
    const Tensor& scale = v[name + ".scale"];
    Matrix w{.format = WeightFormat::kMxfp4,
             .scale_format = ScaleFormat::kE8m0,
             .rows = packed.shape[0],
             .cols = 2 * packed.shape[1],
             .data = packed.bytes.data(),
             .row_bytes = packed.shape[1],
             .scales = scale.bytes.data(),
             .scale_row_bytes = scale.shape[1],
             .group = 32};
    check(name, w, v[name + ".w"]);
  }
  for (const std::string name : {"int4", "int4_short"}) {
    Matrix w{.format = WeightFormat::kInt4Group,
             .scale_format = ScaleFormat::kBf16,
             .rows = 3,
             .cols = v[name + ".w"].shape[1],
             .data = v["int4.packed"].bytes.data(),
             .row_bytes = 48,
             .scales = v["int4.scale"].bytes.data(),
             .scale_row_bytes = 6,
             .group = 32};
    check(name, w, v[name + ".w"]);
  }
}

void OpsRun::selection(const Vectors& v) {
  const std::vector<float> scores = v["select.scores"].floats();
  for (const std::int64_t k : {1, 4, 8, 39, 40, 64}) {
    const std::vector<std::int32_t> want = v["select.top" + std::to_string(k)].ints();
    const std::int64_t n = std::min<std::int64_t>(k, 40);
    bool same = true;
    for (std::int64_t row = 0; row < 8; ++row) {
      std::vector<std::int32_t> got(static_cast<std::size_t>(n));
      same = same && select_top_k(scores.data() + row * 40, 40, k, got.data()) == n &&
             std::equal(got.begin(), got.end(), want.begin() + row * n);
    }
    exact("select.top" + std::to_string(k), same);
  }
}

void OpsRun::route(const std::string& name, const Vectors& v, const MoeConfig& moe, const std::vector<float>& bias,
                   std::vector<float> logits) {
  const std::vector<std::int32_t> ids = v[name + ".ids"].ints();
  const auto rows = static_cast<std::int64_t>(logits.size()) / moe.experts;
  bool same = static_cast<std::int64_t>(ids.size()) == rows * moe.top_k;
  double error = 0;
  for (std::int64_t row = 0; same && row < rows; ++row) {
    std::vector<std::int32_t> chosen(static_cast<std::size_t>(moe.top_k));
    std::vector<float> weights(chosen.size());
    Routing::choose(moe, bias.data(), logits.data() + row * moe.experts, chosen.data(), weights.data());
    same = std::equal(chosen.begin(), chosen.end(), ids.begin() + row * moe.top_k);
    for (std::size_t i = 0; v.has(name + ".weights") && i < weights.size(); ++i) {
      const auto at = static_cast<std::size_t>(row * moe.top_k) + i;
      error = std::max(error, absolute_error(double{weights[i]}, v[name + ".weights"].values[at]));
    }
  }
  exact(name + ".ids", same);
  add(name + ".weights", error, 1e-5);
}

void OpsRun::router(const Vectors& v) {
  const std::vector<float> y = v["router.y"].floats();
  const Tensor& w = v["router.W"];
  const std::int64_t experts = w.shape[0];
  const std::int64_t hidden = w.shape[1];
  const Matrix weight{
      .format = WeightFormat::kBf16, .rows = experts, .cols = hidden, .data = w.bytes.data(), .row_bytes = 2 * hidden};
  const auto rows = static_cast<std::int64_t>(y.size()) / hidden;
  std::vector<float> logits(static_cast<std::size_t>(rows * experts));
  kernels_.gemm(weight, 0, experts, y.data(), hidden, rows, logits.data(), experts, Rounding::kNone);
  const std::vector<float> bias = v["router.bias"].floats();
  MoeConfig moe;
  moe.experts = experts;
  moe.top_k = 4;
  route("router.plain", v, moe, bias, logits);
  moe.renormalize = false;
  route("router.norenorm", v, moe, bias, logits);
  moe.renormalize = true;
  moe.groups = 4;
  moe.top_k_groups = 2;
  route("router.grouped", v, moe, bias, logits);
  moe.groups = moe.top_k_groups = 1;
  moe.top_k = 3;
  moe.scaling = 2.446;
  route("router.scaled", v, moe, bias, logits);
  moe.scaling = 1;
  moe.top_k = 5;
  route("router.tie", v, moe, v["router.tie.bias"].floats(), std::vector<float>(std::size_t{2} * 16));
  moe.experts = 4;
  moe.top_k = 1;
  route("router.fp32", v, moe, std::vector<float>(4), v["router.fp32.logits"].floats());
}

}  // namespace

Status verify_ops(const std::string& directory, const Kernels& kernels, CheckReport& report) {
  OpsRun run(kernels, report);
  const auto with = [&](const char* name, std::initializer_list<void (OpsRun::*)(const Vectors&)> checks) -> Status {
    const Vectors vectors(directory + "/" + name + ".safetensors");
    PERIGEE_RETURN_IF_ERROR(vectors.status());
    for (const auto check : checks) (run.*check)(vectors);
    return {};
  };
  PERIGEE_RETURN_IF_ERROR(with("norms", {&OpsRun::norms}));
  PERIGEE_RETURN_IF_ERROR(with("activations", {&OpsRun::activations}));
  PERIGEE_RETURN_IF_ERROR(with("kda", {&OpsRun::kda_gate, &OpsRun::short_convolution, &OpsRun::kda_head}));
  PERIGEE_RETURN_IF_ERROR(with("mla", {&OpsRun::mla}));
  PERIGEE_RETURN_IF_ERROR(with("dsa", {&OpsRun::index_scores, &OpsRun::selection}));
  PERIGEE_RETURN_IF_ERROR(with("attnres", {&OpsRun::attn_res}));
  PERIGEE_RETURN_IF_ERROR(with("router", {&OpsRun::router}));
  return with("quant", {&OpsRun::dequantisation});
}

}  // namespace perigee
