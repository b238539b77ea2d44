// Where the rows of a paged cache lie.
#pragma once

#include "kernels/kernels.h"

namespace perigee::PERIGEE_PATH {
namespace {

inline std::int64_t element_bytes(const PagedRows& keys) {
  return keys.format == KeyFormat::kF32 ? 4 : 2;
}

inline const std::byte* key_row(const PagedRows& keys, std::int64_t position) {
  return keys.pages.data()[position / kPageTokens] + keys.offset +
         position % kPageTokens * keys.row * element_bytes(keys);
}

}  // namespace
}  // namespace perigee::PERIGEE_PATH
