#include "kernels/avx512/integers.h"
#include "kernels/avx512/slots.h"

// The operators are the same source on every path; the headers above give it its vectors.
#include "kernels/wide/gemm_integers.inl"
