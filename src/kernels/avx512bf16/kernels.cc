#include "kernels/avx512bf16/slots.h"
#include "kernels/paths.h"

namespace perigee {

const Kernels& avx512bf16_kernels() {
  static const Kernels kTable = [] {
    Kernels table = avx512_kernels();
    table.isa = "avx512bf16";
    table.gemm_bf16 = avx512bf16::gemm_bf16;
    table.mla_segment = avx512bf16::mla_segment;
    table.index_scores = avx512bf16::index_scores;
    return table;
  }();
  return kTable;
}

}  // namespace perigee
