#include "kernels/amx/probe.h"

#include <sys/syscall.h>
#include <unistd.h>

#include "kernels/amx/tiles.h"

namespace perigee::amx {
namespace {

constexpr TileShape kWholeTiles = {{kTile, kTile}, {kTile, kTile}};

void clear_tiles() {
  configure(kWholeTiles);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  _tile_zero(6);
  _tile_zero(7);
}

}  // namespace

bool tiles_permitted() {
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM of asm/prctl.h
  constexpr long kTileData = 18;               // state component XTILEDATA
  static const bool kPermitted = ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return kPermitted;
}

void burn_bf16(std::int64_t rounds) {
  clear_tiles();
  for (std::int64_t r = 0; r < rounds; ++r) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_release();
}

void burn_int8(std::int64_t rounds) {
  clear_tiles();
  for (std::int64_t r = 0; r < rounds; ++r) {
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 4, 7);
    _tile_dpbssd(2, 5, 6);
    _tile_dpbssd(3, 5, 7);
  }
  _tile_release();
}

}  // namespace perigee::amx
