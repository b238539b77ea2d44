#include "planner/yaml_fields.h"

#include <charconv>
#include <cmath>
#include <optional>

namespace perigee::planner {
namespace {

std::optional<std::int64_t> to_integer(const std::string& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> to_number(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

}  // namespace

Result<YAML::Node> load_yaml(std::string_view text, std::string_view origin, std::size_t limit) {
  if (text.size() > limit) {
    return invalid_argument("{}: {} bytes of YAML, at most {} are read", origin, text.size(), limit);
  }
  try {
    return YAML::Load(std::string(text));
  } catch (const YAML::Exception& error) {
    return invalid_argument("{}:{}: {}", origin, error.mark.line + 1, error.msg);
  }
}

Fields::Fields(const YAML::Node& node, std::string_view origin, Status& status)
    : node_(node), origin_(origin), status_(status) {
  if (!node_.IsMap()) fail(node_, "expected a map of keys");
}

void Fields::fail(const YAML::Node& at, std::string_view what) {
  if (!status_.ok()) return;
  const int line = at.IsDefined() ? at.Mark().line + 1 : node_.Mark().line + 1;
  status_ = invalid_argument("{}:{}: {}", origin_, line, what);
}

YAML::Node Fields::get(const char* key) {
  seen_.insert(key);
  if (!status_.ok() || !node_.IsMap()) return YAML::Node(YAML::NodeType::Undefined);
  return static_cast<const YAML::Node&>(node_)[key];
}

YAML::Node Fields::child(const char* key) {
  return get(key);
}

bool Fields::has(const char* key) const {
  return status_.ok() && node_.IsMap() && static_cast<const YAML::Node&>(node_)[key].IsDefined();
}

void Fields::require(const char* key) {
  if (status_.ok() && !has(key)) fail(node_, fmt::format("the key '{}' is missing", key));
}

Status Fields::expect_schema(std::string_view expected) {
  std::string schema;
  read("schema", schema);
  if (schema != expected) return invalid_argument("{}: expected 'schema: {}'", origin_, expected);
  return {};
}

void Fields::read(const char* key, std::string& out) {
  const YAML::Node value = get(key);
  if (!value.IsDefined()) return;
  if (!value.IsScalar()) return fail(value, fmt::format("'{}': expected text", key));
  out = value.Scalar();
}

void Fields::read(const char* key, bool& out) {
  const YAML::Node value = get(key);
  if (!value.IsDefined()) return;
  if (value.IsScalar() && value.Scalar() == "true") {
    out = true;
  } else if (value.IsScalar() && value.Scalar() == "false") {
    out = false;
  } else {
    fail(value, fmt::format("'{}': expected true or false", key));
  }
}

void Fields::read(const char* key, double& out, double low, double high) {
  const YAML::Node value = get(key);
  if (!value.IsDefined()) return;
  const auto number = value.IsScalar() ? to_number(value.Scalar()) : std::nullopt;
  if (!number || *number < low || *number > high) {
    return fail(value, fmt::format("'{}': expected a number from {} to {}, found '{}'", key, low, high,
                                   value.IsScalar() ? value.Scalar() : "a collection"));
  }
  out = *number;
}

void Fields::read(const char* key, std::int64_t& out, std::int64_t low, std::int64_t high) {
  const YAML::Node value = get(key);
  if (!value.IsDefined()) return;
  const auto number = value.IsScalar() ? to_integer(value.Scalar()) : std::nullopt;
  if (!number || *number < low || *number > high) {
    return fail(value, fmt::format("'{}': expected an integer from {} to {}, found '{}'", key, low, high,
                                   value.IsScalar() ? value.Scalar() : "a collection"));
  }
  out = *number;
}

void Fields::read(const char* key, std::vector<std::int64_t>& out) {
  const YAML::Node value = get(key);
  if (!value.IsDefined()) return;
  if (!value.IsSequence() || value.size() > 4096) return fail(value, fmt::format("'{}': expected a list", key));
  out.clear();
  for (const auto& item : value) {
    const auto number = item.IsScalar() ? to_integer(item.Scalar()) : std::nullopt;
    if (!number) return fail(item, fmt::format("'{}': expected integers", key));
    out.push_back(*number);
  }
}

void Fields::read(const char* key, std::vector<double>& out) {
  const YAML::Node value = get(key);
  if (!value.IsDefined()) return;
  if (!value.IsSequence() || value.size() > 4096) return fail(value, fmt::format("'{}': expected a list", key));
  out.clear();
  for (const auto& item : value) {
    const auto number = item.IsScalar() ? to_number(item.Scalar()) : std::nullopt;
    if (!number) return fail(item, fmt::format("'{}': expected numbers", key));
    out.push_back(*number);
  }
}

void Fields::read(const char* key, std::vector<std::string>& out) {
  const YAML::Node value = get(key);
  if (!value.IsDefined()) return;
  if (!value.IsSequence() || value.size() > 4096) return fail(value, fmt::format("'{}': expected a list", key));
  out.clear();
  for (const auto& item : value) {
    if (!item.IsScalar()) return fail(item, fmt::format("'{}': expected a list of text", key));
    out.push_back(item.Scalar());
  }
}

void Fields::done() {
  if (!status_.ok() || !node_.IsMap()) return;
  for (const auto& entry : node_) {
    if (!entry.first.IsScalar()) return fail(entry.first, "expected a plain key");
    if (!seen_.contains(entry.first.Scalar())) {
      return fail(entry.first, fmt::format("unknown key '{}'", entry.first.Scalar()));
    }
  }
}

}  // namespace perigee::planner
