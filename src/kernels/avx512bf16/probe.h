#pragma once

#include <cstdint>

namespace perigee::avx512bf16 {

// One round is twelve products of 16 x 2 bf16.
void burn_dot(std::int64_t rounds);

}  // namespace perigee::avx512bf16
