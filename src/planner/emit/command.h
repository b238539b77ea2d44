// Internal to the emitters: one process of the deployment, before it becomes a script, a container or a pod.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "planner/emit/emit.h"
#include "planner/preflight/facts.h"

namespace perigee::planner {

struct ServerCommand {
  const PoolPlan* pool = nullptr;
  std::int64_t instance = 0;
  std::int64_t node = 0;        // within the instance
  std::int64_t local_rank = 0;  // of several servers on one node
  std::string name;             // "prefill0-node2", "decode0-node0-rank1"
  std::string host;
  std::int64_t port = 0;  // 0: headless
  std::string devices;    // ASCEND_RT_VISIBLE_DEVICES, "" for all
  std::vector<std::pair<std::string, std::string>>
      environment;  // a value "$NIC" is the interface that the operator names
  std::vector<std::string> words;
};

// What the emitters of one plan share.
struct EmitContext {
  const Plan& plan;
  ModelFacts model;
  const ChipFacts* chip = nullptr;
  const Chip* silicon = nullptr;  // hardware.yaml
  const FlagTable* flags = nullptr;
  std::string image;
};

Result<std::vector<ServerCommand>> vllm_commands(const EmitContext& context);
Result<std::vector<ServerCommand>> sglang_commands(const EmitContext& context);

// Name of a pool's instance: "prefill0".
std::string instance_name(const PoolPlan& pool, std::int64_t instance);
const std::string& host_of(const PoolPlan& pool, std::int64_t instance, std::int64_t node);
std::int64_t api_port(const Plan& plan, Role role);

// Shell: single quotes where needed.
std::string quote(const std::string& word);
// YAML: always double quotes.
std::string yaml_quote(const std::string& text);
// A command over several lines: one flag with its values a line where it is long.
std::string wrap_command(const std::vector<std::string>& words, const std::string& indent);

// How the front reaches a server.
using HostName = std::function<std::string(const ServerCommand& command)>;
// The proxy (vLLM-Ascend) or router (SGLang) in front of the servers.
std::string front_script(const EmitContext& context, const std::vector<ServerCommand>& commands, const HostName& host);

std::vector<EmittedFile> node_scripts(const EmitContext& context, const std::vector<ServerCommand>& commands);
std::vector<EmittedFile> front_files(const EmitContext& context, const std::vector<ServerCommand>& commands);
std::vector<EmittedFile> compose_files(const EmitContext& context, const std::vector<ServerCommand>& commands);
std::vector<EmittedFile> kubernetes_files(const EmitContext& context, const std::vector<ServerCommand>& commands);
std::vector<EmittedFile> operation_files(const EmitContext& context, const std::vector<ServerCommand>& commands);

}  // namespace perigee::planner
