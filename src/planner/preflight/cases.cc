// `perigee plan check --cases DIR`: a folder of launch files with known faults (cases.json, format 1).
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "base/file.h"
#include "planner/preflight/check.h"

namespace perigee::planner {

namespace {

// "8.27a" and "8.27-unknown-flag" are family "8.27".
std::string family(const std::string& rule) {
  std::size_t end = rule.find('.');
  if (end == std::string::npos) return rule;
  ++end;
  while (end < rule.size() && std::isdigit(static_cast<unsigned char>(rule[end])) != 0) ++end;
  return rule.substr(0, end);
}

struct Expected {
  std::string file, severity, fix, reason;
  std::vector<std::string> rules, severities;
  int line = 0, first = 0, last = 0;
  bool found = false, exact = false, severity_right = false, fix_right = false;
};

std::vector<std::string> case_strings(const Json& json, const char* key) {
  std::vector<std::string> out;
  if (json.contains(key)) {
    for (const Json& item : json[key]) out.push_back(item.get<std::string>());
  }
  return out;
}

// Words of a fix that name a flag, key, variable or value.
std::vector<std::string> fix_words(const std::string& text) {
  std::vector<std::string> words;
  std::string word;
  for (const char c : text + " ") {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 ||
        std::string_view("_-./:").find(c) != std::string_view::npos) {
      word += c;
      continue;
    }
    const bool name = word.find('_') != std::string::npos || word.rfind("--", 0) == 0 ||
                      word.find("/") != std::string::npos ||
                      (word.size() > 1 &&
                       std::any_of(word.begin(), word.end(), [](unsigned char x) { return std::isdigit(x) != 0; }));
    if (name) words.push_back(word);
    word.clear();
  }
  return words;
}

bool fix_right(const std::string& expected, const std::string& given) {
  const std::vector<std::string> words = fix_words(expected);
  if (words.empty()) return !given.empty();
  return std::any_of(words.begin(), words.end(),
                     [&](const std::string& word) { return given.find(word) != std::string::npos; });
}

std::string_view name_of(Severity severity) {
  return severity == Severity::kError ? "error" : severity == Severity::kWarning ? "warning" : "note";
}

Status run_case(const Json& entry, const std::string& directory, CasesReport& out) {
  const std::string id = entry.at("id").get<std::string>();
  CheckContext context;
  context.engine = entry.value("engine", std::string());
  context.engine_version = entry.value("engine_version", std::string());
  context.model = entry.value("model", std::string());
  const Json hardware = entry.value("hardware", Json::object());
  context.chip = hardware.value("chip", std::string());
  context.nodes = hardware.value("nodes", 0);
  context.devices_per_node = hardware.value("devices_per_node", 0);
  std::vector<InputFile> files;
  for (const std::string& path : case_strings(entry, "files")) {
    if (path.find("..") != std::string::npos)
      return invalid_argument("case {}: file \"{}\" leaves the folder", id, path);
    PERIGEE_ASSIGN_OR_RETURN(std::string content, read_file(directory + "/" + path, std::size_t{4} << 20));
    const std::size_t slash = path.find('/');
    files.push_back({slash == std::string::npos ? path : path.substr(slash + 1), std::move(content)});
  }
  const auto checked = check_files(files, context);
  if (!checked.ok()) return checked.status().with_context("case " + id);
  std::vector<Expected> expected;
  for (const Json& item : entry.value("expected", Json::array())) {
    Expected e;
    e.file = item.at("file").get<std::string>();
    e.line = item.at("line").get<int>();
    e.first = item.at("lines").at(0).get<int>();
    e.last = item.at("lines").at(1).get<int>();
    e.rules = case_strings(item, "rule_also");
    e.rules.push_back(item.at("rule").get<std::string>());
    e.severity = item.value("severity", std::string());
    e.severities = case_strings(item, "severity_also");
    e.severities.push_back(e.severity);
    e.fix = item.value("fix", std::string());
    e.reason = item.value("reason", std::string());
    expected.push_back(std::move(e));
  }
  const bool clean = expected.empty();
  if (clean) ++out.clean_cases;
  for (const Finding& finding : checked->findings) {
    if (finding.severity == Severity::kNote) continue;
    bool matched = false;
    for (Expected& e : expected) {
      const bool rule = std::any_of(e.rules.begin(), e.rules.end(),
                                    [&](const std::string& name) { return family(name) == family(finding.rule); });
      if (!rule || e.file != finding.file || finding.line < e.first || finding.line > e.last) continue;
      // The file's own finding of a line comes first: two expectations of one rule share a command's lines.
      const bool other_exact = std::any_of(expected.begin(), expected.end(), [&](const Expected& o) {
        return &o != &e && o.line == finding.line && o.file == finding.file && e.line != finding.line;
      });
      if (other_exact) continue;
      matched = true;
      e.found = true;
      e.exact = e.exact || e.line == finding.line;
      e.severity_right = e.severity_right || std::find(e.severities.begin(), e.severities.end(),
                                                       name_of(finding.severity)) != e.severities.end();
      e.fix_right = e.fix_right || fix_right(e.fix, finding.fix);
    }
    if (matched) continue;
    bool tolerated = false;
    for (const Json& item : entry.value("tolerated", Json::array())) {
      const bool rule = family(item.at("rule").get<std::string>()) == family(finding.rule);
      const bool file = !item.contains("file") || item["file"].get<std::string>() == finding.file;
      const bool severity =
          !item.contains("severity") || item["severity"].get<std::string>() == name_of(finding.severity);
      tolerated = tolerated || (rule && file && severity);
    }
    if (tolerated) continue;
    ++(clean ? out.false_on_clean : out.false_on_faulty);
    out.false_alarms.push_back(fmt::format("{}: {}:{}: {} {} {}", id, finding.file, finding.line,
                                           name_of(finding.severity), finding.rule, finding.message));
  }
  const bool certain = entry.value("confidence", std::string()) == "certain";
  CaseCounts& counts = certain ? out.certain : out.likely;
  for (const Expected& e : expected) {
    ++counts.expected;
    counts.found += e.found ? 1 : 0;
    counts.exact_line += e.exact ? 1 : 0;
    counts.severity_right += e.severity_right ? 1 : 0;
    counts.fix_right += e.fix_right ? 1 : 0;
    if (!e.found) {
      out.missed.push_back(fmt::format("{} ({}): {}:{}: {} {}", id, certain ? "certain" : "likely", e.file, e.line,
                                       e.rules.back(), e.reason));
    }
  }
  return {};
}

}  // namespace

Result<CasesReport> run_cases(const std::string& directory) {
  PERIGEE_ASSIGN_OR_RETURN(const Json root, read_json_file(directory + "/cases.json"));
  const bool known = root.is_object() && root.contains("format") && root["format"] == 1;
  if (!known || !root.contains("cases") || !root["cases"].is_array()) {
    return invalid_argument("{}/cases.json: expected format 1 with \"cases\"", directory);
  }
  CasesReport out;
  for (const Json& entry : root["cases"]) {
    if (!entry.is_object()) return invalid_argument("{}/cases.json: expected objects in \"cases\"", directory);
    try {
      PERIGEE_RETURN_IF_ERROR(run_case(entry, directory, out));
    } catch (const Json::exception& error) {
      return invalid_argument("{}/cases.json: case {}: {}", directory, entry.contains("id") ? entry["id"].dump() : "?",
                              error.what());
    }
  }
  return out;
}

std::string format_cases(const CasesReport& report) {
  std::string out;
  for (const std::string& line : report.missed) out += fmt::format("missed {}\n", line);
  for (const std::string& line : report.false_alarms) out += fmt::format("false  {}\n", line);
  const auto row = [&](std::string_view name, const CaseCounts& counts) {
    out += fmt::format("{:<8} expected {:>3}  found {:>3}  missed {:>3}  exact line {:>3}  severity {:>3}  fix {:>3}\n",
                       name, counts.expected, counts.found, counts.expected - counts.found, counts.exact_line,
                       counts.severity_right, counts.fix_right);
  };
  row("certain", report.certain);
  row("likely", report.likely);
  out += fmt::format("clean cases {}  false alarms in them {}  in faulty cases {}\n", report.clean_cases,
                     report.false_on_clean, report.false_on_faulty);
  return out;
}

}  // namespace perigee::planner
