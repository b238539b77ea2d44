// Readers and rules of preflight on hostile shell, YAML and JSON: no crash, no hang, nothing outside the input touched.
// The first byte chooses the kind of file; the rest is its content.
#include <cstddef>
#include <cstdint>
#include <string>

#include "planner/preflight/check.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  static const char* const kNames[] = {"a.sh", "a.yaml", "a.json", "b.sh"};
  static const char* const kChips[] = {"a2", "a3", "950", ""};
  perigee::planner::CheckContext context;
  context.chip = kChips[(data[0] >> 2) & 3];
  context.engine_version = (data[0] & 16) != 0 ? "0.23.0" : "0.30.0rc2";
  context.model = "Kimi-K3-w4a8";
  const std::string content(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto report = perigee::planner::check_files({{kNames[data[0] & 3], content}}, context);
  if (report.ok()) {
    (void)perigee::planner::format_json(*report);
    (void)perigee::planner::format_sarif(*report);
  }
  return 0;
}
