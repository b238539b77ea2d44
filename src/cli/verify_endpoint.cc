// perigee verify endpoint URL, or perigee verify --endpoint URL: acceptance of an OpenAI-compatible deployment.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "cli/commands.h"
#include "cli/exit_code.h"
#include "verify/endpoint/endpoint.h"

namespace perigee::cli {
namespace {

constexpr const char* kEndpointKeyVariable = "PERIGEE_API_KEY";
constexpr std::size_t kEndpointKeyLimit = 4096;

struct EndpointArguments {
  verify::EndpointOptions options;
  std::string key_file, markdown, html;
  bool insecure = false;
  bool json = false;
};

std::vector<std::string> endpoint_suite_names() {
  std::vector<std::string> names;
  for (const verify::EndpointSuite& suite : verify::endpoint_suites()) names.emplace_back(suite.name);
  return names;
}

void add_endpoint_options(CLI::App& command, EndpointArguments& arguments) {
  verify::EndpointOptions& o = arguments.options;
  command.add_option("--model", o.model, "Served name (default: the first one of /v1/models)");
  command.add_option("--suite", o.suites, "Only these suites (default: all)")
      ->check(CLI::IsMember(endpoint_suite_names()))
      ->delimiter(',');
  command.add_option("--cases", o.cases, "At most so many cases of one vector file; 0: all")->capture_default_str();
  command.add_option("--vectors", o.vectors, "Folder with tokenizer.json, render.json ... (default: built in)")
      ->check(CLI::ExistingDirectory);
  command.add_option("--api-mode", o.api_mode, "Rules that requests are judged by")
      ->check(CLI::IsMember({"normal", "strict", "lenient"}))
      ->capture_default_str();
  command.add_option("--reference", o.reference,
                     "Log-probabilities to compare with: a stored file, or the URL of "
                     "another endpoint such as `perigee serve`");
  command.add_option("--reference-model", o.reference_model, "Served name at a reference endpoint");
  command.add_option("--save-reference", o.save_reference, "Store this endpoint's log-probabilities in a file");
  command.add_option("--tolerance", o.tolerance, "Of log-probabilities, and of tokens that tie; 0: exactly equal")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  command.add_option("--cache-tokens", o.cache_tokens, "Length of the prompt that must be found in the prefix cache")
      ->check(CLI::Range(64, 1 << 20))
      ->capture_default_str();
  command.add_option("--needle", o.needle_lengths, "Lengths of the retrieval suite (default: 2000 8000)")
      ->check(CLI::Range(100, 1 << 21));
  command
      .add_option("--api-key-file", arguments.key_file,
                  std::string("File with the API key (default: the variable ") + kEndpointKeyVariable + ")")
      ->check(CLI::ExistingFile);
  command.add_option("--timeout", o.http.timeout_seconds, "Seconds for one answer")
      ->check(CLI::Range(0.1, 86400.0))
      ->capture_default_str();
  command.add_option("--ca-file", o.http.ca_file, "PEM certificates to trust (default: the system's)")
      ->check(CLI::ExistingFile);
  command.add_flag("--insecure", arguments.insecure, "Accept any certificate");
  command.add_option("--markdown", arguments.markdown, "Write a Markdown report to this file");
  command.add_option("--html", arguments.html, "Write an HTML report to this file");
  command.add_flag("--json", arguments.json, "Machine-readable report");
  std::string footer = "Suites:\n";
  for (const verify::EndpointSuite& suite : verify::endpoint_suites()) {
    footer += fmt::format("  {:<12} {}\n", suite.name, suite.question);
  }
  command.footer(footer + "Exit code: 0 nothing failed, 1 a check failed, 2 the endpoint cannot be asked.");
}

Status read_endpoint_key(EndpointArguments& arguments) {
  std::string& key = arguments.options.http.api_key;
  if (!arguments.key_file.empty()) {
    PERIGEE_ASSIGN_OR_RETURN(key, read_file(arguments.key_file, kEndpointKeyLimit));
  } else if (const char* variable = std::getenv(kEndpointKeyVariable); variable != nullptr) {
    key = variable;
  }
  while (!key.empty() && (key.back() == '\n' || key.back() == '\r' || key.back() == ' ')) key.pop_back();
  for (const char c : key) {
    // Whatever would end the header line; the key itself is never shown.
    if (static_cast<unsigned char>(c) <= 0x20 || c == 0x7f) {
      return invalid_argument("the API key has a blank or control character in it");
    }
  }
  return {};
}

Status run_endpoint(EndpointArguments& arguments, int& exit_code) {
  PERIGEE_RETURN_IF_ERROR(read_endpoint_key(arguments));
  arguments.options.http.verify_tls = !arguments.insecure;
  PERIGEE_ASSIGN_OR_RETURN(const verify::EndpointReport report, verify::verify_endpoint(arguments.options));
  if (!arguments.markdown.empty()) PERIGEE_RETURN_IF_ERROR(write_file(arguments.markdown, verify::to_markdown(report)));
  if (!arguments.html.empty()) PERIGEE_RETURN_IF_ERROR(write_file(arguments.html, verify::to_html(report)));
  const std::string text = arguments.json
                               ? verify::to_json(report).dump(1, ' ', false, Json::error_handler_t::replace) + "\n"
                               : verify::to_text(report);
  std::fputs(text.c_str(), stdout);
  exit_code = report.passed() ? 0 : 1;
  return {};
}

void run_endpoint_command(EndpointArguments& arguments, int& exit_code) {
  const Status status = run_endpoint(arguments, exit_code);
  if (status.ok()) return;
  command_failed("verify endpoint", status);
  exit_code = 2;  // 1 means that a check failed
}

}  // namespace

void register_verify_endpoint(const CommandGroups& groups, int& exit_code) {
  auto arguments = std::make_shared<EndpointArguments>();
  CLI::App* command = groups.verify->add_subcommand(
      "endpoint", "Check an OpenAI-compatible server: text, parameters, tools, cache, log-probabilities, retrieval");
  command->add_option("URL", arguments->options.url, "http://HOST:PORT or https://..., with or without /v1")
      ->required();
  add_endpoint_options(*command, *arguments);
  command->callback([arguments, &exit_code] { run_endpoint_command(*arguments, exit_code); });

  // The same as an option of the group.
  auto direct = std::make_shared<EndpointArguments>();
  CLI::Option* url = groups.verify->add_option("--endpoint", direct->options.url, "As `verify endpoint URL`");
  add_endpoint_options(*groups.verify, *direct);
  groups.verify->callback([direct, url, verify = groups.verify, &exit_code] {
    const bool subcommand = !verify->get_subcommands().empty();
    if (subcommand && url->count() > 0)
      throw CLI::ExcludesError("--endpoint", verify->get_subcommands()[0]->get_name());
    if (!subcommand && url->count() == 0) throw CLI::RequiredError("A subcommand or --endpoint");
    if (!subcommand) run_endpoint_command(*direct, exit_code);
  });
}

}  // namespace perigee::cli
