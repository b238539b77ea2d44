// The exit code of a command that ended with an error: 2 for wrong usage or input that cannot be read, else 1.
#pragma once

#include <fmt/format.h>

#include <cstdio>

#include "base/status.h"

namespace perigee::cli {

inline int exit_code_of(const Status& status) {
  if (status.ok()) return 0;
  return status.code() == StatusCode::kInvalidArgument || status.code() == StatusCode::kNotFound ? 2 : 1;
}

// Says why `command` (as typed: "plan fit") ended, on stderr. Returns its exit code.
inline int command_failed(const char* command, const Status& status) {
  fmt::print(stderr, "perigee {}: {}\n", command, status.message());
  return exit_code_of(status);
}

}  // namespace perigee::cli
