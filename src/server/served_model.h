// What the server needs of a model: everything else of it stays behind these.
#pragma once

#include <cstdint>
#include <string>

#include "engine/engine.h"
#include "text/dialect.h"
#include "text/tokenizer.h"

namespace perigee::server {

// What the machine can do at most, for the roofline metrics; 0: not measured.
struct MachineLimits {
  double read_bytes = 0;  // a second
  double flops = 0;       // a second, of the kernels' instructions
};

struct ServedModel {
  Engine* engine = nullptr;  // outlives the server
  Tokenizer tokenizer;
  const Dialect* dialect = nullptr;
  std::string name;             // as /v1/models shows it
  std::int64_t parameters = 0;  // 0: unknown
  MachineLimits limits = {};
};

}  // namespace perigee::server
