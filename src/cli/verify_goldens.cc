// perigee verify goldens DIR: any folder in the golden layout against this build.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "verify/golden.h"

namespace perigee::cli {

void register_verify_goldens(const CommandGroups& groups, int& exit_code) {
  struct Arguments {
    std::string directory;
    std::string path = "f32";
    std::string isa;
    int threads = 0;
    bool json = false;
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = groups.verify->add_subcommand("goldens", "Compare the forward pass with golden folders");
  command->add_option("dir", arguments->directory, "A golden folder, or a folder of them")->required();
  command->add_option("--path", arguments->path, "Activations: f32 or bf16")->check(CLI::IsMember({"f32", "bf16"}));
  command->add_option("--isa", arguments->isa,
                      "scalar, avx2, avx512, avx512bf16 or amx (default: PERIGEE_ISA or the best)");
  command->add_option("--threads", arguments->threads, "Threads (default: one a core)")->check(CLI::Range(0, 1024));
  command->add_flag("--json", arguments->json, "Machine-readable report");
  command->callback([arguments, &exit_code] {
    const auto report = verify_goldens(arguments->directory,
                                       {.precision = arguments->path == "f32" ? Precision::kF32 : Precision::kBf16,
                                        .isa = arguments->isa,
                                        .threads = arguments->threads});
    if (!report.ok()) {
      std::fprintf(stderr, "perigee: %s\n", report.status().message().c_str());
      exit_code = 2;
      return;
    }
    std::puts(arguments->json ? report->to_json().dump(1).c_str() : report->to_table().c_str());
    exit_code = report->passed() ? 0 : 1;
  });
}

}  // namespace perigee::cli
