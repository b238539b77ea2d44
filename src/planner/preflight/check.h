// `perigee plan check`: reads launch files and reports what would fail, hang or be ignored, before anything starts.
// Nothing in a checked file is executed and nothing outside the given files is opened.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "planner/preflight/launch_set.h"

namespace perigee::planner {

enum class Severity : std::uint8_t { kNote, kWarning, kError };

struct Finding {
  std::string file;
  int line = 0;  // 1-based
  Severity severity = Severity::kError;
  std::string rule;  // "8.27": section of spec ascend.md
  std::string name;  // "unknown-flag"
  std::string message;
  std::string fix;
  std::string source;
};

// What the files do not say themselves. Empty fields are taken from the files where these name an image, and rules
// that need the rest stay silent.
struct CheckContext {
  std::string engine;  // "vllm-ascend", "vllm", "sglang"
  std::string engine_version;
  std::string model;  // name or path of the served checkpoint
  std::string chip;   // "a2", "a3", "950"
  std::int64_t nodes = 0;
  std::int64_t devices_per_node = 0;
};

struct CheckReport {
  std::vector<Finding> findings;         // by file and line
  std::vector<std::string> assumptions;  // engine version, chip and model that the rules used
  std::size_t errors() const;
  std::size_t warnings() const;
};

// At most 256 files of 4 MiB. A file that is too large, no text or too deeply nested is a finding of rule "input".
Result<CheckReport> check_files(const std::vector<InputFile>& files, const CheckContext& context);

// Reads the files; folders are refused. Errors name the path.
Result<std::vector<InputFile>> read_inputs(const std::vector<std::string>& paths);

std::string format_text(const CheckReport& report);
std::string format_json(const CheckReport& report);
std::string format_sarif(const CheckReport& report);

// --- cases ---------------------------------------------------------------------------------------------------------

struct CaseCounts {
  int expected = 0, found = 0, exact_line = 0, severity_right = 0, fix_right = 0;
};

struct CasesReport {
  CaseCounts certain, likely;
  int clean_cases = 0, false_on_clean = 0, false_on_faulty = 0;
  std::vector<std::string> missed;  // one line each
  std::vector<std::string> false_alarms;
  bool good() const { return certain.found == certain.expected && false_on_clean == 0; }
};

// Runs a folder with a cases.json (format 1) and compares as its README says.
Result<CasesReport> run_cases(const std::string& directory);
std::string format_cases(const CasesReport& report);

}  // namespace perigee::planner
