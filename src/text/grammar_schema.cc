#include "text/grammar_schema.h"

#include <algorithm>
#include <charconv>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

namespace perigee {
namespace {

// A length that no answer can reach: the library's counters end above it.
constexpr double kEndless = 268'435'456;

constexpr std::string_view kFormats[] = {"date-time", "time", "date", "duration", "email",
                                         "hostname",  "uuid", "uri",  "ipv4",     "ipv6"};

// Members that hold one schema, an array of schemas, or an object of schemas.
constexpr std::string_view kSchemaMembers[] = {"additionalProperties", "items"};
constexpr std::string_view kArrayMembers[] = {"anyOf", "oneOf", "allOf", "prefixItems"};
constexpr std::string_view kMapMembers[] = {"properties", "patternProperties"};

template <std::size_t N>
bool contains(const std::string_view (&list)[N], std::string_view name) {
  return std::find(std::begin(list), std::end(list), name) != std::end(list);
}

bool empty_schema(const Json& value) {
  return value == true || (value.is_object() && value.empty());
}

std::string escape_pointer(std::string_view key) {
  std::string out;
  for (const char c : key) {
    if (c == '~') {
      out += "~0";
    } else if (c == '/') {
      out += "~1";
    } else {
      out += c;
    }
  }
  return out;
}

std::string percent_decode(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned value = 0;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(text.data() + i + 1, text.data() + i + 3, value, 16).ptr == text.data() + i + 3) {
      out += static_cast<char>(value);
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

// The value at a JSON pointer; null if there is none.
const Json* at_pointer(const Json& root, std::string_view pointer) {
  const Json* node = &root;
  while (!pointer.empty()) {
    pointer.remove_prefix(1);
    const std::size_t end = std::min(pointer.find('/'), pointer.size());
    std::string token;
    for (std::size_t i = 0; i < end; ++i) {
      if (pointer[i] == '~' && i + 1 < end && (pointer[i + 1] == '0' || pointer[i + 1] == '1')) {
        token += pointer[++i] == '0' ? '~' : '/';
      } else {
        token += pointer[i];
      }
    }
    pointer.remove_prefix(end);
    if (node->is_object()) {
      const auto member = node->find(token);
      if (member == node->end()) return nullptr;
      node = &*member;
    } else if (node->is_array()) {
      std::size_t index = 0;
      const auto [last, code] = std::from_chars(token.data(), token.data() + token.size(), index);
      if (code != std::errc() || last != token.data() + token.size() || index >= node->size()) return nullptr;
      node = &(*node)[index];
    } else {
      return nullptr;
    }
  }
  return node;
}

// RFC 3986 as far as identifiers of schemas need it: absolute references, and relative ones by last segment.
std::string resolve_uri(const std::string& base, const std::string& reference) {
  if (reference.empty()) return base;
  const std::size_t colon = reference.find(':');
  if (colon != std::string::npos && reference.find_first_of("/?") > colon) return reference;
  const std::size_t authority = base.find("://");
  if (reference.front() == '/' && authority != std::string::npos) {
    return base.substr(0, std::min(base.find('/', authority + 3), base.size())) + reference;
  }
  const std::size_t slash = base.rfind('/');
  return slash == std::string::npos ? reference : base.substr(0, slash + 1) + reference;
}

struct Reference {
  std::string uri;
  std::string fragment;  // without '#'
};

Reference split_reference(const std::string& base, const std::string& text) {
  const std::size_t hash = text.find('#');
  Reference out;
  out.uri = resolve_uri(base, text.substr(0, hash));
  if (hash != std::string::npos) out.fragment = percent_decode(std::string_view(text).substr(hash + 1));
  return out;
}

// Where identifiers point, and the base of every schema in the document.
class Identifiers {
 public:
  explicit Identifiers(const Json& root) {
    roots_[""] = &root;
    visit(root, "");
  }

  // Null if nothing has that name.
  const Json* find(const Json& from, const std::string& reference) const {
    const auto base = bases_.find(&from);
    const Reference target = split_reference(base == bases_.end() ? "" : base->second, reference);
    const auto root = roots_.find(target.uri);
    if (target.fragment.empty()) return root == roots_.end() ? nullptr : root->second;
    if (target.fragment.front() == '/') {
      return root == roots_.end() ? nullptr : at_pointer(*root->second, target.fragment);
    }
    const auto anchor = anchors_.find(target.uri + "#" + target.fragment);
    return anchor == anchors_.end() ? nullptr : anchor->second;
  }

 private:
  void visit(const Json& schema, std::string base) {
    if (!schema.is_object()) return;
    for (const std::string_view name : {"$id", "id"}) {
      const auto id = schema.find(name);
      if (id == schema.end() || !id->is_string()) continue;
      const Reference own = split_reference(base, id->get_ref<const std::string&>());
      if (!own.fragment.empty() && own.fragment.front() != '/') anchors_[own.uri + "#" + own.fragment] = &schema;
      if (own.uri != base) {
        base = own.uri;
        roots_.emplace(base, &schema);
      }
    }
    for (const std::string_view name : {"$anchor", "$dynamicAnchor"}) {
      const auto anchor = schema.find(name);
      if (anchor != schema.end() && anchor->is_string()) anchors_[base + "#" + anchor->get<std::string>()] = &schema;
    }
    bases_[&schema] = base;
    for (const auto& [key, value] : schema.items()) {
      if (key == "properties" || key == "patternProperties" || key == "$defs" || key == "definitions") {
        if (value.is_object()) {
          for (const auto& member : value) visit(member, base);
        }
      } else if (value.is_array() && (contains(kArrayMembers, key) || key == "items")) {
        for (const auto& item : value) visit(item, base);
      } else if (contains(kSchemaMembers, key)) {
        visit(value, base);
      }
    }
  }

  std::map<std::string, const Json*> roots_;
  std::map<std::string, const Json*> anchors_;
  std::map<const Json*, std::string> bases_;
};

class Rewriter {
 public:
  Rewriter(const Json& root, const SchemaLimits& limits) : limits_(limits), identifiers_(root) {
    const auto draft = root.is_object() ? root.find("$schema") : root.end();
    if (root.is_object() && draft != root.end() && draft->is_string()) {
      const auto& name = draft->get_ref<const std::string&>();
      for (const std::string_view old : {"draft-03", "draft-04", "draft-06", "draft-07"}) {
        if (name.find(old) != std::string::npos) ref_hides_siblings_ = true;
      }
    }
  }

  Result<Json> run(const Json& root) {
    Json out = rewrite(root, "", 0);
    Json defs = Json::object();
    for (std::size_t i = 0; i < pending_.size() && status_.ok(); ++i) {  // grows while it runs
      defs[fmt::format("r{}", i)] = rewrite(*pending_[i].schema, pending_[i].path, 0);
    }
    if (!status_.ok()) return status_;
    if (!defs.empty()) {
      if (!out.is_object()) return invalid_argument("$ref: the schema holds nothing to refer to");
      out["$defs"] = std::move(defs);
    }
    return out;
  }

 private:
  struct Pending {
    const Json* schema;
    std::string path;
  };

  void fail(const std::string& path, const std::string& message) {
    if (status_.ok()) status_ = invalid_argument("{}: {}", path.empty() ? "/" : path, message);
  }

  void refuse(const std::string& path, std::string_view keyword) {
    fail(fmt::format("{}/{}", path, keyword), fmt::format("the keyword \"{}\" is not supported", keyword));
  }

  Json rewrite(const Json& schema, const std::string& path, std::size_t depth) {
    if (!status_.ok()) return {};
    if (schema.is_boolean()) return schema;
    if (!schema.is_object()) {
      fail(path, "expected a schema (an object or a boolean)");
      return {};
    }
    if (depth > limits_.depth) {
      fail(path, fmt::format("nested deeper than {} schemas", limits_.depth));
      return {};
    }
    if (++count_ > limits_.schemas) {
      fail(path, fmt::format("more than {} schemas", limits_.schemas));
      return {};
    }
    const auto ref = schema.find("$ref");
    if (ref != schema.end() && ref_hides_siblings_) return Json{{"$ref", reference(schema, *ref, path)}};
    Json out = Json::object();
    for (const auto& [key, value] : schema.items()) {
      if (!status_.ok()) return {};
      const std::string inner = fmt::format("{}/{}", path, escape_pointer(key));
      if (key == "$ref") {
        out[key] = reference(schema, value, path);
      } else if (contains(kMapMembers, key)) {
        out[key] = rewrite_map(value, inner, depth);
      } else if (contains(kArrayMembers, key)) {
        out[key] = rewrite_array(value, inner, depth);
      } else if (key == "items" && value.is_array()) {
        out["prefixItems"] = rewrite_array(value, inner, depth);
        const auto rest = schema.find("additionalItems");
        if (rest != schema.end()) out["items"] = rewrite(*rest, path + "/additionalItems", depth + 1);
      } else if (contains(kSchemaMembers, key)) {
        out[key] = rewrite(value, inner, depth + 1);
      } else {
        copy_keyword(schema, key, value, path, out);
      }
    }
    return out;
  }

  Json rewrite_map(const Json& map, const std::string& path, std::size_t depth) {
    Json out = Json::object();
    if (!map.is_object()) fail(path, "expected an object of schemas");
    for (const auto& [key, value] : map.items()) {
      if (!status_.ok()) return {};
      out[key] = rewrite(value, fmt::format("{}/{}", path, escape_pointer(key)), depth + 1);
    }
    return out;
  }

  Json rewrite_array(const Json& list, const std::string& path, std::size_t depth) {
    Json out = Json::array();
    if (!list.is_array()) fail(path, "expected an array of schemas");
    for (std::size_t i = 0; i < list.size() && status_.ok(); ++i) {
      out.push_back(rewrite(list[i], fmt::format("{}/{}", path, i), depth + 1));
    }
    return out;
  }

  std::string reference(const Json& schema, const Json& ref, const std::string& path) {
    const Json* target = nullptr;
    if (ref.is_string()) target = identifiers_.find(schema, ref.get_ref<const std::string&>());
    if (target == nullptr) {
      fail(path + "/$ref", fmt::format("nothing is found at {}", ref.dump()));
      return {};
    }
    const auto [known, added] = names_.emplace(target, names_.size());
    if (added) pending_.push_back({target, ref.get<std::string>()});
    return fmt::format("#/$defs/r{}", known->second);
  }

  // Keywords whose value holds no schema, and those that are not enforced.
  void copy_keyword(const Json& schema, const std::string& key, const Json& value, const std::string& path, Json& out) {
    static constexpr std::string_view kCopied[] = {
        "type",    "enum",     "const",    "required",         "minLength",       "maxLength",
        "pattern", "minItems", "maxItems", "minProperties",    "maxProperties",   "multipleOf",
        "minimum", "maximum",  "format",   "exclusiveMinimum", "exclusiveMaximum"};
    if (contains(kCopied, key)) {
      if (key == "format" && !(value.is_string() && contains(kFormats, value.get_ref<const std::string&>()))) return;
      if ((key == "exclusiveMinimum" || key == "exclusiveMaximum") && value.is_boolean()) {
        // Draft 4: a flag beside the limit.
        const std::string limit = key == "exclusiveMinimum" ? "minimum" : "maximum";
        if (value == true && schema.contains(limit)) {
          out[key] = schema.at(limit);
          out.erase(limit);
        }
        return;
      }
      if ((key == "minimum" || key == "maximum")) {
        const auto flag = schema.find(key == "minimum" ? "exclusiveMinimum" : "exclusiveMaximum");
        if (flag != schema.end() && *flag == true) return;
      }
      const bool length = key.ends_with("Length") || key.ends_with("Items") || key.ends_with("Properties");
      if (length && value.is_number() && value.get<double>() > kEndless) {
        if (key.starts_with("min")) out[key] = static_cast<std::int64_t>(kEndless);
        return;
      }
      out[key] = value;
      return;
    }
    const bool inert = (key == "uniqueItems" && value == false) || (key == "nullable" && value == false) ||
                       (key == "propertyNames" && (empty_schema(value) || value == Json{{"type", "string"}})) ||
                       ((key == "then" || key == "else") && !schema.contains("if")) ||
                       (key == "if" && !schema.contains("then") && !schema.contains("else")) ||
                       ((key == "minContains" || key == "maxContains") && !schema.contains("contains")) ||
                       ((key == "unevaluatedItems" || key == "unevaluatedProperties") && empty_schema(value)) ||
                       (key.starts_with("depend") && value.is_object() && value.empty());
    static constexpr std::string_view kRefused[] = {"not",
                                                    "if",
                                                    "then",
                                                    "else",
                                                    "contains",
                                                    "minContains",
                                                    "maxContains",
                                                    "uniqueItems",
                                                    "propertyNames",
                                                    "dependencies",
                                                    "dependentRequired",
                                                    "dependentSchemas",
                                                    "unevaluatedItems",
                                                    "unevaluatedProperties",
                                                    "$dynamicRef",
                                                    "$recursiveRef",
                                                    "nullable"};
    if (!inert && contains(kRefused, key)) refuse(path, key);
    // Everything else is an annotation: JSON Schema gives unknown members no meaning.
  }

  const SchemaLimits& limits_;
  const Identifiers identifiers_;
  bool ref_hides_siblings_ = false;
  Status status_;
  std::size_t count_ = 0;
  std::map<const Json*, std::size_t> names_;
  std::deque<Pending> pending_;
};

}  // namespace

Result<Json> prepare_schema(const Json& schema, const SchemaLimits& limits) {
  const std::size_t size = schema.dump().size();
  if (size > limits.bytes) return invalid_argument("the schema has {} bytes, expected at most {}", size, limits.bytes);
  return Rewriter(schema, limits).run(schema);
}

std::string compact_schema_text(const Json& prepared) {
  Json document = prepared;
  if (!document.is_object()) document = {{"allOf", Json::array({prepared})}};
  document["x-guidance"] = {{"whitespace_flexible", false}};
  return document.dump();
}

}  // namespace perigee
