// Shell: one script a node, and the front (proxy or router).
#include <algorithm>
#include <map>

#include "planner/emit/command.h"

namespace perigee::planner {

namespace {

constexpr std::size_t kColumns = 112;

// Words that hold a variable of the script ("$NIC", "$LWS_LEADER_ADDRESS:5000").
bool variable(const std::string& word) {
  return word.find('$') != std::string::npos && word.find('{') == std::string::npos;
}

std::string head(const EmitContext& context, const std::string& what) {
  return fmt::format(
      "#!/usr/bin/env bash\n# {}: {}. Written by perigee plan emit; change the plan, not this file.\nset -euo "
      "pipefail\n",
      context.plan.name, what);
}

std::vector<const ServerCommand*> fronts(const std::vector<ServerCommand>& commands, Role role) {
  std::vector<const ServerCommand*> out;
  for (const ServerCommand& command : commands) {
    if (command.pool->role == role && command.port > 0) out.push_back(&command);
  }
  return out;
}

std::vector<std::string> proxy_words(const EmitContext& context, const std::vector<ServerCommand>& commands,
                                     const HostName& host) {
  std::vector<std::string> words = {"exec",
                                    "python3",
                                    "\"$EXAMPLES/load_balance_proxy_server_example.py\"",
                                    "--host",
                                    "0.0.0.0",
                                    "--port",
                                    std::to_string(context.plan.ports.proxy)};
  for (const auto& [role, name] : {std::pair{Role::kPrefill, "prefiller"}, std::pair{Role::kDecode, "decoder"}}) {
    words.push_back(fmt::format("--{}-hosts", name));
    for (const ServerCommand* command : fronts(commands, role)) words.push_back(host(*command));
    words.push_back(fmt::format("--{}-ports", name));
    for (const ServerCommand* command : fronts(commands, role)) words.push_back(std::to_string(command->port));
  }
  return words;
}

std::vector<std::string> router_words(const EmitContext& context, const std::vector<ServerCommand>& commands,
                                      const HostName& host) {
  std::vector<std::string> words = {"exec", "python3", "-m", "sglang_router.launch_router"};
  const auto url = [&](const ServerCommand& command) {
    return fmt::format("http://{}:{}", host(command), command.port);
  };
  if (context.plan.disaggregated()) {
    words.emplace_back("--pd-disaggregation");
    for (const ServerCommand* command : fronts(commands, Role::kPrefill)) {
      words.insert(words.end(), {"--prefill", url(*command), std::to_string(context.plan.ports.bootstrap)});
    }
    for (const ServerCommand* command : fronts(commands, Role::kDecode)) {
      words.insert(words.end(), {"--decode", url(*command)});
    }
  } else {
    words.emplace_back("--worker-urls");
    for (const ServerCommand* command : fronts(commands, Role::kMixed)) words.push_back(url(*command));
  }
  words.insert(words.end(),
               {"--policy", "cache_aware", "--host", "0.0.0.0", "--port", std::to_string(context.plan.ports.proxy)});
  return words;
}

EmittedFile nginx(const EmitContext& context, const std::vector<ServerCommand>& commands) {
  std::string text = fmt::format(
      "# {}: front of several equal servers. Written by perigee plan emit.\nevents {{}}\nhttp {{\n  upstream servers "
      "{{\n    least_conn;\n",
      context.plan.name);
  for (const ServerCommand* command : fronts(commands, Role::kMixed)) {
    text += fmt::format("    server {}:{};\n", command->host, command->port);
  }
  text += fmt::format(
      "  }}\n  server {{\n    listen {};\n    location / {{\n      proxy_pass http://servers;\n      proxy_buffering "
      "off;\n"
      "      proxy_read_timeout 3600s;\n    }}\n  }}\n}}\n",
      context.plan.ports.proxy);
  return {"proxy/nginx.conf", text, false};
}

EmittedFile mooncake(const EmitContext& context) {
  const PoolPlan* prefill = context.plan.pool(Role::kPrefill);
  std::string text = fmt::format(
      "{{\n  \"metadata_server\": \"P2PHANDSHAKE\",\n  \"protocol\": \"ascend\",\n  \"device_name\": \"\",\n"
      "  \"master_server_address\": \"{}:50088\",\n  \"global_segment_size\": \"16GB\"\n}}\n",
      host_of(*prefill, 0, 0));
  return {"mooncake/mooncake.json", text, false};
}

}  // namespace

std::string front_script(const EmitContext& context, const std::vector<ServerCommand>& commands, const HostName& host) {
  if (context.plan.engine == Engine::kSglang) {
    return head(context, "router") + wrap_command(router_words(context, commands, host), "  ") + "\n";
  }
  return head(context, "front of the prefill and decode servers") +
         "EXAMPLES=\"${EXAMPLES:-/vllm-workspace/vllm-ascend/examples/disaggregated_prefill_v1}\"\n" +
         wrap_command(proxy_words(context, commands, host), "  ") + "\n";
}

std::string instance_name(const PoolPlan& pool, std::int64_t instance) {
  return fmt::format("{}{}", role_name(pool.role), instance);
}

const std::string& host_of(const PoolPlan& pool, std::int64_t instance, std::int64_t node) {
  return pool.hosts[static_cast<std::size_t>(instance * pool.nodes + node)];
}

std::int64_t api_port(const Plan& plan, Role role) {
  return plan.ports.api + (role == Role::kPrefill ? 100 : role == Role::kDecode ? 200 : 0);
}

std::string quote(const std::string& word) {
  static constexpr std::string_view kSafe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=,@%+";
  if (word.size() > 1 && word.front() == '"' && word.back() == '"') return word;
  if (variable(word)) return "\"" + word + "\"";
  if (!word.empty() && word.find_first_not_of(kSafe) == std::string::npos) return word;
  std::string out = "'";
  for (const char c : word) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      out += c;
    }
  }
  return out + "'";
}

std::string yaml_quote(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    out += c;
  }
  return out + "\"";
}

std::string wrap_command(const std::vector<std::string>& words, const std::string& indent) {
  std::string out;
  std::string line;
  std::size_t i = 0;
  bool first = true;
  while (i < words.size()) {
    std::string piece = quote(words[i++]);
    const bool flag = words[i - 1].rfind("--", 0) == 0;
    while (i < words.size() && words[i].rfind("--", 0) != 0 && (flag || first)) piece += " " + quote(words[i++]);
    first = false;
    if (line.empty()) {
      line = piece;
    } else if (line.size() + 1 + piece.size() + 2 > kColumns) {
      out += line + " \\\n";
      line = indent + piece;
    } else {
      line += " " + piece;
    }
  }
  return out + line;
}

std::vector<EmittedFile> node_scripts(const EmitContext& context, const std::vector<ServerCommand>& commands) {
  std::map<std::string, std::vector<const ServerCommand*>> nodes;
  for (const ServerCommand& command : commands) {
    nodes[fmt::format("{}-node{}", instance_name(*command.pool, command.instance), command.node)].push_back(&command);
  }
  std::vector<EmittedFile> files;
  for (const auto& [name, list] : nodes) {
    std::string text = head(context, fmt::format("{} on {}", name, list.front()->host));
    if (context.plan.network_interface.empty()) {
      text += ": \"${NIC:?set NIC to the interface of the cluster network}\"\n";
    }
    for (const auto& [variable_name, value] : list.front()->environment) {
      text += fmt::format("export {}={}\n", variable_name, quote(value));
    }
    if (list.size() == 1) {
      std::vector<std::string> words = list.front()->words;
      words.insert(words.begin(), "exec");
      text += wrap_command(words, "  ") + "\n";
    } else {
      text += "trap 'kill 0' EXIT\n";
      for (const ServerCommand* command : list) {
        text += fmt::format("ASCEND_RT_VISIBLE_DEVICES={} \\\n{} &\n", command->devices,
                            wrap_command(command->words, "  "));
      }
      text += "wait -n\n";
    }
    files.push_back({"nodes/" + name + ".sh", text, true});
  }
  return files;
}

std::vector<EmittedFile> front_files(const EmitContext& context, const std::vector<ServerCommand>& commands) {
  std::vector<EmittedFile> files;
  const bool several = fronts(commands, Role::kMixed).size() > 1;
  const HostName address = [](const ServerCommand& command) { return command.host; };
  if (context.plan.engine == Engine::kSglang) {
    if (context.plan.disaggregated() || several) {
      files.push_back({"proxy/router.sh", front_script(context, commands, address), true});
    }
    return files;
  }
  if (context.plan.disaggregated()) {
    files.push_back({"proxy/proxy.sh", front_script(context, commands, address), true});
    files.push_back(mooncake(context));
  } else if (several) {
    files.push_back(nginx(context, commands));
  }
  return files;
}

}  // namespace perigee::planner
