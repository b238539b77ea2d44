// A server as a process: listens at once, loads the model beside, ends on SIGINT or SIGTERM.
#pragma once

#include <functional>

#include "base/status.h"
#include "server/server.h"

namespace perigee::server {

struct RunOptions {
  ServerOptions server;
  double drain_seconds = 30;  // for running requests after the first signal; a second one ends at once
};

// `load` runs on a thread of its own while /health says "loading"; what the model refers to must outlive this call.
// Blocks until the server has ended. An error is one of listening or of `load`.
Status run_server(RunOptions options, const std::function<Result<ServedModel>()>& load);

}  // namespace perigee::server
