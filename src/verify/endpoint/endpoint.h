// Acceptance of an OpenAI-compatible deployment of a Kimi model through its API alone: is what it serves the model, the
// prompt format and the API that clients rely on? Each suite asks one question; what an endpoint does not offer is said
// and is no failure. The endpoint is hostile input: answers are bounded and every text of it is escaped in reports.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "verify/endpoint/http_client.h"

namespace perigee::verify {

enum class Verdict : std::uint8_t {
  kPass,
  kFail,
  kNotOffered,    // the endpoint has no such feature
  kInconclusive,  // it has, but nothing could be concluded, such as an answer that was cut
};
std::string_view verdict_name(Verdict verdict);  // "pass", "fail", "not offered", "inconclusive"

struct EndpointCheck {
  std::string suite, name;
  Verdict verdict = Verdict::kInconclusive;
  std::size_t passed = 0, total = 0;  // cases behind the verdict
  std::string detail;                 // figures, or why
  std::vector<std::string> failures;  // "case: what differs"
};

struct EndpointReport {
  std::string endpoint, model, reference;
  std::vector<EndpointCheck> checks;
  std::int64_t requests = 0;
  double seconds = 0;

  std::size_t count(Verdict verdict) const;
  bool passed() const { return count(Verdict::kFail) == 0; }
};

std::string to_text(const EndpointReport& report);
std::string to_markdown(const EndpointReport& report);
std::string to_html(const EndpointReport& report);  // one page without scripts or references
Json to_json(const EndpointReport& report);

struct EndpointOptions {
  std::string url;
  HttpClientOptions http;
  std::string model;                // empty: the first one of /v1/models
  std::vector<std::string> suites;  // empty: all of endpoint_suites()
  std::string vectors;              // folder with tokenizer.json, ...; empty: the built-in ones
  std::string api_mode = "normal";  // of validate.json: normal, strict or lenient
  std::size_t cases = 100;          // at most of one vector file, evenly spread; 0: all
  // Logprob comparison: a file that save_reference wrote, or the URL of another endpoint. Empty: not compared.
  std::string reference;
  std::string reference_model;       // of a reference endpoint; empty: its first one
  std::string save_reference;        // the endpoint's own answers go to this file
  double tolerance = 0.1;            // natural log: difference of log-probabilities, and gap of two tokens that tie
  std::int64_t cache_tokens = 1500;  // about, of the prompt that must be found in the cache
  std::vector<std::int64_t> needle_lengths;  // about, in tokens; empty: 2000 and 8000
};

// Names and questions of the suites, in the order in which they run.
struct EndpointSuite {
  std::string_view name, question;
};
const std::vector<EndpointSuite>& endpoint_suites();

// Errors: a wrong option, an unreadable file, an endpoint that does not answer. All else is in the report.
Result<EndpointReport> verify_endpoint(const EndpointOptions& options);

}  // namespace perigee::verify
