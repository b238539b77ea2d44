#include "checkpoint/synth_options.h"

#include <nlohmann/json.hpp>

namespace perigee {
namespace {

Status read_scale(const Json& list, SynthOptions& options) {
  if (!list.is_array()) return invalid_argument("options.scale: expected a list");
  for (const Json& item : list) {
    if (!item.is_array() || item.size() != 2 || !item[0].is_string() || !item[1].is_number_integer() ||
        item[1].get<std::int64_t>() < -64 || item[1].get<std::int64_t>() > 64) {
      return invalid_argument("options.scale: expected [name ending, power of two in [-64, 64]], found {}",
                              item.dump());
    }
    options.scale.emplace_back(item[0].get<std::string>(), item[1].get<int>());
  }
  return {};
}

// "F32" or "BF16".
Status read_is_f32(const char* key, const Json& value, bool& is_f32) {
  if (value != "F32" && value != "BF16") {
    return invalid_argument("options.{}: expected \"F32\" or \"BF16\", found {}", key, value.dump());
  }
  is_f32 = value == "F32";
  return {};
}

}  // namespace

Result<SynthOptions> parse_synth_options(const Json& document) {
  if (!document.is_object()) return invalid_argument("synth options: expected an object");
  SynthOptions options;
  for (const auto& [key, value] : document.items()) {
    if (key == "seed" && value.is_number_unsigned()) {
      options.seed = value.get<std::uint64_t>();
    } else if (key != "options" || !value.is_object()) {
      return invalid_argument("synth options: expected \"seed\" (an integer >= 0) and \"options\", found {}", key);
    }
  }
  const auto it = document.find("options");
  if (it == document.end()) return options;
  for (const auto& [key, value] : it->items()) {
    if (key == "kda_small_dtype") {
      bool is_f32 = true;
      PERIGEE_RETURN_IF_ERROR(read_is_f32("kda_small_dtype", value, is_f32));
      options.kda_small_bf16 = !is_f32;
    } else if (key == "indexer_small_dtype") {
      PERIGEE_RETURN_IF_ERROR(read_is_f32("indexer_small_dtype", value, options.indexer_small_f32));
    } else if (key == "alog_rank" && (value == 1 || value == 4)) {
      options.a_log_rank = value.get<std::int64_t>();
    } else if (key == "indexer_k_norm_bias" && value.is_boolean()) {
      options.indexer_norm_bias = value.get<bool>();
    } else if (key == "scale") {
      PERIGEE_RETURN_IF_ERROR(read_scale(value, options));
    } else {
      return invalid_argument("options.{}: not an option, or not a value of it", key);
    }
  }
  return options;
}

}  // namespace perigee
