// Precompiled for every module (cmake/Perigee.cmake).
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

// base/json.cc has the one instantiation.
extern template class nlohmann::basic_json<nlohmann::ordered_map>;
