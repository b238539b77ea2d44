// Loops that measure what the machine can do at most: the roofline that `perigee bench` compares operators with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace perigee {

struct FlopProbe {
  std::string_view name;  // begins with the path that it bounds: "avx2 fma"; "int8 amx" bounds none
  double flops_per_round;
  void (*burn)(std::int64_t rounds);
};

// Probes of the instructions that this machine has.
std::vector<FlopProbe> runnable_probes();

// Reads every byte of [data, data + bytes) once; bytes is a multiple of 512. Needs AVX2.
std::uint64_t read_probe(const std::byte* data, std::size_t bytes);

}  // namespace perigee
