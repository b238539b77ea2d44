#include "cli/serve_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>

#include "server/auth.h"

namespace perigee::cli {

void add_serve_flags(CLI::App& app, ServeFlags& flags) {
  app.add_option("--host", flags.host, "Address to listen on; only this machine can reach the default")
      ->capture_default_str();
  app.add_option("--port", flags.port, "0: any free port")->capture_default_str();
  app.add_option("--tls-cert", flags.tls_certificate, "PEM certificate chain: speak HTTPS")->check(CLI::ExistingFile);
  app.add_option("--tls-key", flags.tls_key, "PEM private key")->check(CLI::ExistingFile);
  app.add_option("--api-key-file", flags.api_key_file,
                 "One key a line; each is a tenant. PERIGEE_API_KEYS (comma-separated) adds to it")
      ->check(CLI::ExistingFile);
  app.add_option("--admin-key-file", flags.admin_key_file, "Keys that also see the whole of /debug/cache")
      ->check(CLI::ExistingFile);
  app.add_option("--cors-origin", flags.cors_origins, "Web origin that may call the API, or *; none by default");
  app.add_option("--alias", flags.aliases, "Further name of the model");
  app.add_option("--api-mode", flags.mode,
                 "strict: refuse what the hosted Kimi API refuses; lenient: map efforts of other vendors")
      ->check(CLI::IsMember({"normal", "strict", "lenient"}))
      ->capture_default_str();
  app.add_option("--max-requests", flags.max_requests, "Generations running or queued; further ones get 429")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--max-body-mib", flags.max_body_mib, "Largest request body")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--drain-seconds", flags.drain_seconds, "What running requests get after SIGTERM")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_flag("--open-metrics", flags.open_metrics, "/metrics asks for no key");
  app.add_flag("--quiet", flags.quiet, "No access log");
  app.add_flag("--log-prompts", flags.log_prompts, "The access log gets whole request bodies");
}

Result<server::RunOptions> run_options(const ServeFlags& flags) {
  server::RunOptions options;
  server::ServerOptions& server = options.server;
  server.http.address = flags.host;
  server.http.port = flags.port;
  server.http.tls_certificate = flags.tls_certificate;
  server.http.tls_key = flags.tls_key;
  server.http.limits.body_bytes = static_cast<std::size_t>(flags.max_body_mib) << 20;
  if (!flags.api_key_file.empty()) {
    PERIGEE_ASSIGN_OR_RETURN(server.api_keys, server::read_api_keys(flags.api_key_file));
  }
  if (!flags.admin_key_file.empty()) {
    PERIGEE_ASSIGN_OR_RETURN(server.admin_keys, server::read_api_keys(flags.admin_key_file));
  }
  if (const char* environment = std::getenv("PERIGEE_API_KEYS"); environment != nullptr && *environment != '\0') {
    std::string lines = environment;
    std::replace(lines.begin(), lines.end(), ',', '\n');
    PERIGEE_ASSIGN_OR_RETURN(const auto keys, server::parse_api_keys(lines, "PERIGEE_API_KEYS"));
    server.api_keys.insert(server.api_keys.end(), keys.begin(), keys.end());
  }
  server.cors_origins = flags.cors_origins;
  server.aliases = flags.aliases;
  server.max_requests = flags.max_requests;
  server.open_metrics = flags.open_metrics;
  server.access_log = flags.quiet ? nullptr : stdout;
  server.log_bodies = flags.log_prompts;
  if (flags.mode == "strict") server.mode = api::ApiMode::kStrict;
  if (flags.mode == "lenient") server.mode = api::ApiMode::kLenient;
  options.drain_seconds = flags.drain_seconds;
  const bool loopback = flags.host == "localhost" || flags.host == "::1" || flags.host.starts_with("127.");
  if (!loopback && server.api_keys.empty() && server.admin_keys.empty()) {
    fmt::print(stderr, "warning: {} can be reached from other machines and no API key is set\n", flags.host);
  }
  return options;
}

}  // namespace perigee::cli
