#pragma once

#include <cstdint>

namespace perigee::avx2 {

// One round is 12 FMAs of 8 lanes.
void burn_fma(std::int64_t rounds);

}  // namespace perigee::avx2
