#include "planner/preflight/preflight_data.h"

#define PERIGEE_EMBED(symbol, path)                                                                                 \
  __asm__(".section .rodata\n.balign 16\n.global " #symbol "\n" #symbol ":\n.incbin \"" path "\"\n.global " #symbol \
          "_end\n" #symbol "_end:\n.byte 0\n.previous\n");                                                          \
  extern "C" const char symbol[];                                                                                   \
  extern "C" const char symbol##_end[];

PERIGEE_EMBED(perigee_preflight_facts, PERIGEE_PLANNER_DATA "/preflight.json")
PERIGEE_EMBED(perigee_preflight_rules, PERIGEE_PLANNER_DATA "/rules.json")

// One PERIGEE_FLAG_TABLE(symbol, "name") for each file of data/flags, written by CMake.
#define PERIGEE_FLAG_TABLE(symbol, name) PERIGEE_EMBED(symbol, PERIGEE_PLANNER_DATA "/flags/" name ".json")
#include "flag_table_list.inc"
#undef PERIGEE_FLAG_TABLE

namespace perigee::planner {

const std::vector<EmbeddedTable>& embedded_flag_tables() {
  static const std::vector<EmbeddedTable> tables = {
#define PERIGEE_FLAG_TABLE(symbol, name) {name, {symbol, static_cast<std::size_t>(symbol##_end - symbol)}},
#include "flag_table_list.inc"
#undef PERIGEE_FLAG_TABLE
  };
  return tables;
}

std::string_view embedded_preflight_facts() {
  return {perigee_preflight_facts, static_cast<std::size_t>(perigee_preflight_facts_end - perigee_preflight_facts)};
}

std::string_view embedded_rules() {
  return {perigee_preflight_rules, static_cast<std::size_t>(perigee_preflight_rules_end - perigee_preflight_rules)};
}

}  // namespace perigee::planner
