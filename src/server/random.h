// Unguessable identifiers, from the system's generator. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace perigee::server {

std::string random_hex(std::size_t bytes);
std::uint64_t random_u64();

}  // namespace perigee::server
