#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/verify_text_suites.h"
#include "text/vectors.h"

namespace perigee::cli {
namespace {

constexpr std::size_t kShownFailures = 20;  // a file, without --json

struct VerifyTextOptions {
  std::string directory;
  bool json = false;
};

// Every suite that this build can run; one line for each further file of the layout.
std::vector<VectorSuite> suites() {
  std::vector<VectorSuite> all(std::begin(kTextSuites), std::end(kTextSuites));
  all.insert(all.end(), std::begin(kStructuredSuites), std::end(kStructuredSuites));
  return all;
}

// Cuts a long difference so that a report stays readable.
std::string shortened(const std::string& text) {
  constexpr std::size_t kLongest = 200;
  return text.size() <= kLongest ? text : text.substr(0, kLongest) + " ...";
}

void print(const char* file, const VectorReport& report) {
  std::cout << fmt::format("{:<16} {} of {} passed", file, report.passed, report.total)
            << (report.note.empty() ? "" : " (" + report.note + ")") << "\n";
  for (std::size_t i = 0; i < report.failures.size() && i < kShownFailures; ++i) {
    std::cout << "  " << shortened(report.failures[i]) << "\n";
  }
  if (report.failures.size() > kShownFailures) {
    std::cout << fmt::format("  ... and {} more\n", report.failures.size() - kShownFailures);
  }
}

// 0: all pass. 1: a case differs. 2: nothing to run, or an unreadable file.
int verify_text(const VerifyTextOptions& options) {
  int exit_code = 0;
  Json result = Json::object();
  for (const VectorSuite& suite : suites()) {
    const std::string path = options.directory + "/" + suite.file;
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored)) continue;
    auto document = read_json_file(path);
    Result<VectorReport> report = document.ok() ? suite.run(*document) : Result<VectorReport>(document.status());
    if (!report.ok()) {
      std::cerr << report.status().with_context(suite.file).message() << "\n";
      result[suite.file] = {{"error", report.status().message()}};
      exit_code = 2;
      continue;
    }
    result[suite.file] = {{"passed", report->passed}, {"total", report->total}, {"failures", report->failures}};
    if (!report->note.empty()) result[suite.file]["note"] = report->note;
    if (!options.json) print(suite.file, *report);
    if (report->passed != report->total && exit_code == 0) exit_code = 1;
  }
  if (result.empty()) {
    std::cerr << options.directory << ": expected vector files such as " << kTextSuites[0].file << ", found none\n";
    exit_code = 2;
  }
  if (options.json) std::cout << result.dump(2, ' ', false, Json::error_handler_t::replace) << "\n";
  return exit_code;
}

}  // namespace

void register_verify_text(const CommandGroups& groups, int& exit_code) {
  CLI::App* command = groups.verify->add_subcommand(
      "text", "Run tokenizer, prompt and answer vectors of a folder against this build (exit 1: a case differs)");
  const auto options = std::make_shared<VerifyTextOptions>();
  command->add_option("DIR", options->directory, "Folder with tokenizer.json, decode.json, render.json, parse.json ...")
      ->required();
  command->add_flag("--json", options->json, "Print the counts and all failures as JSON");
  command->callback([options, &exit_code] { exit_code = verify_text(*options); });
}

}  // namespace perigee::cli
