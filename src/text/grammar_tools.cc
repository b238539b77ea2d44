#include "text/grammar_tools.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "text/grammar_raw_string.h"
#include "text/grammar_schema.h"

namespace perigee {
namespace {

constexpr std::array<std::string_view, 6> kTypes = {"string", "number", "boolean", "object", "array", "null"};

bool of_type(const Json& value, std::string_view type) {
  if (type == "string") return value.is_string();
  if (type == "number") return value.is_number();
  if (type == "boolean") return value.is_boolean();
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  return value.is_null();
}

// The schema with only the values of one type left; null where `type` and enum leave nothing.
Json restrict_to(const Json& schema, std::string_view type) {
  Json out = schema.is_object() ? schema : Json::object();
  if (schema == false) return nullptr;
  Json types = Json::array();
  const auto declared = out.find("type");
  if (declared == out.end()) {
    types.push_back(std::string(type));
  } else {
    const Json list = declared->is_array() ? *declared : Json::array({*declared});
    for (const Json& name : list) {
      if (name == std::string(type) || (type == "number" && name == "integer")) types.push_back(name);
    }
  }
  if (types.empty()) return nullptr;
  const bool any_number = std::find(types.begin(), types.end(), Json("number")) != types.end();
  out["type"] = any_number ? Json("number") : types.front();
  if (const auto values = out.find("enum"); values != out.end() && values->is_array()) {
    Json kept = Json::array();
    for (const Json& value : *values) {
      if (of_type(value, type)) kept.push_back(value);
    }
    if (kept.empty()) return nullptr;
    *values = std::move(kept);
  }
  if (const auto value = out.find("const"); value != out.end() && !of_type(*value, type)) return nullptr;
  return out;
}

ValueForm free_form(std::string_view type) {
  return {.type = std::string(type), .literals = nullptr, .matcher = nullptr};
}

Result<ValueForm> json_form(std::string_view type, Json schema, const Json& defs, const CompileGrammar& compile) {
  if (!defs.empty()) schema["$defs"] = defs;
  PERIGEE_ASSIGN_OR_RETURN(auto matcher, compile(GrammarLanguage::kJsonSchema, compact_schema_text(schema)));
  ValueForm form = free_form(type);
  form.kind = ValueForm::Kind::kMatcher;
  form.matcher = std::move(matcher);
  return form;
}

Status add_string_form(const Json& schema, const Json& defs, const CompileGrammar& compile,
                       std::vector<ValueForm>& forms) {
  PERIGEE_ASSIGN_OR_RETURN(const RawStrings strings, raw_strings(schema, defs));
  ValueForm form = free_form("string");
  if (strings.values) {
    if (strings.values->empty()) return {};
    form.kind = ValueForm::Kind::kLiterals;
    form.literals = std::make_shared<const std::vector<std::string>>(strings.values->begin(), strings.values->end());
  } else if (!strings.any) {
    form.kind = ValueForm::Kind::kMatcher;
    PERIGEE_ASSIGN_OR_RETURN(
        form.matcher, compile(GrammarLanguage::kLark, fmt::format("start: VALUE\nVALUE: {}\n", strings.expression)));
  }
  forms.push_back(std::move(form));
  return {};
}

bool unsatisfiable(const Status& status) {
  return status.message().find("nsatisfiable") != std::string::npos;
}

// All ways to write a value of the schema. An error if one of them cannot be enforced.
Result<std::vector<ValueForm>> value_forms(const Json& schema, const Json& defs, const CompileGrammar& compile) {
  std::vector<ValueForm> forms;
  for (const std::string_view type : kTypes) {
    if (type == "string") {
      PERIGEE_RETURN_IF_ERROR(add_string_form(schema, defs, compile, forms));
      continue;
    }
    Json restricted = restrict_to(schema, type);
    if (restricted.is_null()) continue;
    auto form = json_form(type, std::move(restricted), defs, compile);
    if (form.ok()) {
      forms.push_back(std::move(form).value());
    } else if (!unsatisfiable(form.status())) {
      return form.status();
    }
  }
  return forms;
}

// For values without a schema; the attribute may also say integer there.
Result<std::vector<ValueForm>> any_forms(const CompileGrammar& compile) {
  PERIGEE_ASSIGN_OR_RETURN(std::vector<ValueForm> forms, value_forms(Json(true), Json::object(), compile));
  PERIGEE_ASSIGN_OR_RETURN(ValueForm integer, json_form("integer", Json{{"type", "integer"}}, Json::object(), compile));
  forms.push_back(std::move(integer));
  return forms;
}

// Members of a parameters object that constrain it as a whole and that the machine does not follow.
std::string_view unfollowed_keyword(const Json& parameters) {
  for (const std::string_view name :
       {"patternProperties", "minProperties", "maxProperties", "anyOf", "oneOf", "allOf", "enum", "const"}) {
    if (parameters.contains(name)) return name;
  }
  return {};
}

const Json& resolve(const Json& schema, const Json& defs) {
  const Json* node = &schema;
  for (int hops = 0; hops < 32 && node->is_object() && node->size() <= 2; ++hops) {
    const auto ref = node->find("$ref");
    if (ref == node->end()) break;
    const auto& name = ref->get_ref<const std::string&>();
    node = &defs.at(name.substr(name.rfind('/') + 1));
  }
  return *node;
}

Status fill_rule(const Json& declared, bool strict, const CompileGrammar& compile, ToolRule& rule) {
  PERIGEE_ASSIGN_OR_RETURN(const Json prepared, prepare_schema(declared));
  static const Json kNoDefs = Json::object();
  const auto found = prepared.find("$defs");
  const Json& defs = prepared.is_object() && found != prepared.end() ? *found : kNoDefs;
  const Json& schema = resolve(prepared, defs);
  if (!schema.is_object()) return {};
  if (const std::string_view keyword = unfollowed_keyword(schema); !keyword.empty()) {
    return invalid_argument("/{}: the keyword \"{}\" is not supported at the top of tool parameters", keyword, keyword);
  }
  if (const auto type = schema.find("type"); type != schema.end() && *type != "object") {
    return invalid_argument("/type: expected \"object\" at the top of tool parameters");
  }
  const auto required = schema.find("required");
  const auto is_required = [&](const std::string& key) {
    return required != schema.end() && required->is_array() &&
           std::find(required->begin(), required->end(), Json(key)) != required->end();
  };
  const auto properties = schema.find("properties");
  if (properties != schema.end()) {
    for (const auto& [key, value] : properties->items()) {
      auto forms = value_forms(value, defs, compile);
      if (!forms.ok() && strict) return forms.status().with_context(fmt::format("/properties/{}", key));
      if (!forms.ok()) forms = any_forms(compile);
      if (!forms.ok()) return forms.status();
      if (forms->empty() && is_required(key)) {
        return invalid_argument("/properties/{}: is required, and no value is possible", key);
      }
      rule.arguments.push_back({escape_attribute(key), is_required(key), std::move(forms).value()});
    }
  }
  const auto additional = schema.find("additionalProperties");
  const bool open = additional == schema.end() || *additional == true || additional->empty();
  PERIGEE_ASSIGN_OR_RETURN(rule.other_keys, open ? any_forms(compile) : value_forms(*additional, defs, compile));
  if (required == schema.end() || !required->is_array()) return {};
  for (const Json& key : *required) {
    const bool known = key.is_string() && properties != schema.end() && properties->contains(key.get<std::string>());
    if (!key.is_string() || known) continue;
    if (rule.other_keys.empty()) return invalid_argument("/required: \"{}\" is not allowed", key.get<std::string>());
    rule.arguments.push_back({escape_attribute(key.get<std::string>()), true, rule.other_keys});
  }
  return {};
}

}  // namespace

std::string escape_attribute(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '"') {
      out += "&quot;";
    } else {
      out += c;
    }
  }
  return out;
}

std::string regex_literal(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
                       static_cast<unsigned char>(c) >= 0x80;
    if (plain) {
      out += c;
    } else {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

Result<ToolRule> make_tool_rule(const Json& tool, const CompileGrammar& compile) {
  const Json& function = tool.at("function");
  ToolRule rule;
  rule.name = escape_attribute(function.at("name").get_ref<const std::string&>());
  const auto flag = function.find("strict");
  const bool strict = flag != function.end() && *flag == true;
  const bool loose = flag != function.end() && *flag == false;
  const auto parameters = function.find("parameters");
  Status status;
  if (parameters != function.end() && !parameters->is_null() && !loose) {
    status = fill_rule(*parameters, strict, compile, rule);
    if (status.ok()) return rule;
    if (strict)
      return status.with_context(fmt::format("tool \"{}\", parameters", function.at("name").get<std::string>()));
    rule.arguments.clear();
  }
  PERIGEE_ASSIGN_OR_RETURN(rule.other_keys, any_forms(compile));
  return rule;
}

}  // namespace perigee
