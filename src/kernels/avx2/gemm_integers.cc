#include "kernels/avx2/integers.h"
#include "kernels/avx2/slots.h"

// The operators are the same source on every path; the headers above give it its vectors.
#include "kernels/wide/gemm_integers.inl"
