#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "text/utf8.h"
#include "verify/endpoint/endpoint.h"

namespace perigee::verify {
namespace {

constexpr std::size_t kShownFailures = 10;  // of one check, outside JSON

// One line without control characters: texts of the endpoint end up in terminals.
std::string printable_line(std::string_view text) {
  std::string out = valid_utf8(text);
  std::replace_if(out.begin(), out.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, ' ');
  return out;
}

std::string html_text(std::string_view text) {
  std::string out;
  for (const char c : printable_line(text)) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

// A Markdown table markdown_cell: neither columns nor tags nor emphasis come from the text.
std::string markdown_cell(std::string_view text) {
  std::string out;
  for (const char c : html_text(text)) {
    if (std::string_view("|*_`[]\\").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

std::string count_text(const EndpointCheck& check) {
  return check.total == 0 ? "" : fmt::format("{} of {}", check.passed, check.total);
}

std::string summary_text(const EndpointReport& report) {
  return fmt::format("{} passed, {} failed, {} not offered, {} inconclusive; {} requests in {:.1f} s",
                     report.count(Verdict::kPass), report.count(Verdict::kFail), report.count(Verdict::kNotOffered),
                     report.count(Verdict::kInconclusive), report.requests, report.seconds);
}

// The failures that reports show, and how many there are beside them.
std::vector<std::string> shown_failures(const EndpointCheck& check) {
  std::vector<std::string> out(
      check.failures.begin(),
      check.failures.begin() + std::min(std::ssize(check.failures), static_cast<std::ptrdiff_t>(kShownFailures)));
  if (check.failures.size() > kShownFailures) {
    out.push_back(fmt::format("... and {} more", check.failures.size() - kShownFailures));
  }
  return out;
}

}  // namespace

std::string_view verdict_name(Verdict verdict) {
  constexpr std::array<std::string_view, 4> names = {"pass", "fail", "not offered", "inconclusive"};
  return names[static_cast<std::size_t>(verdict)];
}

std::size_t EndpointReport::count(Verdict verdict) const {
  return static_cast<std::size_t>(std::count_if(
      checks.begin(), checks.end(), [verdict](const EndpointCheck& check) { return check.verdict == verdict; }));
}

std::string to_text(const EndpointReport& report) {
  std::string out = fmt::format("{}  model {}{}\n", printable_line(report.endpoint), printable_line(report.model),
                                report.reference.empty() ? "" : "  reference " + printable_line(report.reference));
  for (const EndpointCheck& check : report.checks) {
    out += fmt::format("{:<12} {:<34} {:<13} {:<12} {}\n", check.suite, check.name, verdict_name(check.verdict),
                       count_text(check), printable_line(check.detail));
    for (const std::string& failure : shown_failures(check)) out += "    " + printable_line(failure) + "\n";
  }
  return out + summary_text(report) + "\n";
}

std::string to_markdown(const EndpointReport& report) {
  std::string out =
      fmt::format("# Acceptance of {}\n\nModel: {}", markdown_cell(report.endpoint), markdown_cell(report.model));
  if (!report.reference.empty()) out += "\nReference: " + markdown_cell(report.reference);
  out += fmt::format("\n\nVerdict: **{}** ({})\n\n", report.passed() ? "pass" : "fail", summary_text(report));
  out += "| Suite | Check | Verdict | Cases | Detail |\n| --- | --- | --- | --- | --- |\n";
  for (const EndpointCheck& check : report.checks) {
    out += fmt::format("| {} | {} | {} | {} | {} |\n", markdown_cell(check.suite), markdown_cell(check.name),
                       verdict_name(check.verdict), count_text(check), markdown_cell(check.detail));
  }
  for (const EndpointCheck& check : report.checks) {
    if (check.failures.empty()) continue;
    out += fmt::format("\n## {}: {}\n\n", markdown_cell(check.suite), markdown_cell(check.name));
    for (const std::string& failure : shown_failures(check)) out += "- " + markdown_cell(failure) + "\n";
  }
  return out;
}

std::string to_html(const EndpointReport& report) {
  std::string out =
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Acceptance "
      "report</title>\n<style>\n"
      "body{font:15px/1.45 system-ui,sans-serif;margin:2em auto;max-width:70em;padding:0 1em;color:#1b1f24}\n"
      "table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:.35em .7em;vertical-align:top;"
      "border-bottom:1px solid #d7dce1}\n"
      ".pass{color:#116329}.fail{color:#a40e26;font-weight:600}.none{color:#57606a}li{margin:.2em 0}\n"
      "@media(prefers-color-scheme:dark){body{background:#11151a;color:#d6dbe1}th,td{border-color:#30363d}"
      ".pass{color:#57ab5a}.fail{color:#f47067}.none{color:#8b949e}}\n</style></head><body>\n";
  out += fmt::format("<h1>Acceptance of {}</h1>\n<p>Model: {}", html_text(report.endpoint), html_text(report.model));
  if (!report.reference.empty()) out += "<br>Reference: " + html_text(report.reference);
  out += fmt::format("<br>Verdict: <span class=\"{0}\">{0}</span> ({1})</p>\n", report.passed() ? "pass" : "fail",
                     summary_text(report));
  out += "<table>\n<tr><th>Suite</th><th>Check</th><th>Verdict</th><th>Cases</th><th>Detail</th></tr>\n";
  for (const EndpointCheck& check : report.checks) {
    const char* style = check.verdict == Verdict::kPass ? "pass" : check.verdict == Verdict::kFail ? "fail" : "none";
    out += fmt::format("<tr><td>{}</td><td>{}</td><td class=\"{}\">{}</td><td>{}</td><td>{}", html_text(check.suite),
                       html_text(check.name), style, verdict_name(check.verdict), count_text(check),
                       html_text(check.detail));
    if (!check.failures.empty()) {
      out += "<ul>";
      for (const std::string& failure : shown_failures(check)) out += "<li>" + html_text(failure) + "</li>";
      out += "</ul>";
    }
    out += "</td></tr>\n";
  }
  return out + "</table>\n</body></html>\n";
}

Json to_json(const EndpointReport& report) {
  Json checks = Json::array();
  for (const EndpointCheck& check : report.checks) {
    checks.push_back({{"suite", check.suite},
                      {"name", check.name},
                      {"verdict", verdict_name(check.verdict)},
                      {"passed", check.passed},
                      {"total", check.total},
                      {"detail", check.detail},
                      {"failures", check.failures}});
  }
  return {{"endpoint", report.endpoint}, {"model", report.model},       {"reference", report.reference},
          {"passed", report.passed()},   {"requests", report.requests}, {"seconds", report.seconds},
          {"checks", std::move(checks)}};
}

}  // namespace perigee::verify
