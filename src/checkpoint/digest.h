// The model digest of cache keys (spec cache.md 1.4): config, the name, type and shape of every tensor, and its bytes;
// of large checkpoints the bytes at fixed places. The same weights give the same digest however they are sharded.
#pragma once

#include <string>
#include <string_view>

#include "checkpoint/tensor.h"

namespace perigee {

// 64 hexadecimal digits.
std::string checkpoint_digest(std::string_view config_text, const TensorTable& tensors);

}  // namespace perigee
