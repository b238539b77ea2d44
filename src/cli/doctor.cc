// `perigee doctor`: what this machine can do for us, and what holds it back.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/threads.h"
#include "cli/commands.h"
#include "kernels/paths.h"

namespace perigee::cli {
namespace {

std::string line_of(const std::string& path, std::string_view key) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(key)) continue;
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) return line;
    const std::size_t first = line.find_first_not_of(" \t", colon + 1);
    return first == std::string::npos ? "" : line.substr(first);
  }
  return "";
}

// "/proc/meminfo" lines read "MemTotal:   24000000 kB".
double gibibytes(std::string_view key) {
  const std::string value = line_of("/proc/meminfo", key);
  return value.empty() ? 0 : std::strtod(value.c_str(), nullptr) / (1024.0 * 1024.0);
}

// The bracketed word of "always [madvise] never".
std::string transparent_huge_pages() {
  const std::string line = line_of("/sys/kernel/mm/transparent_hugepage/enabled", "");
  const std::size_t open = line.find('[');
  const std::size_t close = line.find(']');
  return open == std::string::npos || close == std::string::npos ? "unknown" : line.substr(open + 1, close - open - 1);
}

int run(bool json) {
  const Result<const Kernels*> best = select_kernels("");
  const Result<const Kernels*> chosen = default_kernels();
  std::vector<std::string> problems;
  if (!chosen.ok()) problems.push_back(chosen.status().message());
  const std::string pages = transparent_huge_pages();
  if (pages == "never") {
    problems.emplace_back(
        "transparent huge pages are off: caches and converted weights will use 4 KiB pages (echo madvise > "
        "/sys/kernel/mm/transparent_hugepage/enabled)");
  }
  const int cores = ThreadPool().size();
  const double total = gibibytes("MemTotal");
  const double available = gibibytes("MemAvailable");

  Json report = {{"cpu", line_of("/proc/cpuinfo", "model name")},
                 {"cores", cores},
                 {"memory_gib", total},
                 {"available_gib", available},
                 {"transparent_huge_pages", pages},
                 {"paths", Json::array()},
                 {"missing_paths", Json::array()},
                 {"recommended_path", best.ok() ? std::string((*best)->isa) : ""},
                 {"chosen_path", chosen.ok() ? std::string((*chosen)->isa) : ""},
                 {"problems", problems}};
  for (const Kernels* kernels : runnable_kernels()) report["paths"].push_back(std::string(kernels->isa));
  for (const std::string& missing : missing_kernels()) report["missing_paths"].push_back(missing);

  if (json) {
    fmt::print("{}\n", report.dump(1));
  } else {
    fmt::print("cpu                   {}\n", report["cpu"].get<std::string>());
    fmt::print("physical cores usable {}\n", cores);
    fmt::print("memory                {:.1f} GiB, {:.1f} GiB available\n", total, available);
    fmt::print("huge pages            {}\n", pages);
    for (const Kernels* kernels : runnable_kernels()) fmt::print("path                  {}\n", kernels->isa);
    for (const std::string& missing : missing_kernels()) fmt::print("not on this machine   {}\n", missing);
    if (chosen.ok()) fmt::print("runs with             {} (PERIGEE_ISA forces another)\n", (*chosen)->isa);
    for (const std::string& problem : problems) fmt::print("problem               {}\n", problem);
  }
  return chosen.ok() ? 0 : 1;
}

}  // namespace

void register_doctor(const CommandGroups& groups, int& exit_code) {
  CLI::App* command = groups.root->add_subcommand("doctor", "What this machine can do: instructions, cores, memory");
  auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "Machine-readable report");
  command->callback([json, &exit_code] { exit_code = run(*json); });
}

}  // namespace perigee::cli
