#include <nlohmann/json.hpp>

#include "server/api/parse_parts.h"

namespace perigee::api {
namespace {

constexpr std::size_t kMaxNameBytes = 256;
constexpr std::size_t kMaxTools = 4096;

bool valid_name(const std::string& name) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  if (name.empty() || name.size() > kMaxNameBytes || !letter(name.front())) return false;
  for (const char c : name) {
    if (!letter(c) && !(c >= '0' && c <= '9') && c != '-') return false;
  }
  return true;
}

// The function's name, or an error.
std::string check_tool(const Json& tool, const std::string& path, MaybeError& error) {
  if (!tool.is_object()) {
    error = bad_field(path, "expected an object, found {}", json_type_name(tool));
    return {};
  }
  FieldReader fields(tool, path, error);
  std::string type;
  if (!fields.string("type", type) || type != "function") {
    fields.fail(bad_field(path + ".type", "expected \"function\""));
  }
  const Json* function = fields.object("function");
  if (function == nullptr) {
    fields.fail(bad_field(path + ".function", "is missing"));
    return {};
  }
  FieldReader inner(*function, path + ".function", error);
  std::string name;
  inner.string("name", name);
  if (!inner.failed() && !valid_name(name)) {
    inner.fail(
        bad_field(path + ".function.name", "expected [A-Za-z_][A-Za-z0-9_-]* of at most {} bytes", kMaxNameBytes));
  }
  std::string description;
  inner.string("description", description);
  inner.object("parameters");
  bool strict = false;
  inner.boolean("strict", strict);
  return name;
}

}  // namespace

ToolSet::ToolSet() : all_(std::make_shared<Json>(Json::array())) {}
ToolSet::~ToolSet() = default;

void ToolSet::add(const Json& tools, const std::string& path, MaybeError& error) {
  if (error) return;
  if (!tools.is_array()) {
    error = bad_field(path, "expected an array, found {}", json_type_name(tools));
    return;
  }
  for (std::size_t i = 0; i < tools.size() && !error; ++i) {
    const std::string item = fmt::format("{}[{}]", path, i);
    std::string name = check_tool(tools[i], item, error);
    if (error) return;
    if (names_.size() >= kMaxTools) {
      error = bad_field(path, "expected at most {} tools", kMaxTools);
      return;
    }
    if (!names_.insert(name).second) {
      error = bad_field(item + ".function.name", "\"{}\" is declared twice", name);
      return;
    }
    all_->push_back(tools[i]);
  }
}

ToolChoice parse_tool_choice(const Json* value, const ToolSet& tools, bool flat, MaybeError& error) {
  ToolChoice choice;
  if (error || value == nullptr) return choice;
  if (value->is_string()) {
    const auto& text = value->get_ref<const std::string&>();
    if (text == "none") {
      choice.kind = ToolChoiceKind::kNone;
    } else if (text == "required") {
      choice.kind = ToolChoiceKind::kRequired;
      if (tools.empty()) error = bad_field("tool_choice", "required needs at least one declared tool");
    } else if (text != "auto") {
      error = bad_field("tool_choice", "expected auto, none, required or an object, found \"{}\"", text);
    }
    return choice;
  }
  if (!value->is_object()) {
    error = bad_field("tool_choice", "expected a string or an object, found {}", json_type_name(*value));
    return choice;
  }
  FieldReader fields(*value, "tool_choice", error);
  std::string type;
  if (!fields.string("type", type) || type != "function") {
    fields.fail(bad_field("tool_choice.type", "expected \"function\""));
  }
  choice.kind = ToolChoiceKind::kNamed;
  if (flat) {
    fields.string("name", choice.name);
  } else if (const Json* function = fields.object("function")) {
    FieldReader inner(*function, "tool_choice.function", error);
    inner.string("name", choice.name);
  }
  if (!error && !tools.contains(choice.name)) {
    error =
        bad_field(flat ? "tool_choice.name" : "tool_choice.function.name", "no tool \"{}\" is declared", choice.name);
  }
  return choice;
}

}  // namespace perigee::api
