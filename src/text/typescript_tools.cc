// Tool declarations of K2.5 as TypeScript text (spec chat.md 4.1). Works on deep-sorted values, as the reference does.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "text/python_json.h"
#include "text/renderers.h"

namespace perigee {
namespace {

using Kind = PythonValue::Kind;

void sort_deep(PythonValue& value) {
  for (PythonValue& item : value.items) sort_deep(item);
  if (value.kind != Kind::kObject) return;
  std::vector<std::pair<std::string, PythonValue>> members;
  for (std::size_t i = 0; i < value.keys.size(); ++i) {
    members.emplace_back(std::move(value.keys[i]), std::move(value.items[i]));
  }
  std::sort(members.begin(), members.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (std::size_t i = 0; i < members.size(); ++i) {
    value.keys[i] = std::move(members[i].first);
    value.items[i] = std::move(members[i].second);
  }
}

// Python's str() of a JSON value.
std::string python_text(const PythonValue& value) {
  switch (value.kind) {
    case Kind::kNull:
      return "None";
    case Kind::kBool:
      return value.boolean ? "True" : "False";
    case Kind::kString:
      return value.text;
    default:
      return dump_python_json(value);
  }
}

std::string json_or_python(const PythonValue& value) {
  const bool scalar = value.kind == Kind::kNull || value.kind == Kind::kBool;
  return scalar ? python_text(value) : dump_python_json(value);
}

// "// " before every line that is not empty.
std::string comment(std::string_view text, const std::string& indent) {
  std::string out;
  while (true) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    if (end != 0) out.append(indent).append("// ").append(text.substr(0, end));
    if (end == text.size()) return out;
    out += '\n';
    text.remove_prefix(end + 1);
  }
}

std::string text_of(const PythonValue* value) {
  return value != nullptr && value->kind == Kind::kString ? value->text : "";
}

class FunctionWriter {
 public:
  explicit FunctionWriter(std::string path) : path_(std::move(path)) {}

  Result<std::string> write(const PythonValue& function) {
    static const PythonValue kNoParameters = [] {
      PythonValue value;
      value.kind = Kind::kObject;
      return value;
    }();
    const PythonValue* parameters = function.find("parameters");
    if (parameters == nullptr || !parameters->truthy()) parameters = &kNoParameters;
    definitions_ = parameters->find("$defs");
    std::string root;
    if (parameters->items.empty()) {
      root = "{}";
    } else {
      PERIGEE_ASSIGN_OR_RETURN(root, type(*parameters, ""));
    }
    std::string out;
    if (self_reference_) {
      PERIGEE_ASSIGN_OR_RETURN(const std::string body, object(*parameters, "", false));
      out += "interface parameters " + body + "\n";
      root = "parameters";
    }
    for (std::size_t i = 0; definitions_ != nullptr && i < definitions_->keys.size(); ++i) {
      const PythonValue& definition = definitions_->items[i];
      if (const std::string text = text_of(definition.find("description")); !text.empty()) {
        out += comment(text, "") + "\n";
      }
      PERIGEE_ASSIGN_OR_RETURN(const std::string body, type(definition, ""));
      out += "interface " + definitions_->keys[i] + " " + body + "\n";
    }
    if (const std::string text = text_of(function.find("description")); !text.empty()) out += comment(text, "") + "\n";
    return out + "type " + text_of(function.find("name")) + " = (_: " + root + ") => any;";
  }

 private:
  Status error(std::string_view what) const { return invalid_argument("{}.parameters: {}", path_, what); }

  Result<std::string> type(const PythonValue& schema, const std::string& indent) {
    if (schema.kind == Kind::kBool && schema.boolean) return std::string("any");
    if (schema.kind != Kind::kObject) return error("expected every schema to be an object or true");
    if (schema.keys.empty()) return std::string("any");
    if (schema.find("$ref") != nullptr) return reference(text_of(schema.find("$ref")));
    if (const PythonValue* values = schema.find("enum"); values != nullptr) return enumeration(*values);
    if (const PythonValue* options = schema.find("anyOf"); options != nullptr) {
      std::string out;
      for (const PythonValue& option : options->items) {
        PERIGEE_ASSIGN_OR_RETURN(const std::string text, type(option, indent));
        out += (out.empty() ? "" : " | ") + text;
      }
      return out;
    }
    const PythonValue* name = schema.find("type");
    if (name == nullptr) return error("expected every schema to have $ref, enum, anyOf or type");
    if (name->kind == Kind::kArray) {
      std::string out;
      for (const PythonValue& option : name->items) {
        const std::string text = text_of(&option);
        out += out.empty() ? "" : " | ";
        out += text == "object" ? "{}" : text == "array" ? "Array<any>" : basic_type(text);
      }
      return out;
    }
    if (text_of(name) == "object") return object(schema, indent, true);
    if (text_of(name) == "array") return array(schema, indent);
    return basic_type(text_of(name));
  }

  static std::string basic_type(const std::string& name) { return name == "integer" ? "number" : name; }

  Result<std::string> reference(const std::string& target) {
    constexpr std::string_view kDefinitions = "#/$defs/";
    if (target == "#") {
      self_reference_ = true;
      return std::string("parameters");
    }
    if (target.starts_with(kDefinitions)) {
      const std::string name = target.substr(kDefinitions.size());
      if (definitions_ != nullptr && definitions_->find(name) != nullptr) return name;
    }
    return error(fmt::format("$ref \"{}\" leads nowhere", target));
  }

  static std::string enumeration(const PythonValue& values) {
    std::string out;
    for (const PythonValue& value : values.items) out += (out.empty() ? "" : " | ") + json_or_python(value);
    return out;
  }

  Result<std::string> array(const PythonValue& schema, const std::string& indent) {
    const PythonValue* items = schema.find("items");
    if (items == nullptr) return std::string("Array<any>");
    const std::string inner = indent + "  ";
    const std::string comments = field_comments(*items, inner);
    if (comments.empty()) {
      PERIGEE_ASSIGN_OR_RETURN(const std::string text, type(*items, indent));
      return "Array<" + text + ">";
    }
    PERIGEE_ASSIGN_OR_RETURN(const std::string text, type(*items, inner));
    return "Array<\n" + comments + inner + text + "\n" + indent + ">";
  }

  Result<std::string> object(const PythonValue& schema, const std::string& indent, bool required_first) {
    const std::string inner = indent + "  ";
    const PythonValue* properties = schema.find("properties");
    std::vector<std::string> required;
    if (const PythonValue* list = schema.find("required"); list != nullptr) {
      for (const PythonValue& name : list->items) required.push_back(text_of(&name));
    }
    const auto is_required = [&](const std::string& name) {
      return std::find(required.begin(), required.end(), name) != required.end();
    };
    std::vector<std::size_t> order;
    for (std::size_t i = 0; properties != nullptr && i < properties->keys.size(); ++i) order.push_back(i);
    if (required_first) {
      std::stable_partition(order.begin(), order.end(),
                            [&](std::size_t i) { return is_required(properties->keys[i]); });
    }
    std::vector<std::string> fields;
    for (const std::size_t i : order) {
      const std::string& name = properties->keys[i];
      const PythonValue& field = properties->items[i];
      PERIGEE_ASSIGN_OR_RETURN(const std::string text, type(field, inner));
      fields.push_back(field_comments(field, inner) + inner + name + (is_required(name) ? ": " : "?: ") + text);
    }
    if (const PythonValue* extra = schema.find("additionalProperties"); extra != nullptr) {
      std::string text = "never";
      if (extra->kind != Kind::kBool || extra->boolean) {
        PERIGEE_ASSIGN_OR_RETURN(text, type(*extra, inner));
      }
      fields.push_back(inner + "[k: string]: " + text);
    }
    if (fields.empty()) return std::string("{}");
    std::string out = "{\n";
    for (std::size_t i = 0; i < fields.size(); ++i) out += (i == 0 ? "" : ",\n") + fields[i];
    return out + "\n" + indent + "}";
  }

  // Description, constraints and default, each ended by a newline.
  static std::string field_comments(const PythonValue& schema, const std::string& indent) {
    std::string out;
    if (const std::string text = text_of(schema.find("description")); !text.empty()) {
      out += comment(text, indent) + "\n";
    }
    std::string constraints;
    for (const std::string_view key : constraint_keys(schema)) {
      const PythonValue* value = schema.find(key);
      if (value == nullptr) continue;
      constraints += constraints.empty() ? "" : ", ";
      constraints.append(key).append(": ").append(python_text(*value));
    }
    if (!constraints.empty()) out += comment(constraints, indent) + "\n";
    if (const PythonValue* value = schema.find("default"); value != nullptr && value->kind != Kind::kNull) {
      out += comment("Default: " + json_or_python(*value), indent) + "\n";
    }
    return out;
  }

  static std::vector<std::string_view> constraint_keys(const PythonValue& schema) {
    if (schema.find("$ref") != nullptr || schema.find("enum") != nullptr || schema.find("anyOf") != nullptr) return {};
    const std::string name = text_of(schema.find("type"));
    if (name == "string") return {"maxLength", "minLength", "pattern"};
    if (name == "number" || name == "integer") return {"maximum", "minimum"};
    if (name == "array") return {"maxItems", "minItems"};
    return {};
  }

  std::string path_;
  const PythonValue* definitions_ = nullptr;
  bool self_reference_ = false;
};

}  // namespace

Result<std::string> typescript_tools(const Json& tools) {
  std::string out = "# Tools\n\n## functions\nnamespace functions {\n";
  for (std::size_t i = 0; i < tools.size(); ++i) {
    PythonValue tool = to_python(tools[i]);
    if (text_of(tool.find("type")) != "function") continue;
    const PythonValue* function = tool.find("function");
    if (function == nullptr) return invalid_argument("tools[{}].function: expected an object", i);
    PythonValue sorted = *function;
    sort_deep(sorted);
    PERIGEE_ASSIGN_OR_RETURN(const std::string text,
                             FunctionWriter(fmt::format("tools[{}].function", i)).write(sorted));
    out += text + "\n";
  }
  return out + "}\n";
}

}  // namespace perigee
