// The data files as bytes of this object, without passing through the compiler.
#include "planner/catalogue_data.h"

#include <array>
#include <utility>

#define PERIGEE_EMBED(symbol, file)                                                                                   \
  __asm__(".section .rodata\n.balign 16\n.global " #symbol "\n" #symbol ":\n.incbin \"" PERIGEE_PLANNER_DATA "/" file \
          "\"\n.global " #symbol "_end\n" #symbol "_end:\n.byte 0\n.previous\n");                                     \
  extern "C" const char symbol[];                                                                                     \
  extern "C" const char symbol##_end[];

PERIGEE_EMBED(perigee_data_hardware, "hardware.yaml")
PERIGEE_EMBED(perigee_data_models, "models.yaml")
PERIGEE_EMBED(perigee_data_engines, "engines.yaml")
PERIGEE_EMBED(perigee_data_measurements, "measurements.yaml")
PERIGEE_EMBED(perigee_data_layouts, "layouts.yaml")
PERIGEE_EMBED(perigee_data_cpus, "cpus.yaml")

namespace perigee::planner {

std::optional<std::string_view> embedded_file(std::string_view name) {
  const std::array<std::pair<std::string_view, std::string_view>, 6> files = {{
      {"hardware.yaml", {perigee_data_hardware, perigee_data_hardware_end}},
      {"models.yaml", {perigee_data_models, perigee_data_models_end}},
      {"engines.yaml", {perigee_data_engines, perigee_data_engines_end}},
      {"measurements.yaml", {perigee_data_measurements, perigee_data_measurements_end}},
      {"layouts.yaml", {perigee_data_layouts, perigee_data_layouts_end}},
      {"cpus.yaml", {perigee_data_cpus, perigee_data_cpus_end}},
  }};
  for (const auto& [key, text] : files) {
    if (key == name) return text;
  }
  return std::nullopt;
}

}  // namespace perigee::planner
