#include "kernels/scalar/scalar.h"

namespace perigee {

const Kernels& scalar_kernels() {
  static constexpr Kernels kTable = {
      .isa = "scalar",
      .gemm = scalar::gemm,
      .gemm_bf16 = scalar::gemm_bf16,
      .gemm_transposed = scalar::gemm_transposed,
      .rms_norm = scalar::rms_norm,
      .layer_norm = scalar::layer_norm,
      .short_conv = scalar::short_conv,
      .kda_gate = scalar::kda_gate,
      .kda_head = scalar::kda_head,
      .kda_output_norm = scalar::kda_output_norm,
      .mla_segment = scalar::mla_segment,
      .mla_merge = scalar::mla_merge,
      .mla_finish = scalar::mla_finish,
      .index_scores = scalar::index_scores,
      .attn_res_mix = scalar::attn_res_mix,
      .situ = scalar::situ,
      .swiglu = scalar::swiglu,
      .sigmoid_gate = scalar::sigmoid_gate,
      .add = scalar::add,
      .weighted_sum = scalar::weighted_sum,
  };
  return kTable;
}

}  // namespace perigee
