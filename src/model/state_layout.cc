#include "model/state_layout.h"

namespace perigee {

StateLayout::StateLayout(const ModelConfig& config, KeyFormat format) : key_format(format) {
  const std::int64_t element = format == KeyFormat::kBf16 ? 2 : 4;
  kda.resize(config.layers.size());
  mla.resize(config.layers.size());
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    if (config.layers[i].mixer == Mixer::kKda) {
      kda[i].state = recurrent_floats;
      recurrent_floats += config.kda.width() * config.kda.head_dim;
      kda[i].convolution = recurrent_floats;
      recurrent_floats += (config.kda.conv_kernel - 1) * 3 * config.kda.width();
    } else {
      mla[i].latent = page_bytes;
      page_bytes += kPageTokens * config.mla.latent_row() * element;
      if (config.layers[i].indexer) {
        mla[i].index = page_bytes;
        page_bytes += kPageTokens * config.indexer.head_dim * element;
      }
      page_bytes = (page_bytes + 63) / 64 * 64;  // every layer's part starts on a cache line
    }
  }
}

}  // namespace perigee
