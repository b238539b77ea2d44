// The data files of preflight as bytes of the program.
#pragma once

#include <string_view>
#include <vector>

namespace perigee::planner {

struct EmbeddedTable {
  std::string_view name;  // file name without ".json"
  std::string_view text;
};

const std::vector<EmbeddedTable>& embedded_flag_tables();  // every file of data/flags
std::string_view embedded_preflight_facts();               // data/preflight.json
std::string_view embedded_rules();                         // data/rules.json

}  // namespace perigee::planner
