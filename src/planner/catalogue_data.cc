// The data files as bytes of this object, without passing through the compiler.
#include "planner/catalogue_data.h"

#include <array>
#include <utility>

#include "base/embed.h"

PERIGEE_EMBED(perigee_data_hardware, PERIGEE_PLANNER_DATA "/hardware.yaml")
PERIGEE_EMBED(perigee_data_models, PERIGEE_PLANNER_DATA "/models.yaml")
PERIGEE_EMBED(perigee_data_engines, PERIGEE_PLANNER_DATA "/engines.yaml")
PERIGEE_EMBED(perigee_data_measurements, PERIGEE_PLANNER_DATA "/measurements.yaml")
PERIGEE_EMBED(perigee_data_layouts, PERIGEE_PLANNER_DATA "/layouts.yaml")
PERIGEE_EMBED(perigee_data_cpus, PERIGEE_PLANNER_DATA "/cpus.yaml")

namespace perigee::planner {

std::optional<std::string_view> embedded_file(std::string_view name) {
  const std::array<std::pair<std::string_view, std::string_view>, 6> files = {{
      {"hardware.yaml", PERIGEE_EMBEDDED(perigee_data_hardware)},
      {"models.yaml", PERIGEE_EMBEDDED(perigee_data_models)},
      {"engines.yaml", PERIGEE_EMBEDDED(perigee_data_engines)},
      {"measurements.yaml", PERIGEE_EMBEDDED(perigee_data_measurements)},
      {"layouts.yaml", PERIGEE_EMBEDDED(perigee_data_layouts)},
      {"cpus.yaml", PERIGEE_EMBEDDED(perigee_data_cpus)},
  }};
  for (const auto& [key, text] : files) {
    if (key == name) return text;
  }
  return std::nullopt;
}

}  // namespace perigee::planner
