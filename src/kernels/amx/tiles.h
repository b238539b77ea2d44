// Tile registers: their shapes, and the order that the compiler must keep. The tile intrinsics of g++ 12 do not say
// what memory they read, so it drops or moves stores that only a tile instruction reads; a compiler barrier stands
// between.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace perigee::amx {

static constexpr std::int64_t kStep = 32;  // columns of K in one tile product
static constexpr std::int64_t kTile = 16;  // rows of a weight tile, tokens of an activation tile
static constexpr std::int64_t kTileBytes = 1024;

// Registers 0..3 hold sums [row tile][token tile], 4 and 5 weights, 6 and 7 activations.
struct TileShape {
  std::int64_t rows[2];    // of the two row tiles; the second may be 0
  std::int64_t tokens[2];  // of the two token tiles; the second may be 0
};
static inline bool operator==(const TileShape& a, const TileShape& b) {
  return a.rows[0] == b.rows[0] && a.rows[1] == b.rows[1] && a.tokens[0] == b.tokens[0] && a.tokens[1] == b.tokens[1];
}

static inline void settle_memory() {
  asm volatile("" ::: "memory");
}

static inline void configure(const TileShape& shape) {
  struct alignas(64) {
    std::uint8_t palette = 1;
    std::uint8_t start_row = 0;
    std::uint8_t reserved[14] = {};
    std::uint16_t row_bytes[16] = {};
    std::uint8_t rows[16] = {};
  } config;
  const auto set = [&config](int tile, std::int64_t rows, std::int64_t row_bytes) {
    if (rows == 0 || row_bytes == 0) return;
    config.rows[tile] = static_cast<std::uint8_t>(rows);
    config.row_bytes[tile] = static_cast<std::uint16_t>(row_bytes);
  };
  for (int r = 0; r < 2; ++r) {
    for (int t = 0; t < 2; ++t) set(2 * r + t, shape.rows[r], 4 * shape.tokens[t]);
    set(4 + r, shape.rows[r], 2 * kStep);
    set(6 + r, kStep / 2, 4 * shape.tokens[r]);
  }
  asm volatile("" : : "r"(&config) : "memory");
  _tile_loadconfig(&config);
}

}  // namespace perigee::amx
