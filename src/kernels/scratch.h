// Memory of the calling thread for use inside one operator call, 64-byte aligned, kept for the next call, so that a
// warm step allocates nothing. A slot has one user at a time.
#pragma once

#include <cstdint>

namespace perigee {

enum class Scratch : std::uint8_t { kActivations, kWeights, kKeys, kScores, kQueries };

// What a thread that has run every operator keeps: each slot is one huge page, or more for the widest models.
inline constexpr std::int64_t kScratchSlots = 5;
inline constexpr std::int64_t kScratchSlotBytes = std::int64_t{2} << 20;

// The contents are whatever the last use left.
float* scratch(Scratch slot, std::int64_t floats);

}  // namespace perigee
