// AMX tiles, and the AVX-512 instructions that only this folder's sources use, as loops; the rest comes from
// avx512bf16/emulated and avx512/emulated, which stand next in the search order. Arithmetic of a tile product as
// Intel's manual gives it: even and odd columns in chains of their own, subnormals as zero.
#pragma once
#pragma GCC system_header  // include_next is an extension

#include_next <immintrin.h>

#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace perigee::emulated {

struct Tile {
  int rows = 0;
  int row_bytes = 0;
  std::uint8_t bytes[16][64] = {};
};
inline thread_local Tile tiles[8];

inline void tile_loadconfig(const void* config) {
  const auto* bytes = static_cast<const std::uint8_t*>(config);
  for (int i = 0; i < 8; ++i) {
    tiles[i] = Tile{};
    std::uint16_t row_bytes;
    std::memcpy(&row_bytes, bytes + 16 + 2 * i, 2);
    tiles[i].row_bytes = row_bytes;
    tiles[i].rows = bytes[48 + i];
  }
}
inline void tile_release() {
  for (Tile& tile : tiles) tile = Tile{};
}
inline void tile_zero(int t) {
  std::memset(tiles[t].bytes, 0, sizeof tiles[t].bytes);
}
inline void tile_load(int t, const void* base, std::int64_t stride) {
  tile_zero(t);
  for (int r = 0; r < tiles[t].rows; ++r) {
    std::memcpy(tiles[t].bytes[r], static_cast<const std::uint8_t*>(base) + r * stride,
                static_cast<std::size_t>(tiles[t].row_bytes));
  }
}
inline void tile_store(int t, void* base, std::int64_t stride) {
  for (int r = 0; r < tiles[t].rows; ++r) {
    std::memcpy(static_cast<std::uint8_t*>(base) + r * stride, tiles[t].bytes[r],
                static_cast<std::size_t>(tiles[t].row_bytes));
  }
}

inline float tile_bf16(const Tile& tile, int row, int column) {
  std::uint16_t word;
  std::memcpy(&word, tile.bytes[row] + 2 * column, 2);
  return flushed(bits<float>(static_cast<std::uint32_t>(word) << 16));
}
inline void tile_dpbf16(int to, int left, int right) {
  const Tile& a = tiles[left];
  const Tile& b = tiles[right];
  Tile& c = tiles[to];
  // Shapes that do not fit raise an invalid opcode on the machine.
  if (a.rows != c.rows || b.row_bytes != c.row_bytes || b.rows * 4 != a.row_bytes || a.rows == 0 || b.row_bytes == 0) {
    __builtin_trap();
  }
  for (int m = 0; m < c.rows; ++m) {
    for (int n = 0; n < c.row_bytes / 4; ++n) {
      float even = 0;
      float odd = 0;
      for (int k = 0; k < b.rows; ++k) {
        even = flushed(std::fma(tile_bf16(a, m, 2 * k), tile_bf16(b, k, 2 * n), even));
        odd = flushed(std::fma(tile_bf16(a, m, 2 * k + 1), tile_bf16(b, k, 2 * n + 1), odd));
      }
      float sum;
      std::memcpy(&sum, c.bytes[m] + 4 * n, 4);
      sum = flushed(flushed(sum) + flushed(even + odd));
      std::memcpy(c.bytes[m] + 4 * n, &sum, 4);
    }
  }
}

}  // namespace perigee::emulated

#undef _tile_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_dpbf16ps
#define _tile_loadconfig perigee::emulated::tile_loadconfig
#define _tile_release perigee::emulated::tile_release
#define _tile_zero perigee::emulated::tile_zero
#define _tile_loadd perigee::emulated::tile_load
#define _tile_stored perigee::emulated::tile_store
#define _tile_dpbf16ps perigee::emulated::tile_dpbf16
