// The tables of the paths and what each needs. Only select.cc may hand out a table, after asking the CPU.
#pragma once

#include <string>
#include <vector>

#include "kernels/kernels.h"

namespace perigee {

const Kernels& avx2_kernels();
const Kernels& avx512_kernels();
const Kernels& avx512bf16_kernels();
const Kernels& amx_kernels();

// Every path that this machine can run, scalar first.
std::vector<const Kernels*> runnable_kernels();

// Names of the paths that are built in but cannot run here, with what is missing: "avx512: AVX512F".
std::vector<std::string> missing_kernels();

}  // namespace perigee
