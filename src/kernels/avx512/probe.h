#pragma once

#include <cstdint>

namespace perigee::avx512 {

// One round is 12 FMAs of 16 lanes.
void burn_fma(std::int64_t rounds);

}  // namespace perigee::avx512
