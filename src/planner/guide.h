// Deployment guides in Markdown (docs/ascend/), written from the same catalogues and models as every answer of
// `perigee plan`, so that they cannot drift; a test compares the files with this text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "planner/catalogue.h"

namespace perigee::planner {

struct Guide {
  std::string_view file;  // below docs/ascend/
  std::string_view node;
  std::string_view format;
  std::int64_t nodes;  // of the worked example
};
const std::vector<Guide>& guides();

Result<std::string> write_guide(const Catalogue& catalogue, const Guide& guide);

}  // namespace perigee::planner
