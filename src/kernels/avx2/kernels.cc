#include "kernels/avx2/slots.h"
#include "kernels/paths.h"

namespace perigee {

const Kernels& avx2_kernels() {
  static constexpr Kernels kTable = {
      .isa = "avx2",
      .gemm = avx2::gemm,
      .gemm_bf16 = avx2::gemm_bf16,
      .gemm_transposed = avx2::gemm_transposed,
      .rms_norm = avx2::rms_norm,
      .layer_norm = avx2::layer_norm,
      .short_conv = avx2::short_conv,
      .kda_gate = avx2::kda_gate,
      .kda_head = avx2::kda_head,
      .kda_output_norm = avx2::kda_output_norm,
      .mla_segment = avx2::mla_segment,
      .mla_merge = avx2::mla_merge,
      .mla_finish = avx2::mla_finish,
      .index_scores = avx2::index_scores,
      .attn_res_mix = avx2::attn_res_mix,
      .situ = avx2::situ,
      .swiglu = avx2::swiglu,
      .sigmoid_gate = avx2::sigmoid_gate,
      .add = avx2::add,
      .weighted_sum = avx2::weighted_sum,
  };
  return kTable;
}

}  // namespace perigee
