// JSON as Python's json module reads and writes it: prompts must spell tools, schemas and arguments as the reference
// encoder, a Python program, does (spec chat.md 2.3, 2.4). Integers keep all their digits. Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace perigee {

struct PythonValue {
  enum class Kind : std::uint8_t { kNull, kBool, kInteger, kFloat, kString, kArray, kObject };
  Kind kind = Kind::kNull;
  bool boolean = false;
  double number = 0;               // kFloat
  std::string text;                // kString, and the digits of kInteger
  std::vector<std::string> keys;   // kObject: beside `items`, each key once
  std::vector<PythonValue> items;  // kArray, kObject

  bool truthy() const;
  // The member of an object; nullptr when absent or not an object.
  const PythonValue* find(std::string_view key) const;
};

PythonValue to_python(const Json& json);

// nullopt: not JSON for Python (which takes NaN and Infinity, and refuses raw control characters in strings). An error:
// JSON that has no place in a prompt, being nested deeper than 200 levels or holding half of a surrogate pair.
Result<std::optional<PythonValue>> parse_python_json(std::string_view text);

// json.dumps(value, ensure_ascii=False), with ", " and ": ", keys in their order.
std::string dump_python_json(const PythonValue& value);
// The same without white space and with keys sorted by code point at every depth.
std::string dump_sorted_json(const PythonValue& value);

// repr() of a float: the shortest digits that round-trip.
std::string python_float(double value);

// Appends `text` with the escapes of a JSON string and without quotes; UTF-8 stays as it is.
void append_json_escaped(std::string_view text, std::string& out);

// RFC 8259 (so no NaN), of any depth, in linear time without recursion.
bool is_json(std::string_view text);

// `text` without the four white space characters of JSON at its ends.
std::string_view trim_json(std::string_view text);

}  // namespace perigee
