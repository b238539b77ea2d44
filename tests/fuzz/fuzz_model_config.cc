// libFuzzer: any bytes as config.json. What is accepted must have sizes that the rest may compute with.
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "checkpoint/memory_plan.h"
#include "checkpoint/model_config.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto json = perigee::parse_json(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!json.ok()) return 0;
  const auto config = perigee::parse_model_config(*json, &*json);
  if (!config.ok()) return config.status().message().empty() ? std::abort(), 0 : 0;
  if (config->layers.empty() || config->hidden < 1 || config->vocab < 257) std::abort();
  if (perigee::sequence_bytes(*config).total(config->max_positions) < 0) std::abort();
  if (config->moe.top_k > config->moe.experts) std::abort();
  for (const std::int64_t token : config->stop_tokens) {
    if (token < 0 || token >= config->vocab) std::abort();
  }
  // The inventory of a large model takes long; its entries do not depend on the count.
  if (std::ssize(config->layers) * (config->moe.experts + 1) > 4096) return 0;
  if (perigee::sum(perigee::planned_weight_bytes(*config)).bytes <= 0) std::abort();
  return 0;
}
