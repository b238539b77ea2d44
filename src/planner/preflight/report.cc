// The report as text, JSON and SARIF 2.1.0.
#include <nlohmann/json.hpp>

#include "planner/preflight/check.h"
#include "planner/preflight/facts.h"

namespace perigee::planner {

namespace {

std::string_view severity_name(Severity severity) {
  switch (severity) {
    case Severity::kError:
      return "error";
    case Severity::kWarning:
      return "warning";
    case Severity::kNote:
      break;
  }
  return "note";
}

Json finding_json(const Finding& finding) {
  return {{"file", finding.file}, {"line", finding.line},    {"severity", severity_name(finding.severity)},
          {"rule", finding.rule}, {"name", finding.name},    {"message", finding.message},
          {"fix", finding.fix},   {"source", finding.source}};
}

}  // namespace

std::string format_text(const CheckReport& report) {
  std::string out;
  for (const Finding& finding : report.findings) {
    out += fmt::format("{}:{}: {}: {} [{} {}]\n    fix: {}\n    source: {}\n", finding.file, finding.line,
                       severity_name(finding.severity), finding.message, finding.rule, finding.name, finding.fix,
                       finding.source);
  }
  for (const std::string& assumption : report.assumptions) out += fmt::format("checked as: {}\n", assumption);
  out += fmt::format("{} errors, {} warnings, {} notes\n", report.errors(), report.warnings(),
                     report.findings.size() - report.errors() - report.warnings());
  return out;
}

std::string format_json(const CheckReport& report) {
  Json root = {{"format", 1}, {"errors", report.errors()}, {"warnings", report.warnings()}};
  root["assumptions"] = report.assumptions;
  root["findings"] = Json::array();
  for (const Finding& finding : report.findings) root["findings"].push_back(finding_json(finding));
  return root.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string format_sarif(const CheckReport& report) {
  Json rules = Json::array();
  for (const RuleFacts& rule : preflight_facts().rules) {
    rules.push_back({{"id", rule.id},
                     {"name", rule.name},
                     {"shortDescription", {{"text", rule.title}}},
                     {"help", {{"text", rule.source}}}});
  }
  Json results = Json::array();
  for (const Finding& finding : report.findings) {
    const Json location = {
        {"physicalLocation",
         {{"artifactLocation", {{"uri", finding.file}}}, {"region", {{"startLine", finding.line}}}}}};
    results.push_back({{"ruleId", finding.rule},
                       {"level", severity_name(finding.severity)},
                       {"message", {{"text", finding.message + " Fix: " + finding.fix}}},
                       {"locations", Json::array({location})}});
  }
  const Json driver = {{"name", "perigee plan check"}, {"rules", rules}};
  const Json run = {{"tool", {{"driver", driver}}}, {"results", results}};
  const Json root = {
      {"$schema", "https://json.schemastore.org/sarif-2.1.0.json"}, {"version", "2.1.0"}, {"runs", Json::array({run})}};
  return root.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace perigee::planner
