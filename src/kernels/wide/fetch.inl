// Prefetches. Included by each source that streams from memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace perigee::PERIGEE_PATH {
namespace {

// Asks for what a stream of memory needs later: the hardware stops at each page. Not _mm_prefetch: g++ 12 takes a
// function of nothing but prefetches for one without effect and drops it.
inline void fetch(const std::byte* line) {
  asm volatile("prefetcht0 %0" : : "m"(*line));
}
inline void fetch_to_l2(const std::byte* line) {
  asm volatile("prefetcht1 %0" : : "m"(*line));
}
inline void fetch_to_l2(const std::byte* from, std::int64_t bytes) {
  for (std::int64_t at = 0; at < bytes; at += 64) fetch_to_l2(from + at);
}

}  // namespace
}  // namespace perigee::PERIGEE_PATH
