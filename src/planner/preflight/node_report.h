// Text that tools of the nodes print and people save beside their launch files: npu-smi, hccn_tool, version.info,
// hccn.conf. Only lines that rules look at are kept.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "planner/preflight/shell.h"

namespace perigee::planner {

struct NodeReport {
  std::string file;
  std::vector<Setting> superpods;         // "Super POD ID" of npu-smi info -t spod-info
  std::vector<Setting> drivers;           // driver versions, "25.0.rc1.1"
  std::vector<std::pair<bool, int>> tls;  // switch and line, of hccn_tool -tls -g
  std::vector<Setting> addresses;         // address_N of hccn.conf

  bool empty() const { return superpods.empty() && drivers.empty() && tls.empty() && addresses.empty(); }
};

// nullopt: no such report. Lines are those of the file.
std::optional<NodeReport> read_node_report(const std::string& name, std::string_view content);

}  // namespace perigee::planner
