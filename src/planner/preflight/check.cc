#include "planner/preflight/check.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <tuple>

#include "base/file.h"
#include "planner/preflight/server.h"

namespace perigee::planner {

namespace {

constexpr std::size_t kMaxFiles = 256;
constexpr std::size_t kMaxFileBytes = std::size_t{4} << 20;
constexpr std::size_t kMaxFindings = 10000;

}  // namespace

std::size_t CheckReport::errors() const {
  return static_cast<std::size_t>(
      std::count_if(findings.begin(), findings.end(), [](const Finding& f) { return f.severity == Severity::kError; }));
}

std::size_t CheckReport::warnings() const {
  return static_cast<std::size_t>(std::count_if(findings.begin(), findings.end(),
                                                [](const Finding& f) { return f.severity == Severity::kWarning; }));
}

Rules::Rules(const LaunchSet& deployment, const CheckContext& context, CheckReport& report)
    : in_(deployment), context_(context), out_(report), facts_(preflight_facts()) {}

void Rules::report(std::string_view rule, Severity severity, const std::string& file, int line, std::string message,
                   std::string fix) {
  if (out_.findings.size() >= kMaxFindings) return;
  Finding finding;
  finding.file = file;
  finding.line = std::max(line, 1);
  finding.severity = severity;
  finding.rule = rule;
  finding.message = std::move(message);
  finding.fix = std::move(fix);
  if (const RuleFacts* facts = facts_.rule(rule)) {
    finding.name = facts->name;
    finding.source = facts->source;
  }
  out_.findings.push_back(std::move(finding));
}

void Rules::run() {
  servers_.reserve(in_.launches.size());
  for (const Launch& launch : in_.launches) {
    if (launch.kind == LaunchKind::kVllm || launch.kind == LaunchKind::kSglang) servers_.push_back(make_server(launch));
  }
  std::set<std::string> assumed;
  for (const Server& server : servers_) {
    std::string text = server.engine;
    if (server.facts != nullptr) text += fmt::format(", flags of {}", server.facts->version);
    if (!server.version.empty() && !server.exact_version) text += fmt::format(" (no table for {})", server.version);
    text += fmt::format(", chip {}", server.chip != nullptr ? server.chip->name : "not known (use --chip)");
    text +=
        fmt::format(", model {}", server.model.shape != nullptr ? server.model.shape->name : "without a known shape");
    if (assumed.insert(text).second) out_.assumptions.push_back(text);
  }
  stray_commands();
  for (const Server& server : servers_) {
    command_text(server);
    flags(server);
    values(server);
    config_keys(server);
    environment_names(server);
    placeholders(server);
    layout(server);
    context_parallel(server);
    mc2(server);
    mega_moe(server);
    graphs(server);
    memory(server);
    devices(server);
    formats(server);
    versions(server);
    companions(server);
    parsers(server);
    transfer_rules(server);
    environment_rules(server);
    pool_rules(server);
    ports(server);
    sglang(server);
  }
  nodes();
  prefill_decode();
  sglang_pd();
  proxies();
  online_dp();
  network();
  node_reports();
  ray();
  containers();
  // One place, one rule: the most severe message stays.
  std::stable_sort(out_.findings.begin(), out_.findings.end(), [](const Finding& a, const Finding& b) {
    return std::tie(a.file, a.line, a.rule, b.severity) < std::tie(b.file, b.line, b.rule, a.severity);
  });
  out_.findings.erase(std::unique(out_.findings.begin(), out_.findings.end(),
                                  [](const Finding& a, const Finding& b) {
                                    return a.file == b.file && a.line == b.line && a.rule == b.rule &&
                                           (a.message == b.message || a.rule != "8.27");
                                  }),
                      out_.findings.end());
}

Result<CheckReport> check_files(const std::vector<InputFile>& files, const CheckContext& context) {
  if (files.empty()) return invalid_argument("no files to check");
  if (files.size() > kMaxFiles)
    return invalid_argument("{} files; at most {} are checked together", files.size(), kMaxFiles);
  for (const InputFile& file : files) {
    if (file.content.size() > kMaxFileBytes) {
      return make_error(StatusCode::kResourceExhausted, "{}:1: {} bytes; at most {} are read", file.name,
                        file.content.size(), kMaxFileBytes);
    }
    ParseFailure failure;
    if (!plain_text(file.content, failure))
      return invalid_argument("{}:{}: {}", file.name, failure.line, failure.message);
  }
  const PreflightFacts& facts = preflight_facts();
  if (facts.engines.empty()) return make_error(StatusCode::kInternal, "the built-in preflight facts cannot be read");
  const auto table_of = [&](std::string_view engine) -> const FlagTable* {
    bool exact = false;
    const bool same = context.engine.empty() || context.engine == engine;
    const EngineFacts* entry = facts.engine(engine, same ? context.engine_version : std::string(), exact);
    if (entry == nullptr) return nullptr;
    const auto table = flag_table(entry->flags);
    return table.ok() ? *table : nullptr;
  };
  CheckContext used = context;
  // An image tag is a better witness than the newest version that we know.
  if (used.engine_version.empty()) {
    for (const InputFile& file : files) {
      const std::size_t at = file.content.find("vllm-ascend:v");
      if (at == std::string::npos) continue;
      const std::size_t begin = at + 13;
      std::size_t end = begin;
      while (end < file.content.size() &&
             (std::isalnum(static_cast<unsigned char>(file.content[end])) != 0 || file.content[end] == '.'))
        ++end;
      used.engine_version = file.content.substr(begin, end - begin);
      if (used.engine.empty()) used.engine = "vllm-ascend";
      break;
    }
  }
  ExtractTables tables;
  bool exact = false;
  const std::string vllm_engine = used.engine == "vllm" ? "vllm" : "vllm-ascend";
  const EngineFacts* vllm =
      facts.engine(vllm_engine, used.engine == "sglang" ? std::string() : used.engine_version, exact);
  if (vllm != nullptr) {
    const auto table = flag_table(vllm->flags);
    if (table.ok()) tables.vllm = *table;
  }
  tables.sglang = table_of("sglang");
  const LaunchSet deployment = read_launch_set(files, tables);
  CheckReport report;
  Rules(deployment, used, report).run();
  return report;
}

Result<std::vector<InputFile>> read_inputs(const std::vector<std::string>& paths) {
  std::vector<InputFile> files;
  for (const std::string& path : paths) {
    std::error_code error;
    if (std::filesystem::is_directory(path, error)) {
      return invalid_argument("{}: is a folder; name the files (or use --cases for a folder of cases)", path);
    }
    PERIGEE_ASSIGN_OR_RETURN(std::string content, read_file(path, kMaxFileBytes));
    files.push_back({path, std::move(content)});
  }
  return files;
}

}  // namespace perigee::planner
