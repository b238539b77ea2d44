// perigee inspect --cache DIR: what a cache directory holds. Read-only; a server may own the directory.
#pragma once

#include <string>

namespace perigee::cli {

// Prints to stdout and returns the exit code: 0, 1 when an object is damaged, 2 when the directory cannot be read.
int inspect_cache(const std::string& directory, bool json);

}  // namespace perigee::cli
