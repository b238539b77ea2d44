// A whole server with the scripted engine behind it, as a program: for client tests and load measurements.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "base/file.h"
#include "scripted_engine.h"
#include "server/auth.h"
#include "server/run_server.h"

int main(int argc, char** argv) {
  using namespace perigee;
  using namespace perigee::server;
  CLI::App app("Perigee's server with scripted answers (tests only)");
  RunOptions options;
  options.drain_seconds = 5;
  ScriptedOptions scripted;
  std::string script;
  std::string mode = "normal";
  std::int64_t step_us = 0;
  std::int64_t prefill_ns = 0;
  bool log = false;
  app.add_option("--port", options.server.http.port);
  app.add_option("--script", script)->check(CLI::ExistingFile);
  app.add_option("--step-us", step_us);
  app.add_option("--prefill-ns", prefill_ns);
  app.add_option("--max-running", scripted.max_running);
  app.add_option("--api-key", options.server.api_keys);
  app.add_option("--tls-cert", options.server.http.tls_certificate);
  app.add_option("--tls-key", options.server.http.tls_key);
  app.add_option("--alias", options.server.aliases);
  app.add_option("--mode", mode)->check(CLI::IsMember({"normal", "strict", "lenient"}));
  app.add_flag("--log", log);
  app.add_flag("--log-bodies", options.server.log_bodies);
  CLI11_PARSE(app, argc, argv);
  scripted.step = std::chrono::microseconds(step_us);
  scripted.prefill_token = std::chrono::nanoseconds(prefill_ns);
  if (log) options.server.access_log = stdout;
  if (mode == "strict") options.server.mode = api::ApiMode::kStrict;
  if (mode == "lenient") options.server.mode = api::ApiMode::kLenient;
  if (!script.empty()) {
    const auto text = read_file(script, 1 << 20);
    auto rules = text.ok() ? parse_script(*text) : Result<std::vector<ScriptedRule>>(text.status());
    if (!rules.ok()) {
      fmt::print(stderr, "{}: {}\n", script, rules.status().message());
      return 2;
    }
    scripted.rules = std::move(*rules);
  }
  const Tokenizer tokenizer = Tokenizer::embedded(SpecialTable::kK3);
  ScriptedEngine engine(tokenizer, scripted);
  const Status status = run_server(std::move(options), [&]() -> Result<ServedModel> {
    return ServedModel{&engine, tokenizer, &kDialectK3, "kimi-k3", 0};
  });
  if (!status.ok()) fmt::print(stderr, "{}\n", status.message());
  return status.ok() ? 0 : 1;
}
