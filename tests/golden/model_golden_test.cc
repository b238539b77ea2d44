// Every golden folder in the repository, on every instruction-set path that this machine has, by the runner that
// `perigee verify goldens` uses.
#include <gtest/gtest.h>

#include <cstdio>

#include "kernels/kernels.h"
#include "verify/golden.h"

namespace perigee {
namespace {

using Parameters = std::tuple<std::string, Precision>;

class ModelGoldens : public testing::TestWithParam<Parameters> {};

TEST_P(ModelGoldens, AllWithinTolerance) {
  const auto& [isa, precision] = GetParam();
  if (!select_kernels(isa).ok()) {
    std::printf("path %s did not run: %s\n", isa.c_str(), select_kernels(isa).status().message().c_str());
    GTEST_SKIP();
  }
  if (isa == "amx" && precision == Precision::kF32) GTEST_SKIP() << "AMX multiplies bf16 only";
  std::printf("path %s ran\n", isa.c_str());
  const auto report =
      verify_goldens(PERIGEE_SOURCE_DIR "/tests/data/goldens", {.precision = precision, .isa = isa, .threads = 2});
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_GE(report->lines.size(), 100U);
  for (const CheckLine& line : report->lines) {
    EXPECT_TRUE(line.passed) << line.config << " " << line.item << " " << line.quantity << ": " << line.worst << " > "
                             << line.tolerance << " " << line.note;
  }
}

INSTANTIATE_TEST_SUITE_P(Paths, ModelGoldens,
                         testing::Combine(testing::Values("scalar", "avx2", "avx512", "avx512bf16", "amx"),
                                          testing::Values(Precision::kF32, Precision::kBf16)),
                         [](const auto& parameters) {
                           return std::get<0>(parameters.param) +
                                  (std::get<1>(parameters.param) == Precision::kF32 ? "_f32" : "_bf16");
                         });

}  // namespace
}  // namespace perigee
