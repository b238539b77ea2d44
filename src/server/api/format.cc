#include <nlohmann/json.hpp>

#include "server/api/parse_parts.h"

namespace perigee::api {
namespace {

void set_schema(const Json& schema, const std::string& path, ResponseFormat& format, MaybeError& error) {
  if (!schema.is_object()) {
    error = bad_field(path, "expected an object, found {}", json_type_name(schema));
    return;
  }
  format.kind = FormatKind::kJsonSchema;
  format.schema = std::make_shared<const Json>(schema);
  format.param = path;
}

// A schema given as an object or as its text.
void set_schema_or_text(const Json& value, const std::string& path, ResponseFormat& format, MaybeError& error) {
  if (!value.is_string()) return set_schema(value, path, format, error);
  auto parsed = parse_json(value.get_ref<const std::string&>());
  if (!parsed.ok()) {
    error = bad_field(path, "{}", parsed.status().message());
    return;
  }
  set_schema(*parsed, path, format, error);
}

void set_text(const Json& value, FormatKind kind, const std::string& path, ResponseFormat& format, MaybeError& error) {
  if (!value.is_string() || value.get_ref<const std::string&>().empty()) {
    error = bad_field(path, "expected a non-empty string");
    return;
  }
  format.kind = kind;
  format.text = value.get<std::string>();
  format.param = path;
}

void set_choice(const Json& value, const std::string& path, ResponseFormat& format, MaybeError& error) {
  constexpr std::string_view kSpecial = R"(\.+*?()|[]{}^$#&-~/)";
  if (!value.is_array() || value.empty()) {
    error = bad_field(path, "expected a non-empty array of strings");
    return;
  }
  std::string pattern;
  for (const Json& item : value) {
    if (!item.is_string()) {
      error = bad_field(path, "expected strings, found {}", json_type_name(item));
      return;
    }
    if (!pattern.empty()) pattern += '|';
    for (const char c : item.get_ref<const std::string&>()) {
      if (kSpecial.find(c) != std::string_view::npos) pattern += '\\';
      pattern += c;
    }
  }
  set_text(Json("(" + pattern + ")"), FormatKind::kRegex, path, format, error);
}

}  // namespace

ResponseFormat parse_format(const Json* value, const std::string& path, bool flat, MaybeError& error) {
  ResponseFormat format;
  if (error || value == nullptr) return format;
  if (!value->is_object()) {
    error = bad_field(path, "expected an object, found {}", json_type_name(*value));
    return format;
  }
  FieldReader fields(*value, path, error);
  std::string type;
  if (!fields.string("type", type)) {
    fields.fail(bad_field(path + ".type", "is missing"));
    return format;
  }
  format.param = path;
  if (type == "json_object") {
    format.kind = FormatKind::kJsonObject;
  } else if (type == "json_schema") {
    const Json* holder = flat ? value : fields.object("json_schema");
    if (holder == nullptr) {
      fields.fail(bad_field(path + ".json_schema", "is missing"));
      return format;
    }
    FieldReader inner(*holder, flat ? path : path + ".json_schema", error);
    std::string name;
    inner.string("name", name);
    if (name.empty()) inner.fail(bad_field(inner.path("name"), "expected a non-empty string"));
    inner.boolean("strict", format.strict);
    const Json* schema = inner.find("schema");
    if (schema == nullptr) inner.fail(bad_field(inner.path("schema"), "is missing"));
    if (!error) set_schema(*schema, inner.path("schema"), format, error);
  } else if (type != "text") {
    error = bad_field(path + ".type", "expected text, json_object or json_schema, found \"{}\"", type);
  }
  return format;
}

void parse_format_extensions(FieldReader& fields, ResponseFormat& format) {
  MaybeError error;
  std::string seen = format.kind == FormatKind::kText ? "" : format.param;
  const auto read = [&](const Json* value, const std::string& path, std::string_view what) {
    if (value == nullptr || error) return;
    if (what == "json_object" && value->is_boolean() && !value->get<bool>()) return;
    if (!seen.empty()) {
      error = bad_field(path, "only one output format is allowed; {} is set too", seen);
      return;
    }
    seen = path;
    if (what == "json") {
      set_schema_or_text(*value, path, format, error);
    } else if (what == "regex") {
      set_text(*value, FormatKind::kRegex, path, format, error);
    } else if (what == "choice") {
      set_choice(*value, path, format, error);
    } else if (what == "grammar") {
      set_text(*value, FormatKind::kGrammar, path, format, error);
    } else if (value->is_boolean()) {
      format.kind = FormatKind::kJsonObject;
      format.param = path;
    } else {
      error = bad_field(path, "expected a boolean, found {}", json_type_name(*value));
    }
  };
  if (const Json* group = fields.object("structured_outputs")) {
    for (const std::string_view what : {"json", "regex", "choice", "grammar", "json_object"}) {
      const auto member = group->find(what);
      if (member != group->end() && !member->is_null()) {
        read(&*member, fmt::format("structured_outputs.{}", what), what);
      }
    }
  }
  static constexpr std::pair<std::string_view, std::string_view> kFlat[] = {
      {"guided_json", "json"}, {"guided_regex", "regex"}, {"guided_choice", "choice"}, {"guided_grammar", "grammar"},
      {"json_schema", "json"}, {"regex", "regex"},        {"ebnf", "grammar"},         {"grammar", "grammar"}};
  for (const auto& [name, what] : kFlat) read(fields.find(name), std::string(name), what);
  if (error) fields.fail(*error);
}

}  // namespace perigee::api
