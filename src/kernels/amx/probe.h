#pragma once

#include <cstdint>

namespace perigee::amx {

// The kernel saves tile registers only for a process that asked for it; asks once for the whole process. Needs a CPU
// with AMX.
bool tiles_permitted();

// One round is four tile products of 16 x 16 x 32 bf16, or 16 x 16 x 64 int8.
void burn_bf16(std::int64_t rounds);
void burn_int8(std::int64_t rounds);

}  // namespace perigee::amx
