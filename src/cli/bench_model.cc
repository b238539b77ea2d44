// Whole-model measurements: prefill, decode at depths, batches. A depth is reached by filling the caches with generated
// rows, since timing does not depend on what the rows say.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <memory>

#include "checkpoint/weights.h"
#include "cli/bench.h"
#include "cli/model_source.h"
#include "model/model.h"
#include "model/sequence_storage.h"
#include "model/step_cost.h"

namespace perigee::cli {
namespace {

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
    for (const std::int64_t tokens : options_.prompts) {
      if (tokens > 0) prefill(0, tokens);  // an empty list parses as 0
    }
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

  std::unique_ptr<SequenceStorage> at_depth(std::int64_t depth) const {
    auto sequence = std::make_unique<SequenceStorage>(model_.state_layout());
    sequence->generate(depth);
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
  StepCost cost_;
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
  PERIGEE_ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> checkpoint,
                           open_checkpoint(directory, options.weights, false, false));
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
