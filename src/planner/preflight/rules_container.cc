// Containers and pods: rules 8.22, 8.25, 8.30 (variables given twice), 8.40, 8.41 of spec ascend.md.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "planner/preflight/server.h"

namespace perigee::planner {

namespace {

constexpr std::string_view kDriver = "/usr/local/Ascend/driver";

bool under(const std::string& path, std::string_view folder) {
  std::string_view text = path;
  while (!text.empty() && text.back() == '/') text.remove_suffix(1);
  return text == folder;
}

// Does a mount show `target` (a file or folder) inside the container?
bool shows(const Container& container, std::string_view target) {
  return std::any_of(container.mounts.begin(), container.mounts.end(), [&](const Mount& mount) {
    std::string_view folder = mount.target;
    while (!folder.empty() && folder.back() == '/') folder.remove_suffix(1);
    return target == folder ||
           (target.size() > folder.size() && target.substr(0, folder.size()) == folder && target[folder.size()] == '/');
  });
}

bool device_number(const std::string& name) {
  return name.size() > 7 && name.rfind("davinci", 0) == 0 &&
         std::all_of(name.begin() + 7, name.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
}

// "512Gi", "64g", "1024M" in bytes.
std::optional<double> bytes_of(const std::string& text) {
  std::string digits;
  std::string unit;
  for (const char c : text) {
    if (unit.empty() && (std::isdigit(static_cast<unsigned char>(c)) != 0)) {
      digits += c;
    } else {
      unit += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  const auto number = human_integer(digits);
  if (!number) return std::nullopt;
  double scale = 1;
  if (!unit.empty()) {
    const double base = unit.size() > 1 && unit[1] == 'i' ? 1024 : 1000;
    const std::size_t power = std::string_view("kmgt").find(unit[0]);
    if (power == std::string_view::npos && unit != "b") return std::nullopt;
    for (std::size_t i = 0; power != std::string_view::npos && i <= power; ++i) scale *= base;
  }
  return static_cast<double>(*number) * scale;
}

bool ascend_image(const Container& container) {
  return container.image.value.find("ascend") != std::string::npos ||
         container.image.value.find("cann") != std::string::npos ||
         container.image.value.find("npu") != std::string::npos;
}

}  // namespace

void Rules::containers() {
  for (std::size_t i = 0; i < in_.containers.size(); ++i) {
    const Container& container = in_.containers[i];
    const Server* server = nullptr;
    for (const Server& candidate : servers_) {
      if (candidate.launch->container == static_cast<int>(i) && (candidate.vllm() || candidate.sglang()))
        server = &candidate;
    }
    for (const Member& member : container.duplicate_environment) {
      report("8.30", Severity::kWarning, container.file, member.line,
             fmt::format("{} is given twice; the last one replaces the first.", member.key), "keep one");
    }
    const bool davinci = std::any_of(container.devices.begin(), container.devices.end(), [](const Setting& device) {
      return device.text.value.find("davinci") != std::string::npos;
    });
    if (server == nullptr && !ascend_image(container) && !davinci) continue;
    if (container.kind == Container::Kind::kKubernetes) {
      kubernetes(container, server);
    } else {
      container_devices(container, server);
    }
  }
}

void Rules::container_devices(const Container& container, const Server* server) {
  if (container.ascend_runtime) return;
  const ChipFacts* chip = server != nullptr ? server->chip : facts_.chip(context_.chip);
  const auto fail = [&](Severity severity, int line, std::string message, std::string fix) {
    report("8.40", severity, container.file, line, std::move(message), std::move(fix));
  };
  const std::vector<std::string> managers =
      chip != nullptr ? chip->container_devices : std::vector<std::string>{"davinci_manager", "hisi_hdc"};
  std::vector<std::string> known = {"davinci_manager", "davinci_manager_docker", "devmm_svm", "hisi_hdc", "ummu",
                                    "uburma"};
  std::vector<std::string> present;
  bool misspelt = false;
  bool hidden = container.open;
  std::int64_t node = context_.devices_per_node > 0 ? context_.devices_per_node : chip != nullptr ? chip->devices : 0;
  for (const Setting& device : container.devices) {
    const std::string& path = device.text.value;
    if (device.text.unknown()) {
      hidden = true;
      continue;
    }
    if (path.rfind("/dev/", 0) != 0) continue;
    const std::string name = path.substr(5);
    if (device_number(name)) {
      const auto number = human_integer(name.substr(7));
      if (number && node > 0 && *number >= node) {
        fail(Severity::kError, device.line,
             fmt::format("/dev/{} does not exist: the node has devices 0 to {}.", name, node - 1),
             fmt::format("/dev/davinci0 to /dev/davinci{}", node - 1));
      }
      continue;
    }
    if (std::find(known.begin(), known.end(), name) != known.end()) {
      present.push_back(name);
      continue;
    }
    // A folder such as /dev/infiniband is somebody else's; a name near ours or with our parts is a mistake.
    std::string meant = nearest(name, managers);
    for (const std::string& manager : managers) {
      if (!meant.empty()) break;
      const std::size_t bar = manager.find('_');
      if (bar != std::string::npos && name.find(manager.substr(bar + 1)) != std::string::npos) meant = manager;
      if (name.rfind("dav", 0) == 0 && manager == "davinci_manager" && name.find("manager") != std::string::npos)
        meant = manager;
    }
    if (meant.empty() && name.rfind("davinci", 0) != 0 && name.rfind("dav", 0) != 0) continue;
    misspelt = true;
    present.push_back(meant);
    fail(Severity::kError, device.line,
         fmt::format("There is no /dev/{}; the node is /dev/{}.", name, meant.empty() ? "davinciN" : meant),
         fmt::format("--device /dev/{}", meant.empty() ? "davinci0" : meant));
  }
  const int device_line = container.devices.empty() ? container.first_line : container.devices.back().line;
  if (!hidden && !container.privileged && (!container.devices.empty() || server != nullptr)) {
    std::vector<std::string> missing;
    for (const std::string& manager : managers) {
      if (std::find(present.begin(), present.end(), manager) == present.end()) missing.push_back(manager);
    }
    const bool any_device = std::any_of(container.devices.begin(), container.devices.end(), [](const Setting& device) {
      return device.text.value.rfind("/dev/davinci", 0) == 0 && device.text.value.find("manager") == std::string::npos;
    });
    if (!any_device && !misspelt) missing.insert(missing.begin(), "davinci0 and the other devices");
    if (!missing.empty()) {
      fail(Severity::kError, device_line, fmt::format("The container lacks /dev/{}.", fmt::join(missing, ", /dev/")),
           fmt::format("--device /dev/{}", fmt::join(missing, " --device /dev/")));
    }
  }
  if (!container.open) {
    const bool whole = shows(container, kDriver);
    const bool lib = shows(container, std::string(kDriver) + "/lib64");
    const bool version = shows(container, std::string(kDriver) + "/version.info");
    int driver_line = 0;
    int mount_line = 0;
    for (const Mount& mount : container.mounts) {
      if (mount.target.rfind(kDriver, 0) == 0 && driver_line == 0) driver_line = mount.line;
      mount_line = mount.line;
    }
    if (mount_line == 0) mount_line = container.first_line;
    if (chip != nullptr && chip->whole_driver && !whole) {
      fail(Severity::kError, driver_line > 0 ? driver_line : mount_line,
           "On Ascend 950 HCCL reads driver/topo: the whole driver folder has to be mounted, or the communicator fails "
           "with "
           "EI0014.",
           "-v /usr/local/Ascend/driver:/usr/local/Ascend/driver");
    } else if (!whole && (!lib || !version)) {
      fail(Severity::kError, driver_line > 0 ? driver_line : mount_line,
           fmt::format("The driver is not mounted ({}): libascend_hal.so cannot be opened and torch_npu does not load.",
                       !lib && !version ? "lib64 and version.info"
                       : !lib           ? "lib64"
                                        : "version.info"),
           !lib ? "add -v /usr/local/Ascend/driver/lib64:/usr/local/Ascend/driver/lib64 and -v "
                  "/usr/local/Ascend/driver/version.info:/usr/local/Ascend/driver/version.info"
                : "add -v /usr/local/Ascend/driver/version.info:/usr/local/Ascend/driver/version.info");
    }
    for (const Mount& mount : container.mounts) {
      // A driver part mounted somewhere else is not found there.
      if (under(mount.source, std::string(kDriver)) && !under(mount.target, std::string(kDriver)) && whole == false &&
          lib) {
        fail(Severity::kWarning, mount.line, fmt::format("The driver is mounted at {}.", mount.target),
             "-v /usr/local/Ascend/driver:/usr/local/Ascend/driver");
      }
    }
    const bool transfers = server != nullptr && (server->disaggregated() || server->transfer != nullptr);
    if (transfers && !shows(container, "/etc/hccn.conf")) {
      fail(Severity::kError, mount_line, "Transfers between devices read /etc/hccn.conf, which is not mounted.",
           "-v /etc/hccn.conf:/etc/hccn.conf");
    }
    const bool shm_mounted = shows(container, "/dev/shm");
    if (!container.shm && !container.host_ipc && !shm_mounted && server != nullptr &&
        server->local_ranks().value_or(1) > 1) {
      fail(Severity::kWarning, container.first_line,
           "/dev/shm of a container has 64 MB by default; the ranks exchange through it.",
           container.kind == Container::Kind::kCompose ? "shm_size: 128g" : "--shm-size=128g");
    } else if (container.shm && !container.host_ipc && server != nullptr) {
      const auto size = bytes_of(container.shm->text.value);
      if (size && *size < 1e9) {
        fail(Severity::kWarning, container.shm->line,
             fmt::format("/dev/shm of {} is too small for {} ranks.", container.shm->text.value,
                         server->local_ranks().value_or(1)),
             "--shm-size=128g");
      }
    }
  }
}

void Rules::kubernetes(const Container& container, const Server* server) {
  const auto fail = [&](std::string_view rule, Severity severity, int line, std::string message, std::string fix) {
    report(rule, severity, container.file, line > 0 ? line : container.first_line, std::move(message), std::move(fix));
  };
  const ChipFacts* chip = server != nullptr ? server->chip : facts_.chip(context_.chip);
  std::optional<std::int64_t> devices;
  bool resource = false;
  for (const auto* map : {&container.limits, &container.requests}) {
    for (const auto& [name, setting] : *map) {
      const bool huawei = name.rfind("huawei.com/", 0) == 0;
      const std::string near = huawei ? std::string() : nearest(name, facts_.npu_resources);
      if (!huawei && near.empty()) {
        if (name == "nvidia.com/gpu" && map == &container.limits) {
          resource = true;
          fail("8.41", Severity::kError, setting.line, "nvidia.com/gpu is no NPU resource.",
               "huawei.com/Ascend910 (or huawei.com/ascend-1980)");
        }
        continue;
      }
      resource = true;
      const bool known =
          std::find(facts_.npu_resources.begin(), facts_.npu_resources.end(), name) != facts_.npu_resources.end() ||
          name.rfind("huawei.com/Ascend910-", 0) == 0 || name.rfind("huawei.com/Ascend310", 0) == 0;
      if (!known) {
        const std::string meant = near.empty() ? nearest(name, facts_.npu_resources) : near;
        fail("8.41", Severity::kError, setting.line,
             fmt::format("{} is no NPU resource of a device plugin; the pod stays pending.", name),
             meant.empty() ? "huawei.com/Ascend910" : meant);
      }
      if (map == &container.limits) {
        devices = human_integer(setting.text.value);
        const auto request = container.requests.find(name);
        if (request != container.requests.end() && request->second.text.value != setting.text.value) {
          fail("8.41", Severity::kError, request->second.line,
               fmt::format("{} requests {} and limits {}: Kubernetes wants them equal for device resources.", name,
                           request->second.text.value, setting.text.value),
               fmt::format("{}: \"{}\" in requests, or no request", name, setting.text.value));
        }
      } else if (container.limits.count(name) == 0) {
        fail("8.41", Severity::kError, setting.line, fmt::format("{} has a request but no limit.", name),
             fmt::format("{}: \"{}\" in limits", name, setting.text.value));
      }
      if (chip != nullptr && chip->die_pairs && map == &container.limits && devices && *devices > 1 &&
          *devices % 2 != 0) {
        fail("8.25", Severity::kError, setting.line,
             fmt::format("{} dies: pods on A3 take whole die pairs (1, 2, 4, 6, ... 16).", *devices),
             fmt::format("{}: \"{}\"", name, *devices + 1));
      }
      const std::int64_t node = context_.devices_per_node > 0 ? context_.devices_per_node
                                : chip != nullptr             ? chip->devices
                                                              : 0;
      if (map == &container.limits && devices && node > 0 && *devices > node) {
        fail("8.36", Severity::kError, setting.line,
             fmt::format("{} devices in one pod; a node has {}.", *devices, node),
             fmt::format("{}: \"{}\"", name, node));
      }
    }
  }
  if (!resource && server != nullptr) {
    fail("8.41", Severity::kError, container.resources_line > 0 ? container.resources_line : container.first_line,
         "The pod asks for no NPU.", "limits with huawei.com/Ascend910 (or huawei.com/ascend-1980)");
  }
  const std::int64_t ranks = server != nullptr ? server->local_ranks().value_or(2) : devices.value_or(0);
  if (server == nullptr && !(devices && *devices > 1)) return;
  if (ranks > 1 && !container.open) {
    if (!container.shm_mounted) {
      fail("8.41", Severity::kWarning, container.first_line,
           "/dev/shm of a pod has 64 MB; several ranks need a memory-backed volume.",
           "an emptyDir with medium: Memory at /dev/shm");
    } else if (!container.shm_in_memory) {
      fail("8.41", Severity::kWarning, container.shm_line, "The volume at /dev/shm is not backed by memory.",
           "emptyDir: {medium: Memory}");
    }
  }
  const auto memory = container.limits.find("memory");
  if (memory != container.limits.end() && container.shm_in_memory && !container.shm_limit.empty()) {
    const auto limit = bytes_of(memory->second.text.value);
    const auto shm = bytes_of(container.shm_limit);
    if (limit && shm && *shm > *limit) {
      fail("8.22", Severity::kWarning, memory->second.line,
           fmt::format("/dev/shm may take {} and counts against the memory limit {}.", container.shm_limit,
                       memory->second.text.value),
           fmt::format("memory above {}", container.shm_limit));
    }
  }
  if (container.group_size > 0 && server != nullptr && devices && !server->launch->open) {
    const auto world = server->world();
    if (world && *world != container.group_size * *devices) {
      fail("8.41", Severity::kError, container.group_line,
           fmt::format("The group has {} pods of {} devices, the command needs {} ranks.", container.group_size,
                       *devices, *world),
           fmt::format("size: {}", (*world + *devices - 1) / std::max<std::int64_t>(1, *devices)));
    }
  }
  if (chip != nullptr && chip->whole_driver) {
    for (const Mount& mount : container.mounts) {
      if (mount.target.rfind("/usr/local/Ascend/driver/lib64", 0) != 0 || shows(container, kDriver)) continue;
      fail("8.40", Severity::kError, mount.line,
           "On Ascend 950 the whole driver folder has to be mounted (driver/topo).",
           "mountPath: /usr/local/Ascend/driver");
      break;
    }
  }
}

}  // namespace perigee::planner
