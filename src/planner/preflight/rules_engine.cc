// Settings of one server that need or exclude each other, its checkpoint, image and environment. Rules 8.3, 8.10, 8.13,
// 8.15, 8.20, 8.21, 8.23, 8.24, 8.32, 8.35, 8.45, 8.46 of spec ascend.md.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "planner/preflight/server.h"

namespace perigee::planner {

namespace {

// "16GB", "16g", 17179869184 -> GB; nullopt when unreadable.
std::optional<double> gigabytes(const Value& value) {
  std::string text;
  std::string unit;
  for (const char c : value.str()) {
    if ((std::isdigit(static_cast<unsigned char>(c)) != 0 || c == '.') && unit.empty()) {
      text += c;
    } else if (c != ' ') {
      unit += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  const auto whole = human_integer(text);
  if (!whole) return std::nullopt;
  const auto number = static_cast<double>(*whole);
  if (unit.empty() || unit == "b") return number / 1e9;
  if (unit[0] == 'k') return number / 1e6;
  if (unit[0] == 'm') return number / 1e3;
  if (unit[0] == 'g') return number;
  if (unit[0] == 't') return number * 1e3;
  return std::nullopt;
}

}  // namespace

void Rules::formats(const Server& server) {
  if (!server.ascend() || server.chip == nullptr) return;
  const auto refused = [&](const std::string& format) { return contains(server.chip->formats_refused, format); };
  const std::string product = server.chip->name == "950"  ? "Ascend 950"
                              : server.chip->name == "a2" ? "Atlas A2"
                                                          : "Atlas A3";
  const std::string quantization = server.launch->text("--quantization");
  const int model_line = server.launch->model ? server.launch->model->line() : server.line();
  std::string format = server.model.format;
  // The configuration of the served folder knows better than its name.
  for (const JsonFile& json : in_.json_files) {
    const Value* method = find_path(json.root.get(), {"quantization_config", "quant_method"});
    if (json.root->find("model_type") == nullptr || method == nullptr) continue;
    format = method->str();
    if (format == "compressed-tensors") {
      const Value* kind = find_path(json.root.get(), {"quantization_config", "format"});
      format = kind != nullptr && kind->str().find("mxfp4") != std::string::npos ? "mxfp4" : "int4-g32";
    }
  }
  if (!format.empty() && refused(format)) {
    report(server, "8.3", Severity::kError, model_line,
           format == "w4a8"
               ? fmt::format("{} has no INT4 cube unit: it cannot serve INT W4A8 weights.", product)
               : fmt::format("{} cannot load {} weights; it needs INT weights made with ModelSlim.", product, format),
           format == "w4a8" ? "serve the released MXFP4 weights"
                            : fmt::format("serve {}-w4a8 (or -w8a8) with --quantization ascend", server.model.name));
    return;
  }
  if (refused(quantization) && quantization != "w4a8") {
    const Argument* argument = server.launch->argument("--quantization");
    report(server, "8.3", Severity::kError, argument->value_line(),
           fmt::format("{} has no FP8 unit: --quantization {} cannot run on it.", product, quantization),
           fmt::format("--quantization {}", server.sglang() ? "modelslim" : "ascend"));
  }
  const std::string cache = server.launch->text("--kv-cache-dtype");
  if (cache.rfind("fp8", 0) == 0 && refused("fp8")) {
    report(server, "8.3", Severity::kError, server.launch->argument("--kv-cache-dtype")->value_line(),
           fmt::format("{} has no FP8 unit: --kv-cache-dtype {} cannot run on it.", product, cache),
           "--kv-cache-dtype auto");
  }
}

void Rules::versions(const Server& server) {
  if (server.engine != "vllm-ascend") return;
  const bool image = server.container != nullptr && !server.container->image.value.empty();
  const std::string image_name = image ? server.container->image.value : std::string();
  const bool model_image = image_name.find("kimi-k3") != std::string::npos;
  if (!server.model.needs.empty() && !server.version.empty() && !model_image &&
      compare_versions(server.version, server.model.needs) < 0) {
    const std::string& file = image ? server.container->file : server.launch->file;
    report("8.35", Severity::kError, file, image ? server.container->image.line() : server.line(),
           fmt::format("{} needs vllm-ascend {} or later{}; {} fails on the model code.", server.model.name,
                       server.model.needs, server.model.needs == "0.26.0rc1" ? " (or the kimi-k3 image)" : "",
                       server.version),
           fmt::format("use an image of {} or later, for example v0.30.0rc2{}", server.model.needs,
                       server.chip != nullptr ? server.chip->images.front() : ""));
  }
  if (image && server.chip != nullptr && image_name.find("vllm-ascend") != std::string::npos) {
    const std::size_t colon = image_name.rfind(':');
    const std::string tag = colon == std::string::npos ? std::string() : image_name.substr(colon + 1);
    const bool release = !tag.empty() && (tag[0] == 'v' || std::isdigit(static_cast<unsigned char>(tag[0])) != 0);
    std::string ending;
    for (const std::string_view name : {"-a3", "-a5", "-310p"}) {
      if (tag.find(name) != std::string::npos) ending = name;
    }
    const std::string own = server.chip->images.front();
    if (release && ending != own && !(own.empty() && ending.empty())) {
      report("8.35", Severity::kError, server.container->file, server.container->image.line(),
             fmt::format("The image {} is built for another chip than {}.", tag, server.chip->name),
             fmt::format("the image with \"{}\" in its tag", own.empty() ? "no chip name" : own));
    }
  }
  if (image && server.container->environment.count("LD_PRELOAD") == 0) return;
  // Rule 8.46: the library's path follows the distribution of the image.
  const Setting* preload = server.launch->env("LD_PRELOAD");
  if (preload == nullptr || preload->text.value.find("libjemalloc") == std::string::npos) return;
  const std::string& path = preload->text.value;
  const bool debian = path.find("/usr/lib/aarch64-linux-gnu/") != std::string::npos;
  const bool euler = path.find("/usr/lib64/") != std::string::npos;
  const bool foreign = path.find("x86_64") != std::string::npos;
  if (image && image_name.find("openeuler") != std::string::npos && !euler) {
    report(
        "8.46", Severity::kWarning, server.launch->file, preload->line,
        "That is the Debian and Ubuntu path; the openEuler image keeps the library in /usr/lib64, so the loader only "
        "prints an error.",
        "LD_PRELOAD=/usr/lib64/libjemalloc.so.2");
  } else if (image && image_name.find("openeuler") == std::string::npos &&
             image_name.find("ascend") != std::string::npos && !debian && (euler || foreign)) {
    report("8.46", Severity::kWarning, server.launch->file, preload->line,
           "The image is Ubuntu for aarch64, which keeps the library in /usr/lib/aarch64-linux-gnu; the loader only "
           "prints an "
           "error.",
           "LD_PRELOAD=/usr/lib/aarch64-linux-gnu/libjemalloc.so.2");
  }
}

void Rules::companions(const Server& server) {
  const Launch& launch = *server.launch;
  if (!server.vllm()) return;
  const auto tp = server.tp.get(1);
  if (launch.flag("--enable-auto-tool-choice") && launch.argument("--tool-call-parser") == nullptr && !launch.open) {
    report(server, "8.32", Severity::kError, launch.argument("--enable-auto-tool-choice")->line,
           "--enable-auto-tool-choice needs --tool-call-parser; the server refuses to start.",
           fmt::format("--tool-call-parser {}", server.model.tool.empty() ? "NAME" : server.model.tool.front()));
  }
  const Argument* chunked = launch.argument("--enable-chunked-prefill");
  if (chunked != nullptr && !launch.flag("--enable-chunked-prefill") && server.batched.known() &&
      server.context.known() && server.batched.value < server.context.value) {
    report(server, "8.32", Severity::kError, server.line_of(server.batched),
           fmt::format("Without chunked prefill the whole prompt must fit one step: {} < {} is refused.",
                       server.batched.value, server.context.value),
           fmt::format("--max-num-batched-tokens {}, or leave chunked prefill on", server.context.value));
  }
  if (launch.flag("--enable-eplb") && !server.expert_parallel && !launch.open) {
    report(server, "8.32", Severity::kError, launch.argument("--enable-eplb")->line,
           "--enable-eplb needs --enable-expert-parallel.", "add --enable-expert-parallel");
  }
  if (!server.ascend()) return;
  int line = 0;
  if (server.flashcomm(line)) {
    if (tp && *tp == 1 && !launch.open) {
      report(server, "8.32", Severity::kError, line, "FlashComm1 splits the sequence over TP and needs TP > 1.",
             "--tensor-parallel-size above 1, or FlashComm1 off");
    } else if (server.model.experts() > 0 && !server.expert_parallel && !launch.open) {
      report(server, "8.32", Severity::kError, line,
             "FlashComm1 on a mixture-of-experts model asserts that expert parallelism is on.",
             "add --enable-expert-parallel");
    }
  }
  const Setting* blocking = launch.env("ASCEND_LAUNCH_BLOCKING");
  if (blocking != nullptr && blocking->text.value == "1" && !server.eager && !launch.open) {
    report(server, "8.32", Severity::kError, blocking->line, "Captured graphs refuse ASCEND_LAUNCH_BLOCKING=1.",
           "unset ASCEND_LAUNCH_BLOCKING, or --enforce-eager");
  }
  // Balance scheduling: key or, in older versions, environment.
  const Value* balance = server.key({"scheduler_config", "enable_balance_scheduling"});
  if (balance == nullptr) balance = server.key({"enable_balance_scheduling"});
  int balance_line = balance != nullptr && balance->boolean().value_or(false) ? balance->line : 0;
  if (const Setting* setting = launch.env("VLLM_ASCEND_BALANCE_SCHEDULING");
      setting != nullptr && setting->text.value == "1" && compare_versions(server.version, "0.26.0rc1") < 0) {
    balance_line = setting->line;
  }
  if (balance_line > 0 && server.disaggregated()) {
    report(server, "8.32", Severity::kError, balance_line,
           "Balance scheduling works without prefill/decode disaggregation only.", "remove enable_balance_scheduling");
  }
  const Value* hierarchy = server.key({"enable_mc2_hierarchy_comm"});
  const Value* algorithm = server.key({"mc2_comm_alg"});
  if (algorithm != nullptr && algorithm->str() == "hierarchy") hierarchy = algorithm;
  if (hierarchy != nullptr && (hierarchy == algorithm || hierarchy->boolean().value_or(false))) {
    if (server.model.experts() > 512) {
      report(server, "8.32", Severity::kError, hierarchy->line,
             fmt::format("Hierarchical communication supports at most 512 experts, {} has {}; the engine refuses.",
                         server.model.name, server.model.experts()),
             "remove the key enable_mc2_hierarchy_comm (the all-gather path is used)");
    } else if (server.switched_on({"enable_fused_mc2"})) {
      report(server, "8.32", Severity::kError, hierarchy->line,
             "Hierarchical communication and enable_fused_mc2 exclude each other.", "remove enable_mc2_hierarchy_comm");
    }
  }
  // Rule 8.15
  for (const Value* chunk :
       {server.key({"scheduler_config", "profiling_chunk_config"}), server.key({"profiling_chunk_config"})}) {
    const Value* enabled = chunk == nullptr ? nullptr : chunk->find("enabled");
    if (enabled == nullptr || !enabled->boolean().value_or(false) || server.pp.get(1) != std::optional<std::int64_t>(1))
      continue;
    report(server, "8.15", Severity::kError, enabled->line,
           "profiling_chunk_config needs --pipeline-parallel-size > 1; the engine refuses to start.",
           "set --pipeline-parallel-size 2, or remove the switch");
  }
}

void Rules::parsers(const Server& server) {
  const Launch& launch = *server.launch;
  if (launch.table == nullptr) return;
  struct Pair {
    const char* flag;
    const char* registry;
    const std::vector<std::string>* fitting;
  };
  const bool vllm = server.vllm();
  for (const Pair& pair :
       {Pair{"--tool-call-parser", "tool_call_parser", vllm ? &server.model.tool : &server.model.sglang_tool},
        Pair{"--reasoning-parser", "reasoning_parser",
             vllm ? &server.model.reasoning : &server.model.sglang_reasoning}}) {
    const Argument* argument = launch.argument(pair.flag);
    if (argument == nullptr || argument->values.empty() || pair.fitting->empty()) continue;
    const std::string& name = argument->values[0].text.value;
    const auto registry = launch.table->registries.find(pair.registry);
    if (name == "auto" || argument->values[0].text.unknown() || registry == launch.table->registries.end()) continue;
    if (!contains(registry->second, name) || contains(*pair.fitting, name)) continue;
    report(server, "8.32", Severity::kWarning, argument->value_line(),
           fmt::format("{} reads another markup; what {} writes stays in the text.", name, server.model.name),
           fmt::format("{} {}", pair.flag, pair.fitting->front()));
  }
}

void Rules::transfer_rules(const Server& server) {
  if (!server.vllm() || !server.ascend()) return;
  const auto recompute = [&]() -> const Value* {
    const Value* value = server.key({"scheduler_config", "recompute_scheduler_enable"});
    return value != nullptr ? value : server.key({"recompute_scheduler_enable"});
  }();
  if (recompute != nullptr && recompute->boolean().value_or(false) && !server.decode() &&
      server.role != PdRole::kHidden) {
    report(server, "8.13", server.prefill() ? Severity::kError : Severity::kWarning, recompute->line,
           "The recompute scheduler belongs to kv_consumer nodes only; elsewhere it is refused or ignored, by version.",
           "remove recompute_scheduler_enable here, keep it on the decode nodes");
  }
  if (server.transfer == nullptr) return;
  for (const Value* config : {server.transfer, server.connector, server.pool}) {
    const Value* policy = config == nullptr ? nullptr : config->find("kv_load_failure_policy");
    if (policy == nullptr || policy->str() != "recompute" || !server.model.hybrid()) continue;
    report(server, "8.32", Severity::kError, policy->line,
           fmt::format("{} is a hybrid model (recurrent state): the policy recompute raises an assertion at start.",
                       server.model.name),
           "\"kv_load_failure_policy\":\"fail\"");
    break;
  }
}

void Rules::environment_rules(const Server& server) {
  const Launch& launch = *server.launch;
  if (!server.ascend()) return;
  const Setting* mode = launch.env("HCCL_OP_EXPANSION_MODE");
  if (mode != nullptr && mode->text.value == "AIV" && server.chip_is("a2")) {
    const bool deepep = server.sglang() && launch.text("--moe-a2a-backend") == "deepep";
    const bool forbidden = deepep || server.model.guide_without_aiv_on_a2;
    report(server, "8.10", forbidden ? Severity::kError : Severity::kWarning, mode->line,
           deepep ? "DeepEP on A2 wants HCCL_OP_EXPANSION_MODE unset."
                  : "The guides for A2 keep HCCL_OP_EXPANSION_MODE unset.",
           "unset HCCL_OP_EXPANSION_MODE");
  }
  const auto seconds = [&](const char* name) -> std::optional<std::int64_t> {
    const Setting* setting = launch.env(name);
    return setting == nullptr ? std::nullopt : human_integer(setting->text.value);
  };
  const auto world = server.world();
  const double load = server.model.load_tb;
  if (const auto value = seconds("HCCL_CONNECT_TIMEOUT"); value && world && *world >= 32) {
    const std::int64_t wanted = *world >= 64 || load > 1 ? 1800 : 600;
    if (*value < wanted / 2) {
      report(server, "8.21", Severity::kWarning, launch.env("HCCL_CONNECT_TIMEOUT")->line,
             fmt::format("{} ranks load{} at different speeds; {} s is too short, the reference uses {}.", *world,
                         load > 0 ? fmt::format(" {} TB", load) : std::string(), *value, wanted),
             fmt::format("export HCCL_CONNECT_TIMEOUT={}", wanted));
    }
  }
  if (const auto value = seconds("VLLM_ENGINE_READY_TIMEOUT_S"); value && load > 1 && *value < 1800) {
    report(server, "8.21", Severity::kWarning, launch.env("VLLM_ENGINE_READY_TIMEOUT_S")->line,
           fmt::format("Loading {} TB takes longer than {} s.", load, *value),
           "export VLLM_ENGINE_READY_TIMEOUT_S=7200");
  }
  if (const auto value = seconds("HCCL_EXEC_TIMEOUT"); value && world && *world >= 16 && *value > 0 && *value < 300) {
    report(server, "8.21", Severity::kWarning, launch.env("HCCL_EXEC_TIMEOUT")->line,
           fmt::format("A collective of {} ranks waits for the slowest load or compile; {} s is too short.", *world,
                       *value),
           "export HCCL_EXEC_TIMEOUT=1836 (default) or more");
  }
  if (const auto value = seconds("ASCEND_CONNECT_TIMEOUT"); value && *value < 3000) {
    report(server, "8.21", Severity::kWarning, launch.env("ASCEND_CONNECT_TIMEOUT")->line,
           fmt::format("ASCEND_CONNECT_TIMEOUT is in milliseconds; {} is below the default of 3000.", *value),
           "export ASCEND_CONNECT_TIMEOUT=10000");
  }
  if (server.sglang() && load > 1) {
    const Number watchdog = launch.number("--watchdog-timeout");
    if (watchdog.known() && watchdog.value < 1800) {
      report(server, "8.21", Severity::kWarning, watchdog.line,
             fmt::format("The watchdog stops the server after {} s; loading {} TB takes longer.", watchdog.value, load),
             "--watchdog-timeout 9000");
    }
  }
  const auto transfer = seconds("ASCEND_TRANSFER_TIMEOUT");
  const Setting* transfer_setting = launch.env("ASCEND_TRANSFER_TIMEOUT");
  if (transfer && server.transfer != nullptr && server.context.known() && server.model.shape != nullptr) {
    const double bytes = static_cast<double>(server.context.value) * cache_bytes_per_token(*server.model.shape, 2);
    const double needed = bytes / 25e9 * 1000;
    if (static_cast<double>(*transfer) < needed) {
      report(server, "8.21", Severity::kWarning, transfer_setting->line,
             fmt::format("A prompt of {} tokens moves {:.1f} GB, {:.0f} ms at 25 GB/s; the timeout is {} ms.",
                         server.context.value, bytes / 1e9, needed, *transfer),
             fmt::format("export ASCEND_TRANSFER_TIMEOUT={}", align_up(static_cast<std::int64_t>(needed * 2), 1000)));
    }
  }
  const auto exponent = seconds("HCCL_RDMA_TIMEOUT");
  const auto retries = seconds("HCCL_RDMA_RETRY_CNT");
  if (transfer && (exponent || retries)) {
    const double wait = 4.096e-3 *
                        std::pow(2.0, static_cast<double>(std::clamp<std::int64_t>(exponent.value_or(20), 0, 31))) *
                        static_cast<double>(retries.value_or(7));
    if (wait >= static_cast<double>(*transfer)) {
      report(
          server, "8.24", Severity::kWarning, transfer_setting->line,
          fmt::format("RDMA retries last 4.096 us x 2^{} x {} = {:.0f} ms, longer than ASCEND_TRANSFER_TIMEOUT {} ms.",
                      exponent.value_or(20), retries.value_or(7), wait, *transfer),
          fmt::format("export ASCEND_TRANSFER_TIMEOUT={}, or a smaller HCCL_RDMA_TIMEOUT",
                      align_up(static_cast<std::int64_t>(wait) + 1, 1000)));
    }
  }
  if (server.facts == nullptr || server.facts->cann.empty() || !server.exact_version) return;
  for (std::size_t i = 0; i < in_.versions.size(); ++i) {
    const Setting& found = in_.versions[i];
    if (in_.version_files[i] != launch.file) continue;
    const std::string& wanted = server.facts->cann;
    const std::string minor = wanted.substr(0, wanted.rfind('.'));
    if (found.text.value.rfind(minor, 0) == 0) continue;
    report(server, "8.23", Severity::kError, found.line,
           fmt::format("{} {} is built for CANN {}; this path is CANN {}.", server.engine, server.version, wanted,
                       found.text.value),
           fmt::format("CANN {} with driver {}", wanted, fmt::join(server.facts->hdk, " or ")));
  }
}

// Rules 8.20 and 8.45: a pool over Mooncake.
void Rules::pool_rules(const Server& server) {
  if (!server.vllm() || server.pool == nullptr || !server.ascend()) return;
  const Launch& launch = *server.launch;
  const Value* backend = find_path(server.pool, {"kv_connector_extra_config", "backend"});
  if (backend != nullptr && backend->str() != "mooncake") return;
  const Value* segment = nullptr;
  const Value* protocol = nullptr;
  std::string config_file;
  for (const JsonFile& json : in_.json_files) {
    if (json.root->find("master_server_address") == nullptr && json.root->find("metadata_server") == nullptr) continue;
    segment = json.root->find("global_segment_size");
    protocol = json.root->find("protocol");
    config_file = json.file;
  }
  if (protocol != nullptr && protocol->str() != "ascend") return;
  const std::string fabric = launch.env_text("ASCEND_ENABLE_USE_FABRIC_MEM");
  const std::string roce = launch.env_text("HCCL_INTRA_ROCE_ENABLE");
  const Setting* buffer = launch.env("ASCEND_BUFFER_POOL");
  const bool hidden = launch.environment_open;
  if (server.chip_is("a2") && !hidden) {
    const bool buffer_off = buffer != nullptr && buffer->text.value == "0:0";
    if (!buffer_off || roce != "1") {
      const Setting* resource = launch.env("ASCEND_GLOBAL_RESOURCE_CONFIG");
      const int line = buffer != nullptr && !buffer_off ? buffer->line
                       : resource != nullptr            ? resource->line
                                                        : server.pool->line;
      report(server, "8.45", Severity::kError, line,
             "Device RoCE on A2 needs ASCEND_BUFFER_POOL=0:0 and HCCL_INTRA_ROCE_ENABLE=1; without them put starts and "
             "every transfer fails.",
             "export ASCEND_BUFFER_POOL=0:0 HCCL_INTRA_ROCE_ENABLE=1");
    }
  }
  if (server.chip_is("a3") && !hidden && fabric != "1" && roce != "1" && buffer == nullptr &&
      launch.env("ASCEND_ENABLE_USE_FABRIC_MEM") == nullptr) {
    report(server, "8.20", Severity::kWarning, server.pool->line,
           "On A3 host memory cannot be the remote side of a pool without fabric memory.",
           "export ASCEND_ENABLE_USE_FABRIC_MEM=1");
  }
  const auto size = segment == nullptr ? std::nullopt : gigabytes(*segment);
  const bool capped = server.chip_is("a2") || server.chip_is("a3");
  if (size && *size > 20 && capped && fabric != "1" && !hidden) {
    report("8.20", Severity::kError, config_file, segment->line,
           fmt::format("A process can register at most 20 GB of host memory on A2 and A3; the segment is {:.0f} GB.",
                       *size),
           "\"global_segment_size\": \"16GB\", or fabric memory on A3");
  }
  if (launch.env("PYTHONHASHSEED") == nullptr && !hidden) {
    report(server, "8.12", Severity::kNote, server.pool->line,
           "A pool shared by several processes needs the same PYTHONHASHSEED everywhere.", "export PYTHONHASHSEED=0");
  }
}

}  // namespace perigee::planner
