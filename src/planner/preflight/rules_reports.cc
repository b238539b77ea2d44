// What saved reports of the nodes say about the deployment: rules 8.18, 8.19 and 8.23 of spec ascend.md.
#include <fmt/format.h>

#include <algorithm>

#include "planner/preflight/server.h"

namespace perigee::planner {

namespace {

// "25.0" of "25.0.rc1.1".
std::string minor_of(const std::string& version) {
  const std::size_t first = version.find('.');
  return version.substr(0, first == std::string::npos ? first : version.find('.', first + 1));
}

struct SeenInReport {
  std::string value, file;
  int line = 0;
};

}  // namespace

void Rules::superpods() {
  std::vector<SeenInReport> seen;
  for (const NodeReport& report_file : in_.node_reports) {
    for (const Setting& id : report_file.superpods) seen.push_back({id.text.value, report_file.file, id.line});
  }
  // Rank tables of 1.2: one list of servers a SuperPoD.
  for (const JsonFile& json : in_.json_files) {
    const Value* pods = json.root->find("super_pod_list");
    for (const ValuePtr& pod : pods != nullptr ? pods->items : std::vector<ValuePtr>{}) {
      const Value* id = pod->kind == ValueKind::kMap ? pod->find("super_pod_id") : nullptr;
      if (id != nullptr && !id->unknown()) seen.push_back({id->str(), json.file, id->line});
    }
  }
  if (seen.empty()) return;
  const bool split = std::any_of(servers_.begin(), servers_.end(), [](const Server& s) { return s.disaggregated(); });
  const bool a2 = facts_.chip(context_.chip) != nullptr && facts_.chip(context_.chip)->name == "a2";
  if (a2) return;  // no SuperPoD there
  for (const SeenInReport& other : seen) {
    if (other.value == seen.front().value) continue;
    // The two sides of a split deployment are groups of their own; which node is whose, the reports do not say.
    report(
        "8.18", split ? Severity::kWarning : Severity::kError, other.file, other.line,
        fmt::format("This node is in SuperPoD {}, {} is in {}: dispatch and combine refuse a group across SuperPoDs.",
                    other.value, seen.front().file, seen.front().value),
        fmt::format("nodes of SuperPoD {} only, or one instance in each SuperPoD", seen.front().value));
    return;
  }
}

void Rules::node_reports() {
  superpods();
  // Rule 8.19: TLS is equal on all devices, and no device address stands twice.
  const NodeReport* first_tls = nullptr;
  bool reported = false;
  std::vector<SeenInReport> addresses;
  for (const NodeReport& node : in_.node_reports) {
    for (const auto& [on, line] : node.tls) {
      if (first_tls == nullptr) first_tls = &node;
      const bool reference = first_tls->tls.front().first;
      if (on == reference || reported) continue;
      report("8.19", Severity::kError, node.file, line,
             fmt::format("The TLS switch is {} here and {} in {}: links between them time out.", on ? "on" : "off",
                         reference ? "on" : "off", first_tls->file),
             fmt::format("hccn_tool -i N -tls -s enable {} on every device of every node", reference ? 1 : 0));
      reported = true;
    }
    for (const Setting& address : node.addresses) {
      const auto twice = std::find_if(addresses.begin(), addresses.end(),
                                      [&](const SeenInReport& other) { return other.value == address.text.value; });
      if (twice == addresses.end()) {
        addresses.push_back({address.text.value, node.file, address.line});
        continue;
      }
      report(
          "8.19", Severity::kError, node.file, address.line,
          fmt::format("Device address {} stands in {} line {} already.", address.text.value, twice->file, twice->line),
          "an address of its own for each device (hccn_tool -i N -ip -s address ... netmask ...)");
    }
  }
  // Rule 8.23: the driver under the CANN of the engine.
  const auto server = std::find_if(servers_.begin(), servers_.end(), [](const Server& s) {
    return s.facts != nullptr && s.exact_version && !s.facts->hdk.empty();
  });
  if (server == servers_.end()) return;
  const std::vector<std::string>& fitting = server->facts->hdk;
  for (const NodeReport& node : in_.node_reports) {
    for (const Setting& driver : node.drivers) {
      const std::string minor = minor_of(driver.text.value);
      if (std::find(fitting.begin(), fitting.end(), minor) != fitting.end()) continue;
      const bool older = compare_versions(minor, fitting.front()) < 0;
      report("8.23", older ? Severity::kError : Severity::kWarning, node.file, driver.line,
             fmt::format("Driver (HDK) {} is installed; {} {} brings CANN {}, which goes with HDK {}{}.",
                         driver.text.value, server->engine, server->version, server->facts->cann,
                         fmt::join(fitting, " or "), older ? " and refuses older ones" : ""),
             fmt::format("HDK {}.RC1", fitting.front()));
      break;
    }
  }
}

}  // namespace perigee::planner
