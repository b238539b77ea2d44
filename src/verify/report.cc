#include "verify/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace perigee {

bool CheckReport::passed() const {
  return std::all_of(lines.begin(), lines.end(), [](const CheckLine& line) { return line.passed; });
}

std::string CheckReport::to_table() const {
  std::string text = fmt::format("{}\n{:<14} {:<8} {:<22} {:>10} {:>10}  {}\n", title, "config", "item", "quantity",
                                 "worst", "tolerance", "verdict");
  for (const CheckLine& line : lines) {
    text += fmt::format("{:<14} {:<8} {:<22} {:>10.2e} {:>10.2e}  {}{}{}\n", line.config, line.item, line.quantity,
                        line.worst, line.tolerance, line.passed ? "ok" : "FAILED", line.note.empty() ? "" : "  ",
                        line.note);
  }
  const auto failed = std::count_if(lines.begin(), lines.end(), [](const CheckLine& line) { return !line.passed; });
  text += fmt::format("{} checks, {} failed\n", lines.size(), failed);
  return text;
}

Json CheckReport::to_json() const {
  Json checks = Json::array();
  for (const CheckLine& line : lines) {
    checks.push_back({{"config", line.config},
                      {"item", line.item},
                      {"quantity", line.quantity},
                      {"worst", line.worst},
                      {"tolerance", line.tolerance},
                      {"passed", line.passed},
                      {"note", line.note}});
  }
  return {{"title", title}, {"passed", passed()}, {"checks", std::move(checks)}};
}

}  // namespace perigee
