#include "server/api/fields.h"

#include <nlohmann/json.hpp>

namespace perigee::api {

std::string_view json_type_name(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::object:
      return "an object";
    case Json::value_t::array:
      return "an array";
    case Json::value_t::string:
      return "a string";
    case Json::value_t::boolean:
      return "a boolean";
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
      return "an integer";
    default:
      return "a number";
  }
}

const Json* FieldReader::find(std::string_view name) const {
  const auto member = object_.find(name);
  return member == object_.end() || member->is_null() ? nullptr : &*member;
}

std::string FieldReader::path(std::string_view name) const {
  return path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name);
}

const Json* FieldReader::typed(std::string_view name, bool matches, const Json* value, std::string_view expected) {
  if (matches) return value;
  fail(bad_field(path(name), "expected {}, found {}", expected, json_type_name(*value)));
  return nullptr;
}

bool FieldReader::boolean(std::string_view name, bool& out) {
  const Json* value = failed() ? nullptr : find(name);
  if (value == nullptr || typed(name, value->is_boolean(), value, "a boolean") == nullptr) return false;
  out = value->get<bool>();
  return true;
}

bool FieldReader::integer(std::string_view name, std::int64_t low, std::int64_t high, std::int64_t& out) {
  const Json* value = failed() ? nullptr : find(name);
  if (value == nullptr || typed(name, value->is_number_integer(), value, "an integer") == nullptr) return false;
  const bool huge =
      value->is_number_unsigned() && value->get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max();
  const std::int64_t number = huge ? std::numeric_limits<std::int64_t>::max() : value->get<std::int64_t>();
  if (number < low || number > high || (huge && high != std::numeric_limits<std::int64_t>::max())) {
    if (high >= std::numeric_limits<std::int32_t>::max()) {
      fail(bad_field(path(name), "expected at least {}, found {}", low, value->dump()));
    } else {
      fail(bad_field(path(name), "expected {} to {}, found {}", low, high, value->dump()));
    }
    return false;
  }
  out = number;
  return true;
}

bool FieldReader::integer(std::string_view name, std::int64_t low, std::int64_t high, std::int32_t& out) {
  std::int64_t wide = 0;
  if (!integer(name, low, std::min<std::int64_t>(high, std::numeric_limits<std::int32_t>::max()), wide)) return false;
  out = static_cast<std::int32_t>(wide);
  return true;
}

bool FieldReader::number(std::string_view name, double low, double high, float& out, bool open_low) {
  const Json* value = failed() ? nullptr : find(name);
  if (value == nullptr || typed(name, value->is_number(), value, "a number") == nullptr) return false;
  const auto number = value->get<double>();
  if (!(number >= low && number <= high) || (open_low && number == low)) {
    fail(bad_field(path(name), "expected {} {} to {}, found {}", open_low ? "more than" : "from", low, high,
                   value->dump()));
    return false;
  }
  out = static_cast<float>(number);
  return true;
}

bool FieldReader::string(std::string_view name, std::string& out) {
  const Json* value = failed() ? nullptr : find(name);
  if (value == nullptr || typed(name, value->is_string(), value, "a string") == nullptr) return false;
  out = value->get_ref<const std::string&>();
  return true;
}

const Json* FieldReader::object(std::string_view name) {
  const Json* value = failed() ? nullptr : find(name);
  return value == nullptr ? nullptr : typed(name, value->is_object(), value, "an object");
}

const Json* FieldReader::array(std::string_view name) {
  const Json* value = failed() ? nullptr : find(name);
  return value == nullptr ? nullptr : typed(name, value->is_array(), value, "an array");
}

}  // namespace perigee::api
