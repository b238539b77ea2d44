// `perigee eval DIR --text FILE`: the perplexity of a text, and how far settings that change the numbers (--weights
// int8,
// --path f32) are from the plain ones: the Kullback-Leibler divergence of each next-token distribution.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/json.h"
#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/model_source.h"
#include "kernels/kernels.h"
#include "model/model.h"
#include "model/sequence_storage.h"

namespace perigee::cli {
namespace {

constexpr std::size_t kMaxTextBytes = std::size_t{64} << 20;
constexpr std::int64_t kStepTokens = 64;  // whose logits are held at once

struct EvalArguments {
  ModelFlags model;
  std::string text;
  std::int64_t tokens = 4096;
  std::int64_t window = 1024;
  bool json = false;
};

// A model under one setting.
struct Setting {
  std::string name;
  std::shared_ptr<const Checkpoint> checkpoint;  // settings of the same weights share it
  std::unique_ptr<Model> model;
};

Result<Setting> make_setting(std::shared_ptr<const Checkpoint> checkpoint, const Kernels& kernels, Precision precision,
                             ThreadPool& pool) {
  Setting setting;
  setting.checkpoint = std::move(checkpoint);
  PERIGEE_ASSIGN_OR_RETURN(setting.model, Model::create(*setting.checkpoint, kernels, pool, precision));
  setting.name = setting.model->numerics_id();
  return setting;
}

// What one predicted token says. Natural logarithms.
struct Prediction {
  double loss = 0;            // -log p(token), setting under test
  double reference_loss = 0;  // the same under the reference
  double divergence = 0;      // sum p_ref (log p_ref - log p)
  bool same_best = true;
};

double log_sum_exp(std::span<const float> logits, double largest) {
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  return largest + std::log(sum);
}

Prediction compare(std::span<const float> logits, std::span<const float> reference, std::int32_t next) {
  Prediction prediction;
  const auto best = std::ranges::max_element(logits);
  const double total = log_sum_exp(logits, static_cast<double>(*best));
  const auto at = static_cast<std::size_t>(next);
  prediction.loss = total - static_cast<double>(logits[at]);
  if (reference.empty()) return prediction;
  const auto reference_best = std::ranges::max_element(reference);
  const double reference_total = log_sum_exp(reference, static_cast<double>(*reference_best));
  prediction.reference_loss = reference_total - static_cast<double>(reference[at]);
  prediction.same_best = best - logits.begin() == reference_best - reference.begin();
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double log_reference = static_cast<double>(reference[i]) - reference_total;
    const double log_tested = static_cast<double>(logits[i]) - total;
    prediction.divergence += std::exp(log_reference) * (log_reference - log_tested);
  }
  return prediction;
}

// Windows of the text, each a sequence of its own; every token but the first of a window is predicted.
std::vector<Prediction> predict(const Setting& tested, const Setting* reference, std::span<const std::int32_t> tokens,
                                std::int64_t window, ThreadPool& pool) {
  std::vector<Prediction> predictions;
  const auto vocab = static_cast<std::size_t>(tested.model->config().vocab);
  const auto size = static_cast<std::size_t>(window);
  for (std::size_t begin = 0; begin < tokens.size(); begin += size) {
    const auto part = tokens.subspan(begin, std::min(size, tokens.size() - begin));
    SequenceStorage sequence(tested.model->state_layout());
    std::unique_ptr<SequenceStorage> reference_sequence;
    if (reference != nullptr) {
      reference_sequence = std::make_unique<SequenceStorage>(reference->model->state_layout());
    }
    for (std::size_t done = 0; done + 1 < part.size();) {
      const std::size_t count = std::min<std::size_t>(kStepTokens, part.size() - 1 - done);
      const auto step = [&](Model& model, SequenceStorage& state) {
        const Segment segment = state.next(part.subspan(done, count), WantLogits::kAll);
        const auto logits = model.forward({&segment, 1}).logits;
        state.advance(static_cast<std::int64_t>(count));
        return logits;
      };
      const std::span<const float> logits = step(*tested.model, sequence);
      const std::span<const float> expected =
          reference == nullptr ? std::span<const float>() : step(*reference->model, *reference_sequence);
      const std::size_t first = predictions.size();
      predictions.resize(first + count);
      pool.run(static_cast<std::int64_t>(count), [&](std::int64_t index, int /*thread*/) {
        const auto i = static_cast<std::size_t>(index);
        const auto row = [&](std::span<const float> all) { return all.empty() ? all : all.subspan(i * vocab, vocab); };
        predictions[first + i] = compare(row(logits), row(expected), part[done + i + 1]);
      });
      done += count;
    }
  }
  return predictions;
}

Json report(const Setting& tested, const Setting* reference, const std::vector<Prediction>& predictions) {
  const auto count = static_cast<double>(predictions.size());
  double loss = 0;
  double reference_loss = 0;
  double divergence = 0;
  double same = 0;
  std::vector<double> divergences;
  for (const Prediction& prediction : predictions) {
    loss += prediction.loss;
    reference_loss += prediction.reference_loss;
    divergence += prediction.divergence;
    same += prediction.same_best ? 1 : 0;
    divergences.push_back(prediction.divergence);
  }
  Json json = {{"numerics", tested.name},
               {"tokens", predictions.size()},
               {"perplexity", std::exp(loss / count)},
               {"loss", loss / count}};
  if (reference == nullptr) return json;
  std::ranges::sort(divergences);
  const auto quantile = [&](double q) { return divergences[static_cast<std::size_t>(q * (count - 1))]; };
  json["reference"] = {{"numerics", reference->name},
                       {"perplexity", std::exp(reference_loss / count)},
                       {"loss", reference_loss / count}};
  json["kl"] = {
      {"mean", divergence / count}, {"median", quantile(0.5)}, {"p99", quantile(0.99)}, {"max", divergences.back()}};
  json["same_best"] = same / count;
  return json;
}

void print(const Json& json) {
  fmt::print("{}: perplexity {:.4f} over {} tokens\n", json["numerics"].get<std::string>(),
             json["perplexity"].get<double>(), json["tokens"].get<std::int64_t>());
  if (!json.contains("reference")) return;
  const Json& reference = json["reference"];
  const Json& kl = json["kl"];
  fmt::print("{}: perplexity {:.4f}\n", reference["numerics"].get<std::string>(),
             reference["perplexity"].get<double>());
  fmt::print(
      "KL from it: mean {:.3g}, median {:.3g}, 99 % below {:.3g}, largest {:.3g} nats; same best token {:.2f} %\n",
      kl["mean"].get<double>(), kl["median"].get<double>(), kl["p99"].get<double>(), kl["max"].get<double>(),
      100 * json["same_best"].get<double>());
}

Result<Json> evaluate(const EvalArguments& arguments) {
  PERIGEE_ASSIGN_OR_RETURN(const std::string text, read_file(arguments.text, kMaxTextBytes));
  const ModelFlags& flags = arguments.model;
  ThreadPool pool(flags.threads);
  PERIGEE_ASSIGN_OR_RETURN(const Kernels* kernels, default_kernels(flags.isa));
  const auto open = [&](const std::string& weights) {
    return open_checkpoint(flags.directory, weights, false, !arguments.json);
  };
  PERIGEE_ASSIGN_OR_RETURN(std::shared_ptr<const Checkpoint> checkpoint, open(flags.weights));
  PERIGEE_ASSIGN_OR_RETURN(const Setting tested, make_setting(checkpoint, *kernels, flags.precision(), pool));
  const ModelConfig& config = tested.checkpoint->config();
  PERIGEE_ASSIGN_OR_RETURN(const Tokenizer tokenizer,
                           Tokenizer::for_checkpoint(tested.checkpoint->directory(), config.vocab,
                                                     dialect_of_family(config.family).specials));
  std::vector<TokenId> tokens = tokenizer.encode(text);
  if (tokens.size() < 2)
    return invalid_argument("{}: expected at least two tokens of text, found {}", arguments.text, tokens.size());
  tokens.resize(std::min(tokens.size(), static_cast<std::size_t>(arguments.tokens)));
  Setting reference;
  const bool compared = flags.weights != "stored" || flags.path != "bf16";
  if (compared) {
    if (flags.weights != "stored") {
      PERIGEE_ASSIGN_OR_RETURN(checkpoint, open("stored"));
    }
    PERIGEE_ASSIGN_OR_RETURN(reference, make_setting(checkpoint, *kernels, Precision::kBf16, pool));
  }
  const Setting* against = compared ? &reference : nullptr;
  return report(tested, against, predict(tested, against, tokens, arguments.window, pool));
}

}  // namespace

void register_eval(const CommandGroups& groups, int& exit_code) {
  auto arguments = std::make_shared<EvalArguments>();
  CLI::App* command = groups.root->add_subcommand("eval", "Perplexity of a text, and what settings change");
  add_model_flags(*command, arguments->model);
  command->add_option("--text", arguments->text, "A text file")->required();
  command->add_option("--tokens", arguments->tokens, "Most tokens of the text")
      ->check(CLI::Range(2, 1 << 30))
      ->capture_default_str();
  command->add_option("--window", arguments->window, "Tokens of one sequence")
      ->check(CLI::Range(2, 1 << 30))
      ->capture_default_str();
  command->add_flag("--json", arguments->json, "Machine-readable output");
  command->callback([arguments, &exit_code] {
    const Result<Json> json = evaluate(*arguments);
    if (!json.ok()) {
      exit_code = command_failed("eval", json.status());
      return;
    }
    if (arguments->json) {
      fmt::print("{}\n", json->dump(1));
    } else {
      print(*json);
    }
  });
}

}  // namespace perigee::cli
