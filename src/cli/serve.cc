// perigee serve [DIR]: the HTTP server over a model.
#include <malloc.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>

#include "cli/bench.h"
#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/model_source.h"
#include "cli/serve_options.h"

namespace perigee::cli {
namespace {

std::int64_t parameters_of(const Checkpoint& checkpoint) {
  std::int64_t elements = 0;
  for (const TensorView& tensor : checkpoint.tensors()) elements += tensor.shape.elements();
  return elements;
}

// Half a second at most. The kernels have been chosen by then, so the second selection cannot fail.
server::MachineLimits machine_limits(const EngineFlags& engine) {
  const auto kernels = default_kernels(engine.isa);
  if (!kernels.ok() || (*kernels)->isa == "scalar") return {};
  const int threads = ThreadPool(engine.threads).size();  // 0 asks for one a core
  std::int64_t bytes = std::int64_t{512} << 20;
  // Within the memory that was asked for: the weights are mapped and hardly read yet.
  if (const auto memory = parse_bytes(engine.memory); memory.ok()) bytes = std::min(bytes, *memory / 2);
  const Roofline roofline = measure_roofline(threads, /*budget=*/0.05, bytes);
  return {.read_bytes = roofline.read, .flops = roofline.flops_of((*kernels)->isa)};
}

// Key pages, states and replies come and go in sizes from 100 KiB up. In the heaps of malloc they leave holes, a fifth
// of the plan on a small model; blocks of their own go back to the system.
void keep_large_blocks_out_of_heaps() {
  ::mallopt(M_MMAP_THRESHOLD, 128 << 10);
}

Status serve(const EngineFlags& engine, const ServeFlags& flags) {
  keep_large_blocks_out_of_heaps();
  PERIGEE_ASSIGN_OR_RETURN(server::RunOptions options, run_options(flags));
  LoadedModel model;  // outlives the server
  return server::run_server(std::move(options), [&]() -> Result<server::ServedModel> {
    PERIGEE_ASSIGN_OR_RETURN(model, load_model(engine, flags.quiet));
    if (model.generated) {
      std::fprintf(stderr, "perigee: no model folder was given; serving a generated model whose text means nothing\n");
    }
    return server::ServedModel{.engine = model.engine.get(),
                               .tokenizer = *model.tokenizer,
                               .dialect = model.dialect,
                               .name = model.name,
                               .parameters = parameters_of(*model.checkpoint),
                               .limits = machine_limits(engine)};
  });
}

}  // namespace

void register_serve(const CommandGroups& groups, int& exit_code) {
  auto engine = std::make_shared<EngineFlags>();
  auto flags = std::make_shared<ServeFlags>();
  CLI::App* command = groups.root->add_subcommand("serve", "Serve a model over HTTP (OpenAI and Anthropic APIs)");
  add_engine_flags(*command, *engine);
  add_serve_flags(*command, *flags);
  command->callback([engine, flags, &exit_code] {
    const Status status = serve(*engine, *flags);
    if (!status.ok()) std::fprintf(stderr, "perigee: %s\n", status.message().c_str());
    exit_code = exit_code_of(status);
  });
}

}  // namespace perigee::cli
