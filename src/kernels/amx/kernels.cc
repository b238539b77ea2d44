#include "kernels/amx/slots.h"
#include "kernels/paths.h"

namespace perigee {

const Kernels& amx_kernels() {
  static const Kernels kTable = [] {
    Kernels table = avx512bf16_kernels();
    table.isa = "amx";
    table.gemm_bf16 = amx::gemm_bf16;
    return table;
  }();
  return kTable;
}

}  // namespace perigee
