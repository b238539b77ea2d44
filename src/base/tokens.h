// The units that every layer above base counts in.
#pragma once

#include <cstdint>

namespace perigee {

using TokenId = std::int32_t;

// Tokens of one page of the key caches (latent rows and index keys).
inline constexpr std::int64_t kPageTokens = 64;

}  // namespace perigee
