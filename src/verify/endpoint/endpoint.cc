#include "verify/endpoint/endpoint.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "verify/endpoint/session.h"

namespace perigee::verify {
namespace {

struct SuiteEntry {
  EndpointSuite suite;
  Status (*run)(const SuiteContext& context);
};

constexpr SuiteEntry kSuites[] = {
    {{"api", "model list, unknown models"}, run_models},
    {{"tokenizer", "ids of texts, and back"}, run_tokenizer},
    {{"prompt", "rendered prompts, by ids or by counts"}, run_prompts},
    {{"parameters", "requests that must and must not be refused"}, run_parameters},
    {{"answers", "shape, streaming against whole answers, limits"}, run_streaming},
    {{"tools", "tool choice, calls, results"}, run_tools},
    {{"schemas", "schema-bound answers and arguments"}, run_schemas},
    {{"cache", "warm prompts are found, and answered alike"}, run_cache},
    {{"logprobs", "against --reference, or into --save-reference"}, run_logprobs},
    {{"retrieval", "a fact in a long context"}, run_retrieval},
};

// Vectors of a folder may lack a member; nlohmann says so by an exception.
Status run_guarded(const SuiteEntry& entry, const SuiteContext& context) {
  try {
    return entry.run(context);
  } catch (const Json::exception& error) {
    return invalid_argument("suite {}: malformed vectors: {}", entry.suite.name, error.what());
  }
}

}  // namespace

const std::vector<EndpointSuite>& endpoint_suites() {
  static const std::vector<EndpointSuite> kAll = [] {
    std::vector<EndpointSuite> all;
    for (const SuiteEntry& entry : kSuites) all.push_back(entry.suite);
    return all;
  }();
  return kAll;
}

Result<EndpointReport> verify_endpoint(const EndpointOptions& options) {
  const auto wanted = [&](std::string_view name) {
    return options.suites.empty() ||
           std::find(options.suites.begin(), options.suites.end(), name) != options.suites.end();
  };
  for (const std::string& name : options.suites) {
    const bool known = std::any_of(std::begin(kSuites), std::end(kSuites),
                                   [&](const SuiteEntry& entry) { return entry.suite.name == name; });
    if (!known) return invalid_argument("suite '{}' is not known", name);
  }
  const auto begin = std::chrono::steady_clock::now();
  EndpointReport report;
  report.endpoint = options.url;
  PERIGEE_ASSIGN_OR_RETURN(const auto session, Session::open(options.url, options.http, options.model));
  report.model = session->model();
  const SuiteContext context{.options = &options, .session = session.get(), .report = &report};
  for (const SuiteEntry& entry : kSuites) {
    if (!wanted(entry.suite.name)) continue;
    const Status status = run_guarded(entry, context);
    // An endpoint that breaks down in the middle is a finding; a wrong file of ours is an error.
    if (status.code() == StatusCode::kUnavailable) {
      EndpointCheck check;
      check.suite = entry.suite.name;
      check.name = "the endpoint stays up";
      check.verdict = Verdict::kFail;
      check.total = 1;
      check.failures.push_back(status.message());
      report.checks.push_back(std::move(check));
    } else if (!status.ok()) {
      return status;
    }
  }
  report.requests = session->requests();
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return report;
}

}  // namespace perigee::verify
