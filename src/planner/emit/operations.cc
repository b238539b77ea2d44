// Health checks, benchmark command, rollout and rollback notes.
#include <algorithm>

#include "planner/emit/command.h"

namespace perigee::planner {

namespace {

std::string served(const Plan& plan) {
  return plan.served_name.empty() ? plan.model : plan.served_name;
}

// Where clients go: the front, or the only server.
std::string front_url(const Plan& plan, const std::vector<ServerCommand>& commands) {
  const auto servers =
      std::count_if(commands.begin(), commands.end(), [](const ServerCommand& c) { return c.port > 0; });
  if (servers == 1) return fmt::format("http://{}:{}", commands.front().host, commands.front().port);
  return fmt::format("http://${{FRONT:-127.0.0.1}}:{}", plan.ports.proxy);
}

std::string health(const Plan& plan, const std::vector<ServerCommand>& commands) {
  std::string out =
      "#!/usr/bin/env bash\n# Every server answers, and a request through the front gives tokens. Exit code 0: "
      "healthy.\nset -uo pipefail\nfailed=0\nfor url in \\\n";
  for (const ServerCommand& command : commands) {
    if (command.port > 0) out += fmt::format("  http://{}:{} \\\n", command.host, command.port);
  }
  out +=
      "; do\n  if curl -fsS --max-time 10 -o /dev/null \"$url/health\"; then echo \"ok    $url\"; else echo \"DOWN  "
      "$url\"; failed=1; fi\ndone\n";
  out += fmt::format(
      "reply=$(curl -fsS --max-time 120 \"{}/v1/chat/completions\" -H 'Content-Type: application/json' \\\n"
      "  -d '{{\"model\":\"{}\",\"messages\":[{{\"role\":\"user\",\"content\":\"What is 17 + 25? Answer with the "
      "number.\"}}],"
      "\"max_tokens\":64,\"temperature\":0}}') || failed=1\n",
      front_url(plan, commands), served(plan));
  out +=
      "case \"$reply\" in\n  *42*) echo \"ok    answer\" ;;\n  *) echo \"WRONG answer: $reply\"; failed=1 "
      ";;\nesac\nexit $failed\n";
  return out;
}

std::string links(const Plan& plan) {
  std::string out =
      "#!/usr/bin/env bash\n# Run on every node before the first start: link, network health, gateway and TLS switch "
      "of each device.\nset -uo pipefail\n";
  out += fmt::format(
      "for i in $(seq 0 {}); do\n  for what in -lldp -link -net_health -netdetect -gateway -tls; do\n    echo \"== "
      "device $i $what\"\n"
      "    hccn_tool -i \"$i\" \"$what\" -g || echo \"FAILED device $i $what\"\n  done\ndone\n",
      plan.devices_per_node - 1);
  out += "cmp -s /etc/hccn.conf /dev/null && echo 'FAILED /etc/hccn.conf is empty'\n";
  if (plan.chip == "a3") out += "npu-smi info -t spod-info -i 0 || echo 'FAILED SuperPoD information'\n";
  return out;
}

std::string bench(const Plan& plan, const std::vector<ServerCommand>& commands) {
  const PoolPlan* pool = plan.pool(Role::kDecode) != nullptr ? plan.pool(Role::kDecode) : &plan.pools.front();
  const std::int64_t concurrency = pool->max_sequences * pool->parallel.dp * pool->instances;
  const std::int64_t input = std::min<std::int64_t>(8192, std::max<std::int64_t>(256, pool->max_model_len / 4));
  std::string out =
      "#!/usr/bin/env bash\n# Compare with the forecast in plan.yaml. Run twice: the first run warms graphs and "
      "caches.\nset -euo pipefail\n";
  out += fmt::format(
      "exec vllm bench serve --backend openai-chat --base-url \"{}\" --endpoint /v1/chat/completions \\\n"
      "  --model {} --tokenizer {} --dataset-name random --random-input-len {} --random-output-len 1024 \\\n"
      "  --num-prompts {} --max-concurrency {} --ignore-eos --percentile-metrics ttft,tpot,itl,e2el --seed 1\n",
      front_url(plan, commands), quote(served(plan)), quote(plan.checkpoint), input, concurrency * 4, concurrency);
  return out;
}

std::string rollout(const EmitContext& context, const std::vector<ServerCommand>& commands) {
  const Plan& plan = context.plan;
  std::string out = fmt::format("# {}: rollout and rollback\n\n", plan.name);
  out += fmt::format("{} as `{}`, {} {}, image `{}`, nodes of {} devices ({}).\n\n", plan.checkpoint, served(plan),
                     engine_name(plan.engine), plan.engine_version, context.image, plan.devices_per_node, plan.chip);
  out +=
      "| pool | instances | nodes each | TP | DP | PP | context | batched tokens | sequences | drafts "
      "|\n|---|---|---|---|---|---|---|---|---|---|\n";
  for (const PoolPlan& pool : plan.pools) {
    out += fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |\n", role_name(pool.role), pool.instances,
                       pool.nodes, pool.parallel.tp, pool.parallel.dp, pool.parallel.pp, pool.max_model_len,
                       pool.max_batched_tokens, pool.max_sequences, pool.draft.tokens);
  }
  out +=
      "\n## Before the first start\n\n1. `health/links.sh` on every node; TLS switches equal everywhere.\n"
      "2. The checkpoint is on every node under the same path, and its files have the same sizes.\n"
      "3. No other process holds devices (`npu-smi info`), and the ports below are free.\n";
  if (plan.network_interface.empty())
    out += "4. `export NIC=` the interface of the cluster network; the scripts ask for it.\n";
  out += "\n## Start\n\n";
  int step = 1;
  for (const PoolPlan& pool : plan.pools) {
    for (std::int64_t instance = 0; instance < pool.instances; ++instance) {
      out += fmt::format("{}. `nodes/{}-node*.sh`, all {} nodes within a minute of each other.\n", step++,
                         instance_name(pool, instance), pool.nodes);
    }
  }
  out += fmt::format(
      "{}. Wait until every server answers `/health` (loading takes minutes to an hour), then start what is in "
      "`proxy/`.\n",
      step++);
  out += fmt::format("{}. `health/check.sh`, then `bench/bench.sh`.\n\n", step);
  out +=
      "Containers: `docker compose -f compose/NODE.yaml up -d` on each node instead of the script. Kubernetes: "
      "`kubectl apply -f kubernetes/`; the "
      "device resource is `huawei.com/ascend-1980`, clusters with MindCluster call it `huawei.com/Ascend910`. One of "
      "the three ways, never two.\n\n";
  if (plan.engine == Engine::kVllmAscend && plan.disaggregated()) {
    out +=
        "`mooncake/mooncake.json` is for a shared cache pool (AscendStoreConnector, `MOONCAKE_CONFIG_PATH`); the "
        "transfer between prefill and decode "
        "does not need it.\n\n";
  }
  if (plan.engine == Engine::kSglang)
    out +=
        fmt::format("The image name `{}` is a local one: tag your SGLang build for Ascend with it.\n\n", context.image);
  out +=
      "## Change and rollback\n\n"
      "1. Keep the folder of the running version; write the new one beside it (`perigee plan emit PLAN.yaml --out "
      "NEW`), and read `diff -r OLD NEW`.\n";
  out += plan.disaggregated() ? "2. Prefill and decode must describe each other identically: change both sides "
                                "together. Stop the front, then decode, then prefill; start in "
                                "the other order.\n"
                              : "2. Take one instance out of the front, stop all its nodes, start the new version, "
                                "check, put it back. Nodes of one instance change together.\n";
  out +=
      "3. Roll back when `health/check.sh` fails, when answers are garbled, or when the benchmark is below the "
      "interval of the forecast: stop all nodes of "
      "the instance and start the old folder.\n"
      "4. After a rollback, caches of the other version are not reused; expect cold prefixes.\n\n## Ports\n\n";
  for (const ServerCommand& command : commands) {
    if (command.port > 0) out += fmt::format("- {} {}: API {}\n", command.host, command.name, command.port);
  }
  if (!plan.notes.empty()) {
    out += "\n## Notes of the plan\n\n";
    for (const std::string& note : plan.notes) out += fmt::format("- {}\n", note);
  }
  return out;
}

}  // namespace

std::vector<EmittedFile> operation_files(const EmitContext& context, const std::vector<ServerCommand>& commands) {
  return {{"health/check.sh", health(context.plan, commands), true},
          {"health/links.sh", links(context.plan), true},
          {"bench/bench.sh", bench(context.plan, commands), true},
          {"ROLLOUT.md", rollout(context, commands), false}};
}

}  // namespace perigee::planner
