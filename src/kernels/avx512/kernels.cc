#include "kernels/avx512/slots.h"
#include "kernels/paths.h"

namespace perigee {

const Kernels& avx512_kernels() {
  static constexpr Kernels kTable = {
      .isa = "avx512",
      .gemm = avx512::gemm,
      .gemm_bf16 = avx512::gemm_bf16,
      .gemm_transposed = avx512::gemm_transposed,
      .rms_norm = avx512::rms_norm,
      .layer_norm = avx512::layer_norm,
      .short_conv = avx512::short_conv,
      .kda_gate = avx512::kda_gate,
      .kda_head = avx512::kda_head,
      .kda_output_norm = avx512::kda_output_norm,
      .mla_segment = avx512::mla_segment,
      .mla_merge = avx512::mla_merge,
      .mla_finish = avx512::mla_finish,
      .index_scores = avx512::index_scores,
      .attn_res_mix = avx512::attn_res_mix,
      .situ = avx512::situ,
      .swiglu = avx512::swiglu,
      .sigmoid_gate = avx512::sigmoid_gate,
      .add = avx512::add,
      .weighted_sum = avx512::weighted_sum,
  };
  return kTable;
}

}  // namespace perigee
