#include "planner/emit/emit.h"

#include <algorithm>
#include <filesystem>

#include "base/file.h"
#include "planner/emit/command.h"

namespace perigee::planner {

namespace {

Status check_text(std::string_view what, const std::string& text) {
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 32 || byte == 127 || c == '\'' || c == '"' || c == '$' || c == '`' || c == '\\') {
      return invalid_argument("plan: {} \"{}\": quotes, dollars, backslashes and control characters have no place here",
                              what, text);
    }
  }
  return {};
}

Result<EmitContext> make_context(const Plan& plan) {
  PERIGEE_RETURN_IF_ERROR(check_plan(plan));
  PERIGEE_RETURN_IF_ERROR(check_text("name", plan.name));
  PERIGEE_RETURN_IF_ERROR(check_text("checkpoint", plan.checkpoint));
  PERIGEE_RETURN_IF_ERROR(check_text("served_name", plan.served_name));
  PERIGEE_RETURN_IF_ERROR(check_text("network_interface", plan.network_interface));
  if (plan.checkpoint.empty()) return invalid_argument("plan: checkpoint: give the path or name that the engine loads");
  for (const PoolPlan& pool : plan.pools) {
    if (pool.hosts.size() != static_cast<std::size_t>(pool.instances * pool.nodes)) {
      return invalid_argument("plan: pool {}: hosts: expected {} addresses, found {}", role_name(pool.role),
                              pool.instances * pool.nodes, pool.hosts.size());
    }
    for (const std::string& host : pool.hosts) PERIGEE_RETURN_IF_ERROR(check_text("hosts", host));
    PERIGEE_RETURN_IF_ERROR(check_text("draft.checkpoint", pool.draft.checkpoint));
    PERIGEE_RETURN_IF_ERROR(check_text("draft.method", pool.draft.method));
  }
  EmitContext context{plan, {}, nullptr, nullptr, nullptr, {}};
  const PreflightFacts& facts = preflight_facts();
  context.model = facts.model(plan.model);
  context.model.format = plan.format;
  context.chip = facts.chip(plan.chip);
  if (context.chip == nullptr) return invalid_argument("plan: chip \"{}\": expected a2, a3 or 950", plan.chip);
  const std::string engine(engine_name(plan.engine));
  bool exact = false;
  const EngineFacts* entry = facts.engine(engine, plan.engine_version, exact);
  if (entry == nullptr || !exact) {
    std::vector<std::string> known;
    for (const EngineFacts& candidate : facts.engines) {
      if (candidate.engine == engine) known.push_back(candidate.version);
    }
    return invalid_argument("plan: engine_version \"{}\": no flag table of {}; known: {}", plan.engine_version, engine,
                            fmt::join(known, ", "));
  }
  PERIGEE_ASSIGN_OR_RETURN(context.flags, flag_table(entry->flags));
  context.image = plan.engine == Engine::kSglang
                      ? fmt::format("sglang-ascend:v{}", plan.engine_version)
                      : fmt::format("ascend/vllm-ascend:v{}{}", plan.engine_version, context.chip->images.front());
  return context;
}

}  // namespace

Result<CheckReport> check_emitted(const Plan& plan, const std::vector<EmittedFile>& files) {
  CheckContext context;
  context.engine = engine_name(plan.engine);
  context.engine_version = plan.engine_version;
  context.model = plan.model;
  context.chip = plan.chip;
  context.devices_per_node = plan.devices_per_node;
  // Scripts, containers and pods are three ways to start the same processes: each is checked by itself.
  CheckReport all;
  for (const std::string_view folder : {"nodes/", "compose/", "kubernetes/"}) {
    std::vector<InputFile> inputs;
    for (const EmittedFile& file : files) {
      const bool front = file.path.rfind("proxy/", 0) == 0 || file.path.rfind("mooncake/", 0) == 0;
      const bool script = file.path.size() > 5 && file.path.substr(file.path.size() - 5) != ".conf";
      if (file.path.rfind(folder, 0) == 0 || (front && script && folder == "nodes/"))
        inputs.push_back({file.path, file.content});
    }
    if (inputs.empty()) continue;
    PERIGEE_ASSIGN_OR_RETURN(CheckReport report, check_files(inputs, context));
    all.findings.insert(all.findings.end(), report.findings.begin(), report.findings.end());
    if (all.assumptions.empty()) all.assumptions = report.assumptions;
  }
  return all;
}

Result<std::vector<EmittedFile>> emit_plan(const Plan& plan) {
  PERIGEE_ASSIGN_OR_RETURN(const EmitContext context, make_context(plan));
  auto made = plan.engine == Engine::kSglang ? sglang_commands(context) : vllm_commands(context);
  if (!made.ok()) return made.status();
  const std::vector<ServerCommand>& commands = *made;
  std::vector<EmittedFile> files;
  for (auto* part : {&node_scripts, &front_files, &compose_files, &kubernetes_files, &operation_files}) {
    for (EmittedFile& file : part(context, commands)) files.push_back(std::move(file));
  }
  files.push_back({"plan.yaml", format_plan(plan), false});
  PERIGEE_ASSIGN_OR_RETURN(const CheckReport report, check_emitted(plan, files));
  if (report.errors() + report.warnings() == 0) return files;
  std::string problems;
  for (const Finding& finding : report.findings) {
    if (finding.severity == Severity::kNote) continue;
    problems += fmt::format("\n  {}:{}: {} {} (fix: {})", finding.file, finding.line, finding.rule, finding.message,
                            finding.fix);
  }
  return invalid_argument("the plan's files do not pass preflight:{}", problems);
}

Status write_emitted(const std::vector<EmittedFile>& files, const std::string& directory) {
  namespace fs = std::filesystem;
  for (const EmittedFile& file : files) {
    const fs::path path = fs::path(directory) / file.path;
    std::error_code error;
    fs::create_directories(path.parent_path(), error);
    if (error) return make_error(StatusCode::kUnavailable, "{}: {}", path.parent_path().string(), error.message());
    PERIGEE_RETURN_IF_ERROR(write_file(path.string(), file.content));
    if (!file.executable) continue;
    fs::permissions(path, fs::perms::owner_exec | fs::perms::group_exec | fs::perms::others_exec, fs::perm_options::add,
                    error);
    if (error) return make_error(StatusCode::kUnavailable, "{}: {}", path.string(), error.message());
  }
  return {};
}

}  // namespace perigee::planner
