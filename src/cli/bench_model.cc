// Whole-model measurements: prefill, decode at depths, batches. A depth is reached by filling the caches with generated
// rows, since timing does not depend on what the rows say.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <memory>

#include "checkpoint/weights.h"
#include "cli/bench.h"
#include "model/model.h"
#include "model/sequence_storage.h"

namespace perigee::cli {
namespace {

// Multiply-adds (doubled) and bytes of one step, from the configuration alone.
class Cost {
 public:
  Cost(const ModelConfig& config, const ModelWeights& weights) : config_(config) {
    for (const LayerWeights& layer : weights.layers) {
      for (const Matrix* m : matrices_of(layer)) add(*m);
    }
    add(weights.lm_head);  // counted once a sequence
    head_flops_ = 2.0 * static_cast<double>(weights.lm_head.rows * weights.lm_head.cols);
    trunk_flops_ -= head_flops_;
    if (config.moe.experts > 0) {
      for (const LayerWeights& layer : weights.layers) {
        if (layer.moe.experts.empty()) continue;
        ++moe_layers_;
        const MlpWeights& expert = layer.moe.experts.front();
        for (const Matrix* m : {&expert.gate, &expert.up, &expert.down}) {
          expert_flops_ += 2.0 * static_cast<double>(m->rows * m->cols * config.moe.top_k);
          expert_bytes_ += bytes_of(*m);
        }
      }
      expert_bytes_ /= static_cast<double>(moe_layers_);
    }
  }

  // Tokens of one sequence from `position` on, of which `heads` want logits.
  double flops(std::int64_t position, std::int64_t tokens, std::int64_t heads) const {
    double total =
        (trunk_flops_ + expert_flops_) * static_cast<double>(tokens) + head_flops_ * static_cast<double>(heads);
    const KdaConfig& kda = config_.kda;
    total += 7.0 * static_cast<double>(config_.count(Mixer::kKda) * kda.heads * kda.head_dim * kda.head_dim * tokens);
    for (const LayerConfig& layer : config_.layers) {
      if (layer.mixer != Mixer::kMla) continue;
      for (std::int64_t t = 0; t < tokens; ++t) {
        const std::int64_t keys = position + t + 1;
        const bool sparse = layer.indexer && keys > config_.indexer.top_k;
        const std::int64_t attended = sparse ? config_.indexer.top_k : keys;
        total +=
            2.0 * static_cast<double>(attended * config_.mla.heads * (2 * config_.mla.kv_lora_rank + config_.mla.rope));
        if (sparse) total += 2.0 * static_cast<double>(keys * config_.indexer.heads * config_.indexer.head_dim);
      }
    }
    return total;
  }

  // One decode step of `batch` sequences at `depth`; experts by their expected number of distinct ones under even
  // routing.
  double bytes(std::int64_t depth, std::int64_t batch) const {
    double total = trunk_bytes_;
    if (config_.moe.experts > 0) {
      const auto experts = static_cast<double>(config_.moe.experts);
      const double missed =
          std::pow(1.0 - static_cast<double>(config_.moe.top_k) / experts, static_cast<double>(batch));
      total += expert_bytes_ * static_cast<double>(moe_layers_) * experts * (1.0 - missed);
    }
    double sequence = 8.0 * static_cast<double>(config_.count(Mixer::kKda) * config_.kda.heads * config_.kda.head_dim *
                                                config_.kda.head_dim);
    for (const LayerConfig& layer : config_.layers) {
      if (layer.mixer != Mixer::kMla) continue;
      const bool sparse = layer.indexer && depth > config_.indexer.top_k;
      sequence += 2.0 * static_cast<double>((sparse ? config_.indexer.top_k : depth) * config_.mla.latent_row());
      if (sparse) sequence += 2.0 * static_cast<double>(depth * config_.indexer.head_dim);
    }
    return total + sequence * static_cast<double>(batch);
  }

 private:
  static double bytes_of(const Matrix& m) {
    return static_cast<double>(m.rows * m.row_bytes) +
           (m.scales == nullptr ? 0.0 : static_cast<double>(m.rows * m.scale_row_bytes));
  }
  void add(const Matrix& m) {
    trunk_bytes_ += bytes_of(m);
    trunk_flops_ += 2.0 * static_cast<double>(m.rows * m.cols);
  }
  static std::vector<const Matrix*> matrices_of(const LayerWeights& layer) {
    const KdaWeights& kda = layer.kda;
    const MlaWeights& mla = layer.mla;
    const MoeWeights& moe = layer.moe;
    std::vector<const Matrix*> all = {&kda.q,
                                      &kda.k,
                                      &kda.v,
                                      &kda.f_a,
                                      &kda.f_b,
                                      &kda.b,
                                      &kda.g,
                                      &kda.g_a,
                                      &kda.g_b,
                                      &kda.o,
                                      &mla.q,
                                      &mla.q_a,
                                      &mla.q_b,
                                      &mla.kv_a,
                                      &mla.kv_b,
                                      &mla.g,
                                      &mla.o,
                                      &mla.indexer.q,
                                      &mla.indexer.k,
                                      &mla.indexer.weights,
                                      &moe.router,
                                      &moe.latent_down,
                                      &moe.latent_up,
                                      &moe.shared.gate,
                                      &moe.shared.up,
                                      &moe.shared.down,
                                      &layer.dense.gate,
                                      &layer.dense.up,
                                      &layer.dense.down};
    std::erase_if(all, [](const Matrix* m) { return m->empty(); });
    return all;
  }

  const ModelConfig& config_;
  double trunk_bytes_ = 0;
  double trunk_flops_ = 0;
  double head_flops_ = 0;
  double expert_bytes_ = 0;  // of one expert
  double expert_flops_ = 0;  // of all MoE layers and the chosen experts of one token
  std::int64_t moe_layers_ = 0;
};

class ModelBench {
 public:
  ModelBench(const Checkpoint& checkpoint, Model& model, const Kernels& kernels, const Roofline& roofline,
             const BenchOptions& options)
      : model_(model),
        kernels_(kernels),
        roofline_(roofline),
        options_(options),
        cost_(checkpoint.config(), checkpoint.weights()) {}

  std::vector<Figure> run() {
    for (const std::int64_t tokens : options_.prompts) prefill(0, tokens);
    for (const std::int64_t depth : options_.depths) {
      if (depth > 0) prefill(depth, 256);
      decode(depth, 1);
    }
    for (const std::int64_t batch : options_.batches) {
      if (batch > 1) decode(0, batch);
    }
    return std::move(figures_);
  }

 private:
  void report(const std::string& name, Measured time, double bytes, double flops, double tokens) {
    Figure figure{
        .group = "model", .name = name, .threads = roofline_.threads, .time = time, .bytes = bytes, .flops = flops};
    figure.per_second = tokens / time.seconds;
    figure.unit = "tok/s";
    set_share(figure, roofline_, kernels_.isa);
    figures_.push_back(std::move(figure));
    options_.on_figure(figures_.back());
  }

  // Pseudo-random ids: routing spreads over the experts as text does.
  std::int32_t id(std::int64_t i) const {
    const auto mixed = static_cast<std::uint64_t>(i + 1) * 0x9E3779B97F4A7C15ULL;
    return static_cast<std::int32_t>((mixed >> 33) % static_cast<std::uint64_t>(model_.config().vocab - 256));
  }
  std::vector<std::int32_t> ids(std::int64_t first, std::int64_t count) const {
    std::vector<std::int32_t> out;
    for (std::int64_t i = 0; i < count; ++i) out.push_back(id(first + i));
    return out;
  }

  // A sequence whose caches say that `depth` tokens went before. The rows are small bf16 numbers.
  std::unique_ptr<SequenceStorage> at_depth(std::int64_t depth) const {
    auto sequence = std::make_unique<SequenceStorage>(model_.state_layout());
    if (depth == 0) return sequence;
    const std::vector<std::int32_t> none(static_cast<std::size_t>(depth));
    static_cast<void>(sequence->next(none, WantLogits::kNone));
    std::uint64_t seed = 1;
    for (std::byte* page : sequence->pages()) {
      auto* words = reinterpret_cast<std::uint16_t*>(page);
      for (std::int64_t i = 0; i < model_.state_layout().page_bytes / 2; ++i) {
        seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
        words[i] = static_cast<std::uint16_t>((seed >> 63 << 15) | (0x3D00U + ((seed >> 40) & 0x1FFU)));
      }
    }
    sequence->advance(depth);
    return sequence;
  }

  void prefill(std::int64_t depth, std::int64_t tokens) {
    const std::vector<std::int32_t> prompt = ids(0, tokens);
    const auto start = at_depth(depth);
    const int repeats = tokens > 4096 ? 1 : 2;
    Measured best;
    for (int i = 0; i < repeats; ++i) {
      // Positions are rewound by copying the fixed-size part; rows of pages are simply written again.
      SequenceStorage* sequence = start.get();
      std::unique_ptr<SequenceStorage> fresh;
      if (i > 0) {
        fresh = at_depth(depth);
        sequence = fresh.get();
      }
      const Measured one = measure_once(roofline_.threads, [&] {
        for (std::int64_t done = 0; done < tokens; done += options_.chunk) {
          const std::int64_t count = std::min(options_.chunk, tokens - done);
          const std::span<const std::int32_t> part =
              std::span(prompt).subspan(static_cast<std::size_t>(done), static_cast<std::size_t>(count));
          const Segment segment = sequence->next(part, done + count == tokens ? WantLogits::kLast : WantLogits::kNone);
          model_.forward(std::span(&segment, 1));
          sequence->advance(count);
        }
      });
      if (best.runs == 0 || one.seconds < best.seconds) best.seconds = one.seconds;
      best.median = one.seconds;
      ++best.runs;
    }
    report(fmt::format("prefill of {} at depth {}", tokens, depth), best, 0, cost_.flops(depth, tokens, 1),
           static_cast<double>(tokens));
  }

  void decode(std::int64_t depth, std::int64_t batch) {
    std::vector<std::unique_ptr<SequenceStorage>> sequences;
    for (std::int64_t i = 0; i < batch; ++i) sequences.push_back(at_depth(depth));
    std::int64_t step = 0;
    const Measured time = measure(roofline_.threads, options_.model_budget, [&] {
      const std::vector<std::int32_t> tokens = ids(step++ * batch, batch);
      std::vector<Segment> segments;
      for (std::size_t i = 0; i < sequences.size(); ++i) {
        segments.push_back(sequences[i]->next(std::span(tokens).subspan(i, 1), WantLogits::kLast));
      }
      model_.forward(segments);
      for (const auto& sequence : sequences) sequence->advance(1);
    });
    report(fmt::format("decode at depth {}, batch {}", depth, batch), time, cost_.bytes(depth, batch),
           static_cast<double>(batch) * cost_.flops(depth, 1, 1), static_cast<double>(batch));
  }

  Model& model_;
  const Kernels& kernels_;
  const Roofline& roofline_;
  const BenchOptions& options_;
  Cost cost_;
  std::vector<Figure> figures_;
};

}  // namespace

Result<std::vector<Figure>> bench_model(const std::string& directory, const Kernels& kernels, const Roofline& roofline,
                                        const BenchOptions& options) {
  ThreadPool pool(roofline.threads);
  // From the folder to the logits of one token, against reading all bytes of the checkpoint once.
  Figure load;
  load.group = "model";
  load.name = "folder to first token";
  load.threads = roofline.threads;
  const auto start = std::chrono::steady_clock::now();
  PERIGEE_ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> checkpoint, Checkpoint::open(directory));
  PERIGEE_ASSIGN_OR_RETURN(const std::unique_ptr<Model> model,
                           Model::create(*checkpoint, kernels, pool, Precision::kBf16));
  SequenceStorage sequence(model->state_layout());
  const std::int32_t token = 1;
  const Segment segment = sequence.next({&token, 1}, WantLogits::kLast);
  model->forward({&segment, 1});
  load.time.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  load.time.median = load.time.seconds;
  load.time.runs = 1;
  std::error_code ignored;
  for (const auto& file : std::filesystem::directory_iterator(directory, ignored)) {
    if (file.path().extension() == ".safetensors") load.bytes += static_cast<double>(file.file_size(ignored));
  }
  set_share(load, roofline, kernels.isa);
  options.on_figure(load);
  std::vector<Figure> figures = ModelBench(*checkpoint, *model, kernels, roofline, options).run();
  figures.insert(figures.begin(), std::move(load));
  return figures;
}

}  // namespace perigee::cli
