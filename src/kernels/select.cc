// Which table runs: PERIGEE_ISA, or the best that this machine has.
#include <cpuid.h>

#include <cstdlib>

#include "kernels/amx/probe.h"
#include "kernels/avx2/probe.h"
#include "kernels/avx512/probe.h"
#include "kernels/avx512bf16/probe.h"
#include "kernels/kernels.h"
#include "kernels/paths.h"
#include "kernels/probe.h"

namespace perigee {
namespace {

struct Path {
  std::string_view name;
  const Kernels& (*table)();
  std::string (*missing)();  // empty when this machine has all it needs
};

struct Feature {
  bool present;
  std::string_view name;
};

std::string list_missing(std::initializer_list<Feature> features) {
  std::string missing;
  for (const Feature& feature : features) {
    if (!feature.present) missing.append(missing.empty() ? "" : ", ").append(feature.name);
  }
  return missing;
}

std::string joined(std::string missing, const std::string& more) {
  if (!missing.empty() && !more.empty()) missing.append(", ");
  return missing + more;
}

std::string missing_for_avx2() {
  return list_missing({{__builtin_cpu_supports("avx2") != 0, "AVX2"},
                       {__builtin_cpu_supports("fma") != 0, "FMA"},
                       {__builtin_cpu_supports("bmi") != 0, "BMI1"},
                       {__builtin_cpu_supports("bmi2") != 0, "BMI2"}});
}

std::string missing_for_avx512() {
  return joined(missing_for_avx2(), list_missing({{__builtin_cpu_supports("avx512f") != 0, "AVX512F"},
                                                  {__builtin_cpu_supports("avx512bw") != 0, "AVX512BW"},
                                                  {__builtin_cpu_supports("avx512dq") != 0, "AVX512DQ"},
                                                  {__builtin_cpu_supports("avx512vl") != 0, "AVX512VL"}}));
}

std::string missing_for_avx512bf16() {
  return joined(missing_for_avx512(), list_missing({{__builtin_cpu_supports("avx512bf16") != 0, "AVX512_BF16"}}));
}

// Not every compiler's __builtin_cpu_supports knows these names.
std::string missing_for_amx() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned features = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &features) == 0) features = 0;
  std::string missing = joined(missing_for_avx512bf16(), list_missing({{(features >> 24 & 1U) != 0, "AMX-TILE"},
                                                                       {(features >> 22 & 1U) != 0, "AMX-BF16"},
                                                                       {(features >> 25 & 1U) != 0, "AMX-INT8"}}));
  if (missing.empty() && !amx::tiles_permitted()) missing = "the kernel's permission to use AMX tiles";
  return missing;
}

// Best last.
constexpr Path kPaths[] = {
    {"scalar", scalar_kernels, [] { return std::string(); }},
    {"avx2", avx2_kernels, missing_for_avx2},
    {"avx512", avx512_kernels, missing_for_avx512},
    {"avx512bf16", avx512bf16_kernels, missing_for_avx512bf16},
    {"amx", amx_kernels, missing_for_amx},
};

}  // namespace

Result<const Kernels*> select_kernels(std::string_view isa) {
  if (isa.empty()) {
    const std::string missing = missing_for_avx2();
    if (!missing.empty()) {
      return make_error(StatusCode::kUnimplemented,
                        "this CPU lacks {}: Perigee needs x86-64-v3 (Intel Haswell, AMD Excavator or newer); "
                        "PERIGEE_ISA=scalar runs anywhere, slowly, for checks",
                        missing);
    }
    return runnable_kernels().back();
  }
  std::string names;
  for (const Path& path : kPaths) {
    if (path.name == isa) {
      const std::string missing = path.missing();
      if (missing.empty()) return &path.table();
      return make_error(StatusCode::kUnimplemented, "PERIGEE_ISA={}: this CPU lacks {}", isa, missing);
    }
    names.append(names.empty() ? "" : ", ").append(path.name);
  }
  return invalid_argument("PERIGEE_ISA: expected one of {}, found \"{}\"", names, isa);
}

Result<const Kernels*> default_kernels(std::string_view isa) {
  if (!isa.empty()) return select_kernels(isa);
  const char* forced = std::getenv("PERIGEE_ISA");  // NOLINT(concurrency-mt-unsafe)
  return select_kernels(forced == nullptr ? "" : forced);
}

std::vector<const Kernels*> runnable_kernels() {
  std::vector<const Kernels*> tables;
  for (const Path& path : kPaths) {
    if (path.missing().empty()) tables.push_back(&path.table());
  }
  return tables;
}

std::vector<std::string> missing_kernels() {
  std::vector<std::string> missing;
  for (const Path& path : kPaths) {
    if (const std::string lacks = path.missing(); !lacks.empty())
      missing.push_back(fmt::format("{}: {}", path.name, lacks));
  }
  return missing;
}

std::vector<FlopProbe> runnable_probes() {
  std::vector<FlopProbe> probes;
  if (missing_for_avx2().empty()) probes.push_back({"avx2 fma", 12.0 * 8 * 2, avx2::burn_fma});
  if (missing_for_avx512().empty()) probes.push_back({"avx512 fma", 12.0 * 16 * 2, avx512::burn_fma});
  if (missing_for_avx512bf16().empty()) probes.push_back({"avx512bf16 dot", 12.0 * 32 * 2, avx512bf16::burn_dot});
  if (missing_for_amx().empty()) {
    probes.push_back({"amx bf16", 4.0 * 16 * 16 * 32 * 2, amx::burn_bf16});
    probes.push_back({"int8 amx", 4.0 * 16 * 16 * 64 * 2, amx::burn_int8});
  }
  return probes;
}

}  // namespace perigee
