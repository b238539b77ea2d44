// A YAML or JSON document as a tree in which every value knows its line. base/json.h builds documents without
// positions, and yaml-cpp's nodes hide duplicate keys, so preflight reads both into this form.
// Values are immutable once built and shared (a YAML alias is the same node): never expand the tree, walk it with
// a budget.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/preflight/text.h"

namespace perigee::planner {

struct Value;
using ValuePtr = std::shared_ptr<const Value>;

enum class ValueKind : std::uint8_t { kNull, kBool, kNumber, kString, kList, kMap };

struct Member {
  std::string key;
  int line = 0;
  ValuePtr value;
};

struct Value {
  ValueKind kind = ValueKind::kNull;
  Text text;  // scalars: the text; a string that holds kUnknown has no value before the script runs
  int line = 0;
  int last_line = 0;
  bool plain = false;  // YAML: written without quotes
  std::vector<ValuePtr> items;
  std::vector<Member> members;     // first of each key
  std::vector<Member> duplicates;  // later ones of a key that was there already

  const Value* find(std::string_view key) const;
  const Member* member(std::string_view key) const;
  // nullopt when the kind does not fit or the text is not known.
  std::optional<std::int64_t> integer() const;
  std::optional<double> number() const;
  std::optional<bool> boolean() const;
  // A scalar's text; lists and maps give "".
  const std::string& str() const { return text.value; }
  bool unknown() const { return text.unknown(); }
  bool scalar() const { return kind != ValueKind::kList && kind != ValueKind::kMap; }
};

// value.find(a)->find(b)->...; nullptr when a step is missing.
const Value* find_path(const Value* value, std::initializer_list<std::string_view> keys);

struct ParseFailure {
  int line = 0;
  std::string message;  // empty: no failure
};

// Strict JSON. At most 64 levels, 4,096 keys an object and 200,000 values. Returns nullptr and fills `failure`.
ValuePtr parse_located_json(const Text& text, ParseFailure& failure);

// All documents of a YAML stream, with anchors and aliases, without merge keys. At most 64 levels, 200,000 nodes
// and 1,000 documents.
std::vector<ValuePtr> parse_located_yaml(std::string_view text, ParseFailure& failure);

// Text of a file as lines: refuses NUL, the kUnknown byte and invalid UTF-8, and names the line.
bool plain_text(std::string_view content, ParseFailure& failure);

}  // namespace perigee::planner
