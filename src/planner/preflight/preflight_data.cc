#include "planner/preflight/preflight_data.h"

#include "base/embed.h"

PERIGEE_EMBED(perigee_preflight_facts, PERIGEE_PLANNER_DATA "/preflight.json")
PERIGEE_EMBED(perigee_preflight_rules, PERIGEE_PLANNER_DATA "/rules.json")

// One PERIGEE_FLAG_TABLE(symbol, "name") for each file of data/flags, written by CMake.
#define PERIGEE_FLAG_TABLE(symbol, name) PERIGEE_EMBED(symbol, PERIGEE_PLANNER_DATA "/flags/" name ".json")
#include "flag_table_list.inc"
#undef PERIGEE_FLAG_TABLE

namespace perigee::planner {

const std::vector<EmbeddedTable>& embedded_flag_tables() {
  static const std::vector<EmbeddedTable> tables = {
#define PERIGEE_FLAG_TABLE(symbol, name) {name, PERIGEE_EMBEDDED(symbol)},
#include "flag_table_list.inc"
#undef PERIGEE_FLAG_TABLE
  };
  return tables;
}

std::string_view embedded_preflight_facts() {
  return PERIGEE_EMBEDDED(perigee_preflight_facts);
}

std::string_view embedded_rules() {
  return PERIGEE_EMBEDDED(perigee_preflight_rules);
}

}  // namespace perigee::planner
