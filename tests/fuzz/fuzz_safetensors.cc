// libFuzzer: any bytes as a safetensors file. What is accepted must lie inside the file and not overlap.
#include <cstdint>
#include <cstdlib>
#include <span>

#include "checkpoint/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto header = perigee::parse_safetensors_header(bytes, size);
  if (!header.ok()) return header.status().message().empty() ? std::abort(), 0 : 0;
  std::uint64_t end = header->data_begin;
  std::uint64_t covered = 0;
  for (const auto& entry : header->tensors) {
    const auto expected = static_cast<std::uint64_t>(entry.shape.elements() * perigee::dtype_bytes(entry.dtype));
    if (entry.bytes != expected || entry.offset > size || entry.bytes > size - entry.offset) std::abort();
    if (entry.bytes > 0 && entry.offset < end) std::abort();
    if (entry.bytes > 0) end = entry.offset + entry.bytes;
    covered += entry.bytes;
  }
  if (covered + header->unused_bytes + header->data_begin != size) std::abort();
  return 0;
}
