// Containers: docker compose a node, Kubernetes LeaderWorkerSet an instance.
#include <algorithm>
#include <cctype>
#include <map>

#include "planner/emit/command.h"

namespace perigee::planner {

namespace {

struct Volume {
  std::string name, path;
};

// What every container sees of the host (spec ascend.md 8, rule 40).
std::vector<Volume> volumes(const EmitContext& context) {
  std::vector<Volume> out = {{"driver", "/usr/local/Ascend/driver"},
                             {"dcmi", "/usr/local/dcmi"},
                             {"npu-smi", "/usr/local/bin/npu-smi"},
                             {"hccn", "/etc/hccn.conf"}};
  const std::string& checkpoint = context.plan.checkpoint;
  if (!checkpoint.empty() && checkpoint[0] == '/') {
    const std::size_t slash = checkpoint.rfind('/');
    out.push_back({"models", slash == 0 ? checkpoint : checkpoint.substr(0, slash)});
  }
  return out;
}

std::int64_t shm_gib(const EmitContext& context) {
  return context.plan.devices_per_node >= 16 ? 512 : 256;
}

// Names of Kubernetes objects: lower case letters, digits and dashes.
std::string object_name(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (plain) out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (!plain && !out.empty() && out.back() != '-') out += '-';
  }
  while (!out.empty() && out.back() == '-') out.pop_back();
  if (out.size() > 40) out.resize(40);
  return out.empty() ? "perigee" : out;
}

void replace(std::string& text, const std::string& from, const std::string& to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

std::string indent(const std::string& text, std::size_t columns) {
  std::string out;
  const std::string blanks(columns, ' ');
  bool start = true;
  for (const char c : text) {
    if (start && c != '\n') out += blanks;
    out += c;
    start = c == '\n';
  }
  return out;
}

class Pods {
 public:
  Pods(const EmitContext& context, std::vector<const ServerCommand*> commands)
      : context_(context), plan_(context.plan), commands_(std::move(commands)), pool_(*commands_.front()->pool) {
    name_ = object_name(plan_.name) + "-" + instance_name(pool_, commands_.front()->instance);
  }

  std::string text() const {
    std::string out =
        fmt::format("# {}: {}. Written by perigee plan emit; change the plan, not this file.\n", plan_.name, name_);
    out += config_map() + "---\n" + group() + "---\n" + service();
    return out;
  }

 private:
  // The command of each worker, with the leader's address from the controller.
  std::string script() const {
    std::string out = "#!/usr/bin/env bash\nset -euo pipefail\n";
    for (const auto& [name, value] : commands_.front()->environment) {
      if (name == "HCCL_IF_IP") {
        out += "export HCCL_IF_IP=\"$POD_IP\"\n";
        continue;
      }
      std::string text = value;
      if (name == "ASCEND_MF_STORE_URL") replace(text, host_of(*plan_.pool(Role::kPrefill), 0, 0), store_host());
      out += fmt::format("export {}={}\n", name, quote(text));
    }
    out += "case \"$LWS_WORKER_INDEX\" in\n";
    for (std::int64_t node = 0; node < pool_.nodes; ++node) {
      out += fmt::format("  {})\n", node);
      std::vector<const ServerCommand*> local;
      for (const ServerCommand* command : commands_) {
        if (command->node == node) local.push_back(command);
      }
      for (const ServerCommand* command : local) {
        std::vector<std::string> words = command->words;
        for (std::string& word : words) {
          if (word.find('{') != std::string::npos) continue;
          if (word == command->host && node > 0) word = "$POD_IP";
          replace(word, host_of(pool_, command->instance, 0), "$LWS_LEADER_ADDRESS");
        }
        // SGLang listens on the pod's own address.
        for (std::size_t i = 0; i + 1 < words.size(); ++i) {
          if (words[i] == "--host" && words[i + 1][0] == '$') words[i + 1] = "$POD_IP";
        }
        if (local.size() == 1) {
          words.insert(words.begin(), "exec");
          out += "    " + wrap_command(words, "      ") + "\n";
        } else {
          out += fmt::format("    ASCEND_RT_VISIBLE_DEVICES={} \\\n    {} &\n", command->devices,
                             wrap_command(words, "      "));
        }
      }
      if (local.size() > 1) out += "    wait -n\n";
      out += "    ;;\n";
    }
    return out + "esac\n";
  }

  std::string store_host() const {
    const std::string prefill = object_name(plan_.name) + "-" + instance_name(*plan_.pool(Role::kPrefill), 0);
    return fmt::format("{}-0.{}", prefill, prefill);
  }

  std::string config_map() const {
    return fmt::format("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {}-scripts\ndata:\n  serve.sh: |\n{}",
                       name_, indent(script(), 4));
  }

  std::string pod(std::size_t columns, bool probes, std::int64_t port) const {
    std::string out = "spec:\n  hostNetwork: true\n  dnsPolicy: ClusterFirstWithHostNet\n  containers:\n";
    out += fmt::format(
        "    - name: server\n      image: {}\n      command: [\"bash\", \"/scripts/serve.sh\"]\n      env:\n",
        yaml_quote(context_.image));
    out +=
        "        - name: POD_IP\n          valueFrom:\n            fieldRef:\n              fieldPath: status.podIP\n";
    if (plan_.network_interface.empty()) out += "        - name: NIC\n          value: \"eth0\"\n";
    if (probes) {
      out += fmt::format("      ports:\n        - containerPort: {}\n", port);
      // Loading a large checkpoint takes up to two hours; afterwards a dead server is seen within a minute.
      out += fmt::format(
          "      startupProbe:\n        httpGet: {{path: /health, port: {}}}\n        periodSeconds: 30\n        "
          "failureThreshold: 240\n",
          port);
      out += fmt::format(
          "      readinessProbe:\n        httpGet: {{path: /health, port: {}}}\n        periodSeconds: 10\n        "
          "failureThreshold: 3\n",
          port);
    }
    out += fmt::format(
        "      resources:\n        requests:\n          huawei.com/ascend-1980: \"{0}\"\n          cpu: \"{1}\"\n      "
        "    memory: {2}Gi\n"
        "        limits:\n          huawei.com/ascend-1980: \"{0}\"\n          memory: {2}Gi\n",
        plan_.devices_per_node, plan_.devices_per_node >= 16 ? 125 : 96, shm_gib(context_) * 2);
    out +=
        "      volumeMounts:\n        - {name: scripts, mountPath: /scripts}\n        - {name: shm, mountPath: "
        "/dev/shm}\n";
    for (const Volume& volume : volumes(context_)) {
      out += fmt::format("        - {{name: {}, mountPath: {}, readOnly: true}}\n", volume.name, volume.path);
    }
    out += fmt::format("  volumes:\n    - name: scripts\n      configMap: {{name: {}-scripts}}\n", name_);
    out += fmt::format("    - name: shm\n      emptyDir: {{medium: Memory, sizeLimit: {}Gi}}\n", shm_gib(context_));
    for (const Volume& volume : volumes(context_)) {
      out += fmt::format("    - name: {}\n      hostPath: {{path: {}}}\n", volume.name, volume.path);
    }
    return indent(out, columns);
  }

  std::string group() const {
    const bool every =
        std::all_of(commands_.begin(), commands_.end(), [](const ServerCommand* c) { return c->port > 0; });
    const std::int64_t port = commands_.front()->port;
    std::string out = fmt::format(
        "apiVersion: leaderworkerset.x-k8s.io/v1\nkind: LeaderWorkerSet\nmetadata:\n  name: {}\nspec:\n  replicas: 1\n"
        "  leaderWorkerTemplate:\n    size: {}\n    restartPolicy: RecreateGroupOnPodRestart\n",
        name_, pool_.nodes);
    if (!every) out += "    leaderTemplate:\n" + pod(6, true, port);
    out += "    workerTemplate:\n" + pod(6, every, port);
    return out;
  }

  std::string service() const {
    const std::int64_t port = commands_.front()->port;
    return fmt::format(
        "apiVersion: v1\nkind: Service\nmetadata:\n  name: {0}-api\nspec:\n  selector:\n    "
        "leaderworkerset.sigs.k8s.io/name: {0}\n"
        "    leaderworkerset.sigs.k8s.io/worker-index: \"0\"\n  ports:\n    - name: http\n      port: {1}\n      "
        "targetPort: {1}\n",
        name_, port);
  }

  const EmitContext& context_;
  const Plan& plan_;
  std::vector<const ServerCommand*> commands_;
  const PoolPlan& pool_;
  std::string name_;
};

std::string compose_service(const EmitContext& context, const ServerCommand& command) {
  std::string out =
      fmt::format("  {}:\n    image: {}\n    network_mode: host\n    restart: unless-stopped\n    shm_size: {}g\n",
                  command.name, yaml_quote(context.image), shm_gib(context));
  out += "    devices:\n";
  for (std::int64_t i = 0; i < context.plan.devices_per_node; ++i) out += fmt::format("      - /dev/davinci{}\n", i);
  for (const std::string& device : context.chip->container_devices) out += fmt::format("      - /dev/{}\n", device);
  out += "    volumes:\n";
  for (const Volume& volume : volumes(context)) out += fmt::format("      - {0}:{0}:ro\n", volume.path);
  out += "    environment:\n";
  for (const auto& [name, value] : command.environment) {
    out += fmt::format("      {}: {}\n", name, yaml_quote(value == "$NIC" ? "${NIC}" : value));
  }
  if (!command.devices.empty())
    out += fmt::format("      ASCEND_RT_VISIBLE_DEVICES: {}\n", yaml_quote(command.devices));
  if (command.port > 0) {
    out += fmt::format(
        "    healthcheck:\n      test: [\"CMD\", \"curl\", \"-fsS\", \"http://127.0.0.1:{}/health\"]\n      interval: "
        "30s\n"
        "      timeout: 10s\n      retries: 3\n      start_period: 7200s\n",
        command.port);
  }
  out += "    command:\n";
  for (const std::string& word : command.words) out += fmt::format("      - {}\n", yaml_quote(word));
  return out;
}

// The front of a prefill and decode deployment: pods of a LeaderWorkerSet have names of their own.
std::string kubernetes_front(const EmitContext& context, const std::vector<ServerCommand>& commands) {
  const std::string plan = object_name(context.plan.name);
  const std::string script = front_script(context, commands, [&plan](const ServerCommand& command) {
    const std::string group = plan + "-" + instance_name(*command.pool, command.instance);
    return command.node == 0 ? fmt::format("{0}-0.{0}", group) : fmt::format("{0}-0-{1}.{0}", group, command.node);
  });
  const std::string name = plan + "-front";
  const std::int64_t port = context.plan.ports.proxy;
  std::string out =
      fmt::format("# {}: {}. Written by perigee plan emit; change the plan, not this file.\n", context.plan.name, name);
  out += fmt::format("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {}-scripts\ndata:\n  front.sh: |\n{}", name,
                     indent(script, 4));
  out += fmt::format(
      "---\napiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: {0}\nspec:\n  replicas: 1\n  selector:\n    "
      "matchLabels: {{app: {0}}}\n  template:\n    metadata:\n      labels: {{app: {0}}}\n    spec:\n      "
      "containers:\n"
      "        - name: front\n          image: {1}\n          command: [\"bash\", \"/scripts/front.sh\"]\n"
      "          ports:\n            - containerPort: {2}\n"
      "          readinessProbe:\n            tcpSocket: {{port: {2}}}\n            periodSeconds: 10\n"
      "          resources:\n            requests:\n              cpu: \"4\"\n              memory: 8Gi\n"
      "            limits:\n              memory: 8Gi\n"
      "          volumeMounts:\n            - {{name: scripts, mountPath: /scripts}}\n"
      "      volumes:\n        - name: scripts\n          configMap: {{name: {0}-scripts}}\n",
      name, yaml_quote(context.image), port);
  out += fmt::format(
      "---\napiVersion: v1\nkind: Service\nmetadata:\n  name: {0}\nspec:\n  selector:\n    app: {0}\n  ports:\n    - "
      "name: http\n      port: {1}\n      targetPort: {1}\n",
      name, port);
  return out;
}

}  // namespace

std::vector<EmittedFile> compose_files(const EmitContext& context, const std::vector<ServerCommand>& commands) {
  std::map<std::string, std::string> nodes;
  for (const ServerCommand& command : commands) {
    const std::string node = fmt::format("{}-node{}", instance_name(*command.pool, command.instance), command.node);
    std::string& text = nodes[node];
    if (text.empty()) {
      text = fmt::format("# {}: {} on {}. Written by perigee plan emit; change the plan, not this file.\nservices:\n",
                         context.plan.name, node, command.host);
    }
    text += compose_service(context, command);
  }
  std::vector<EmittedFile> files;
  for (auto& [node, text] : nodes) files.push_back({"compose/" + node + ".yaml", std::move(text), false});
  return files;
}

std::vector<EmittedFile> kubernetes_files(const EmitContext& context, const std::vector<ServerCommand>& commands) {
  std::map<std::string, std::vector<const ServerCommand*>> instances;
  for (const ServerCommand& command : commands)
    instances[instance_name(*command.pool, command.instance)].push_back(&command);
  std::vector<EmittedFile> files;
  for (const auto& [name, list] : instances)
    files.push_back({"kubernetes/" + name + ".yaml", Pods(context, list).text(), false});
  if (context.plan.disaggregated()) {
    files.push_back({"kubernetes/front.yaml", kubernetes_front(context, commands), false});
  }
  return files;
}

}  // namespace perigee::planner
