// Reads typed members of one JSON object; the first wrong member sticks and later calls do nothing, so a parser is a
// straight list of fields. null means absent. A number in a string is refused. Internal to server/api.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "server/api/api_error.h"

namespace perigee::api {

// The upper bound of a count that has none of its own.
inline constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

class FieldReader {
 public:
  // `path` prefixes names in errors: "" or "stream_options".
  FieldReader(const Json& object, std::string path, std::optional<ApiError>& error)
      : object_(object), path_(std::move(path)), error_(error) {}

  // Present and not null.
  const Json* find(std::string_view name) const;

  bool boolean(std::string_view name, bool& out);
  bool integer(std::string_view name, std::int64_t low, std::int64_t high, std::int64_t& out);
  bool integer(std::string_view name, std::int64_t low, std::int64_t high, std::int32_t& out);
  // low < value where `open_low`, else low <= value.
  bool number(std::string_view name, double low, double high, float& out, bool open_low = false);
  bool string(std::string_view name, std::string& out);
  const Json* object(std::string_view name);
  const Json* array(std::string_view name);

  std::string path(std::string_view name) const;
  bool failed() const { return error_.has_value(); }
  void fail(ApiError error) {
    if (!error_) error_ = std::move(error);
  }

 private:
  const Json* typed(std::string_view name, bool matches, const Json* value, std::string_view expected);

  const Json& object_;
  std::string path_;
  std::optional<ApiError>& error_;
};

// "a string", "an array": what was found, for messages.
std::string_view json_type_name(const Json& value);

}  // namespace perigee::api
