// Which table runs: PERIGEE_ISA, or the best that this machine has.
#include <cstdlib>

#include "kernels/kernels.h"

namespace perigee {

Result<const Kernels*> select_kernels(std::string_view isa) {
  if (isa.empty() || isa == "scalar") return &scalar_kernels();
  return invalid_argument("PERIGEE_ISA: expected scalar, avx2, avx512 or amx, found \"{}\"", isa);
}

Result<const Kernels*> default_kernels() {
  const char* forced = std::getenv("PERIGEE_ISA");  // NOLINT(concurrency-mt-unsafe)
  return select_kernels(forced == nullptr ? "" : forced);
}

}  // namespace perigee
