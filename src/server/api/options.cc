#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "server/api/parse_parts.h"

namespace perigee::api {
namespace {

constexpr std::int64_t kMaxInt = std::numeric_limits<std::int64_t>::max();
constexpr std::size_t kMaxStops = 64;
constexpr std::size_t kMaxStopBytes = 1024;
constexpr std::size_t kMaxStopsStrict = 5;
constexpr std::size_t kMaxStopBytesStrict = 32;

void parse_logit_bias(FieldReader& fields, const ApiConfig& config, GenerationOptions& out) {
  const Json* bias = fields.object("logit_bias");
  if (bias == nullptr) return;
  for (const auto& [key, value] : bias->items()) {
    TokenId id = -1;
    const auto [end, code] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (code != std::errc() || end != key.data() + key.size() || id < 0 || id >= config.vocab) {
      return fields.fail(bad_field("logit_bias", "expected token ids below {}, found \"{}\"", config.vocab, key));
    }
    const double weight = value.is_number() ? value.get<double>() : 1e9;
    if (weight < -100 || weight > 100) {
      return fields.fail(bad_field(fmt::format("logit_bias.{}", key), "expected a number from -100 to 100"));
    }
    out.sampling.logit_bias[id] = static_cast<float>(weight);
  }
}

void parse_stop_ids(FieldReader& fields, const ApiConfig& config, GenerationOptions& out) {
  const Json* ids = fields.array("stop_token_ids");
  if (ids == nullptr) return;
  for (const Json& id : *ids) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= static_cast<std::uint64_t>(config.vocab)) {
      return fields.fail(bad_field("stop_token_ids", "expected token ids below {}", config.vocab));
    }
    out.stop_token_ids.push_back(id.get<TokenId>());
  }
}

// The hosted API has these fixed.
void require_default(FieldReader& fields, std::string_view name, double value, double expected) {
  if (std::abs(value - expected) > 1e-6) {
    fields.fail(bad_field(std::string(name), "this model only takes {}, found {}", expected, value));
  }
}

}  // namespace

void parse_model(FieldReader& fields, const ApiConfig& config, bool optional, std::string& model) {
  if (!fields.string("model", model)) {
    if (!fields.failed() && !optional) fields.fail(bad_field("model", "is missing"));
    if (!config.models.empty()) model = config.models.front();
    return;
  }
  if (std::find(config.models.begin(), config.models.end(), model) == config.models.end()) {
    fields.fail(model_not_found(model));
  }
}

void parse_stop(FieldReader& fields, std::string_view name, const ApiConfig& config, GenerationOptions& out) {
  const Json* stop = fields.failed() ? nullptr : fields.find(name);
  if (stop == nullptr) return;
  const std::string path = fields.path(name);
  if (stop->is_string()) {
    out.stop = {stop->get<std::string>()};
  } else if (stop->is_array()) {
    for (const Json& item : *stop) {
      if (!item.is_string()) return fields.fail(bad_field(path, "expected strings, found {}", json_type_name(item)));
      out.stop.push_back(item.get<std::string>());
    }
  } else {
    return fields.fail(bad_field(path, "expected a string or an array of strings, found {}", json_type_name(*stop)));
  }
  const bool strict = config.mode == ApiMode::kStrict;
  const std::size_t count = strict ? kMaxStopsStrict : kMaxStops;
  const std::size_t bytes = strict ? kMaxStopBytesStrict : kMaxStopBytes;
  if (out.stop.size() > count) {
    return fields.fail(bad_field(path, "expected at most {} strings, found {}", count, out.stop.size()));
  }
  for (const std::string& text : out.stop) {
    if (text.empty()) return fields.fail(bad_field(path, "a stop string is empty"));
    if (text.size() > bytes) {
      return fields.fail(bad_field(path, "expected strings of at most {} bytes, found {}", bytes, text.size()));
    }
  }
}

void parse_stream(FieldReader& fields, GenerationOptions& out) {
  fields.boolean("stream", out.stream);
  const Json* options = fields.object("stream_options");
  if (options == nullptr) return;
  if (!out.stream) return fields.fail(bad_field("stream_options", "is only allowed with stream: true"));
  std::optional<ApiError> error;
  FieldReader inner(*options, "stream_options", error);
  inner.boolean("include_usage", out.include_usage);
  inner.boolean("continuous_usage_stats", out.continuous_usage);
  if (error) fields.fail(*error);
}

void parse_sampling(FieldReader& fields, const ApiConfig& config, GenerationOptions& out) {
  SamplingParams& sampling = out.sampling;
  const bool strict = config.mode == ApiMode::kStrict;
  sampling.temperature = config.default_temperature;
  sampling.top_p = config.default_top_p;
  fields.number("temperature", 0, strict ? 1 : 2, sampling.temperature);
  fields.number("top_p", 0, 1, sampling.top_p, /*open_low=*/true);
  fields.number("presence_penalty", -2, 2, sampling.presence_penalty);
  fields.number("frequency_penalty", -2, 2, sampling.frequency_penalty);
  fields.integer("n", 1, static_cast<std::int64_t>(config.max_n), out.n);
  if (strict) {
    require_default(fields, "top_p", sampling.top_p, config.default_top_p);
    require_default(fields, "presence_penalty", sampling.presence_penalty, 0);
    require_default(fields, "frequency_penalty", sampling.frequency_penalty, 0);
    require_default(fields, "n", out.n, 1);
  }
  fields.integer("top_k", -1, kMaxInt, sampling.top_k);
  if (sampling.top_k < 0) sampling.top_k = 0;
  fields.number("min_p", 0, 1, sampling.min_p);
  fields.number("repetition_penalty", 0, 1e6, sampling.repetition_penalty, /*open_low=*/true);
  fields.integer("min_tokens", 0, kMaxInt, sampling.min_tokens);
  std::int64_t seed = 0;
  if (fields.integer("seed", std::numeric_limits<std::int64_t>::min(), kMaxInt, seed)) {
    out.has_seed = true;
    sampling.seed = static_cast<std::uint64_t>(seed);
  }
  parse_logit_bias(fields, config, out);
  parse_stop_ids(fields, config, out);
  fields.boolean("ignore_eos", out.ignore_eos);
  fields.boolean("include_stop_str_in_output", out.include_stop_str_in_output);
  if (const Json* words = fields.array("bad_words"); words != nullptr && !words->empty()) {
    fields.fail(bad_field("bad_words", "is not supported; use logit_bias"));
  }
  fields.boolean("return_token_ids", out.return_token_ids);
  fields.string("prompt_cache_key", out.prompt_cache_key);
  fields.string("cache_salt", out.cache_salt);
  fields.string("user", out.user);
  fields.string("request_id", out.request_id);
  fields.integer("priority", std::numeric_limits<std::int32_t>::min(), std::numeric_limits<std::int32_t>::max(),
                 out.priority);
}

void apply_effort(const std::string& value, const std::string& path, bool lenient, ThinkingControl& out,
                  MaybeError& error) {
  auto effort = parse_effort(value, path, lenient);
  if (!effort.ok()) {
    error = from_field_status(effort.status());
  } else if (*effort == "none") {
    out.thinking = false;
  } else {
    out.effort = std::move(*effort);
  }
}

}  // namespace perigee::api
