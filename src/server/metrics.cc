#include "server/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <limits>
#include <vector>

namespace perigee::server {
namespace {

using prometheus::Histogram;
using prometheus::MetricFamily;
using prometheus::MetricType;

const Histogram::BucketBoundaries kLatency = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
                                              1,     2.5,   5,    7.5,  10,   20,   40,   80,  160,  640, 2560};
const Histogram::BucketBoundaries kGap = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15,
                                          0.2,   0.3,    0.4,   0.5,  0.75,  1,    2.5,   5};
const Histogram::BucketBoundaries kLength = {1,    2,    5,     10,    20,    50,     100,    200,    500,    1000,
                                             2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000, 1000000};

prometheus::ClientMetric::Histogram histogram_of(const StepSizes& sizes) {
  prometheus::ClientMetric::Histogram histogram;
  histogram.sample_sum = static_cast<double>(sizes.tokens);
  for (std::size_t i = 0; i < sizes.counts.size(); ++i) {
    histogram.sample_count += static_cast<std::uint64_t>(sizes.counts[i]);
    const double bound = i < StepSizes::kBounds.size() ? static_cast<double>(StepSizes::kBounds[i])
                                                       : std::numeric_limits<double>::infinity();
    histogram.bucket.push_back({histogram.sample_count, bound});
  }
  return histogram;
}

}  // namespace

struct Metrics::Impl {
  Impl(const std::string& model, const MachineLimits& machine) : labels{{"model_name", model}}, limits(machine) {}

  Histogram& histogram(const char* name, const char* help, const Histogram::BucketBoundaries& bounds) {
    return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add(labels, bounds);
  }
  prometheus::Family<prometheus::Counter>& counters(const char* name, const char* help) {
    return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
  }

  prometheus::Labels labels;
  const MachineLimits limits;
  mutable prometheus::Registry registry;
  Histogram& first_token = histogram("vllm:time_to_first_token_seconds", "From arrival to the first token", kLatency);
  Histogram& gap = histogram("vllm:inter_token_latency_seconds", "Between two tokens of one choice", kGap);
  Histogram& e2e = histogram("vllm:e2e_request_latency_seconds", "From arrival to the last token", kLatency);
  Histogram& prefill =
      histogram("vllm:request_prefill_time_seconds", "From the start of a request to its first token", kLatency);
  Histogram& queue = histogram("vllm:request_queue_time_seconds", "From submission to the start", kLatency);
  Histogram& decode = histogram("vllm:request_decode_time_seconds", "From the first to the last token", kLatency);
  Histogram& prompt = histogram("vllm:request_prompt_tokens", "Prompt tokens of a request", kLength);
  Histogram& generated = histogram("vllm:request_generation_tokens", "Sampled tokens of a request", kLength);
  prometheus::Family<prometheus::Counter>& success =
      counters("vllm:request_success_total", "Finished requests by reason");
  prometheus::Family<prometheus::Counter>& lookups =
      counters("perigee_cache_lookups_total", "Prefix cache look-ups by outcome");
  prometheus::Family<prometheus::Counter>& http = counters("perigee_http_requests_total", "HTTP requests");
  prometheus::Family<prometheus::Counter>& left =
      counters("perigee_client_disconnects_total", "Clients that left before their answer was complete");
};

Metrics::Metrics(const std::string& model, const MachineLimits& limits)
    : impl_(std::make_unique<Impl>(model, limits)) {}
Metrics::~Metrics() = default;

void Metrics::inter_token(double seconds) {
  impl_->gap.Observe(seconds);
}

void Metrics::generation(const GenerationRecord& record) {
  prometheus::Labels labels = impl_->labels;
  labels.emplace("finished_reason", record.finish);
  impl_->success.Add(labels).Increment();
  impl_->e2e.Observe(record.seconds);
  impl_->prompt.Observe(static_cast<double>(record.prompt_tokens));
  impl_->generated.Observe(static_cast<double>(record.completion_tokens));
  if (record.prefill_seconds > 0) {
    impl_->first_token.Observe(record.first_token_seconds);
    impl_->queue.Observe(record.queue_seconds);
    impl_->prefill.Observe(record.prefill_seconds);
    impl_->decode.Observe(record.decode_seconds);
  }
  if (!record.cache_reason.empty()) {
    labels = impl_->labels;
    labels.emplace("reason", record.cache_reason);
    impl_->lookups.Add(labels).Increment();
  }
}

void Metrics::http_request(std::string_view route, int status, bool client_left) {
  impl_->http.Add({{"route", std::string(route)}, {"status", std::to_string(status)}}).Increment();
  if (client_left) impl_->left.Add({{"route", std::string(route)}}).Increment();
}

std::string Metrics::text(const EngineStats* engine, const HttpServerStats& http) const {
  std::vector<MetricFamily> families = impl_->registry.Collect();
  const auto add_metric = [&](std::string name, const char* help, MetricType type, prometheus::ClientMetric metric) {
    for (const auto& [key, label] : impl_->labels) metric.label.push_back({key, label});
    MetricFamily family;
    family.name = std::move(name);
    family.help = help;
    family.type = type;
    family.metric.push_back(std::move(metric));
    families.push_back(std::move(family));
  };
  const auto add = [&](std::string name, const char* help, MetricType type, double value) {
    prometheus::ClientMetric metric;
    (type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
    add_metric(std::move(name), help, type, std::move(metric));
  };
  constexpr auto kGauge = MetricType::Gauge;
  constexpr auto kCounter = MetricType::Counter;
  add("perigee_http_connections", "Open connections", kGauge, static_cast<double>(http.connections));
  add("perigee_http_active_requests", "Requests being answered", kGauge, static_cast<double>(http.active_requests));
  add("perigee_http_accepted_total", "Connections accepted", kCounter, static_cast<double>(http.accepted));
  if (engine != nullptr) {
    const auto prompt = static_cast<double>(engine->prompt_tokens);
    const auto cached = static_cast<double>(engine->cached_tokens);
    add("vllm:num_requests_running", "Requests in the batch", kGauge, static_cast<double>(engine->running));
    add("vllm:num_requests_waiting", "Requests in the queue", kGauge, static_cast<double>(engine->waiting));
    add("vllm:kv_cache_usage_perc", "Share of the page budget in use", kGauge, engine->kv_usage);
    add("vllm:prompt_tokens_total", "Prompt tokens, computed or restored", kCounter, prompt + cached);
    add("vllm:generation_tokens_total", "Sampled tokens", kCounter, static_cast<double>(engine->generated_tokens));
    add("vllm:prefix_cache_queries_total", "Prompt tokens looked up", kCounter, prompt + cached);
    add("vllm:prefix_cache_hits_total", "Prompt tokens restored", kCounter, cached);
    add("vllm:num_preemptions_total", "Preempted requests", kCounter, static_cast<double>(engine->preemptions));
    prometheus::ClientMetric steps;
    steps.histogram = histogram_of(engine->step_sizes);
    add_metric("vllm:iteration_tokens_total", "Tokens of an engine step", MetricType::Histogram, std::move(steps));
    add("perigee_prompt_tokens_computed_total", "Prompt tokens computed", kCounter, prompt);
    add("perigee_engine_steps_total", "Engine steps", kCounter, static_cast<double>(engine->step_sizes.steps()));
    add("perigee_prefill_seconds_total", "Time in prefill", kCounter, engine->prefill_seconds);
    add("perigee_decode_seconds_total", "Time in decode", kCounter, engine->decode_seconds);
    // Shares of what the machine can do, over all steps since the start: reads bound decoding, arithmetic prefill.
    const auto share = [&](const char* name, const char* help, const char* work, double seconds, double limit) {
      const auto done = engine->extra.find(work);
      if (done != engine->extra.end() && seconds > 0 && limit > 0)
        add(name, help, kGauge, done->second / seconds / limit);
    };
    share("perigee_decode_read_roofline_fraction", "Bytes that decode steps had to read, of what memory can deliver",
          "decode_read_bytes", engine->decode_seconds, impl_->limits.read_bytes);
    share("perigee_prefill_flops_roofline_fraction", "Arithmetic of prefill steps, of what the instructions can do",
          "prefill_flops", engine->prefill_seconds, impl_->limits.flops);
    for (const auto& [name, value] : engine->extra) {
      const bool full = name.starts_with("perigee_") || name.find(':') != std::string::npos;
      add(full ? name : "perigee_" + name, "Reported by the engine", kGauge, value);
    }
  }
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace perigee::server
