// Launch files from one plan: scripts a node, environment, proxy or router, Mooncake, compose, Kubernetes, health
// check, benchmark, rollout notes. Everything is rendered from one list of commands, so the files agree with each
// other. Deterministic: the same plan gives the same bytes.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "planner/plan.h"
#include "planner/preflight/check.h"

namespace perigee::planner {

struct EmittedFile {
  std::string path;  // below the output folder
  std::string content;
  bool executable = false;
};

// Needs the addresses of every host. Refuses plans whose files would not pass preflight: the findings are in the
// message.
Result<std::vector<EmittedFile>> emit_plan(const Plan& plan);

// Preflight of emitted files, with the plan's engine, version, chip and model.
Result<CheckReport> check_emitted(const Plan& plan, const std::vector<EmittedFile>& files);

// Writes below `directory`, which is created.
Status write_emitted(const std::vector<EmittedFile>& files, const std::string& directory);

}  // namespace perigee::planner
