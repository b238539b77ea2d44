// The flags of `perigee serve` that concern HTTP, apart from those of the engine.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "server/run_server.h"

namespace CLI {
class App;
}

namespace perigee::cli {

struct ServeFlags {
  std::string host = "127.0.0.1";
  std::uint16_t port = 8000;
  std::string tls_certificate;
  std::string tls_key;
  std::string api_key_file;
  std::string admin_key_file;
  std::vector<std::string> cors_origins;
  std::vector<std::string> aliases;
  std::string mode = "normal";
  std::int64_t max_requests = 1024;
  double drain_seconds = 30;
  std::int64_t max_body_mib = 64;
  bool open_metrics = false;
  bool quiet = false;
  bool log_prompts = false;
};

// Declares the flags on `app`; they are read into `flags`, which must outlive the parse.
void add_serve_flags(CLI::App& app, ServeFlags& flags);

// Reads the key file and PERIGEE_API_KEYS, checks what one flag alone cannot tell, warns about an open port.
Result<server::RunOptions> run_options(const ServeFlags& flags);

}  // namespace perigee::cli
