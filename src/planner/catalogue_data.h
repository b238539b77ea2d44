// The built-in data files by name.
#pragma once

#include <optional>
#include <string_view>

namespace perigee::planner {

std::optional<std::string_view> embedded_file(std::string_view name);

}  // namespace perigee::planner
