#include "text/grammar_raw_string.h"

#include <nlohmann/json.hpp>

#include "text/grammar_tools.h"

namespace perigee {
namespace {

constexpr int kMaxDepth = 32;
constexpr std::int64_t kMaxRepeat = 100'000;

RawStrings nothing() {
  return {.any = false, .values = std::set<std::string>(), .expression = ""};
}

bool is_nothing(const RawStrings& strings) {
  return strings.values && strings.values->empty();
}

std::string as_expression(const RawStrings& strings) {
  if (strings.any) return "/(?s:.*)/";
  if (!strings.values) return strings.expression;
  std::string out;
  for (const std::string& value : *strings.values) {
    if (!out.empty()) out += '|';
    out += regex_literal(value);
  }
  return fmt::format("/({})/", out);
}

RawStrings intersect(const RawStrings& a, const RawStrings& b) {
  if (a.any) return b;
  if (b.any) return a;
  if (a.values && b.values) {
    RawStrings out = nothing();
    for (const std::string& value : *a.values) {
      if (b.values->contains(value)) out.values->insert(value);
    }
    return out;
  }
  if (is_nothing(a) || is_nothing(b)) return nothing();
  return {
      .any = false, .values = std::nullopt, .expression = fmt::format("({} & {})", as_expression(a), as_expression(b))};
}

RawStrings unite(const RawStrings& a, const RawStrings& b) {
  if (a.any || is_nothing(b)) return a;
  if (b.any || is_nothing(a)) return b;
  if (a.values && b.values) {
    RawStrings out = a;
    out.values->insert(b.values->begin(), b.values->end());
    return out;
  }
  return {
      .any = false, .values = std::nullopt, .expression = fmt::format("({} | {})", as_expression(a), as_expression(b))};
}

// ECMA patterns search; \d and \w are ASCII there. Anchors are understood at the two ends only.
Result<std::string> pattern_expression(const std::string& pattern) {
  std::string body;
  bool in_class = false;
  bool from_start = false;
  bool to_end = false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char next = pattern[++i];
      if (next == 'd') {
        body += in_class ? "0-9" : "[0-9]";
      } else if (next == 'w') {
        body += in_class ? "A-Za-z0-9_" : "[A-Za-z0-9_]";
      } else if (next == 'b' || next == 'B') {
        return invalid_argument("pattern: word boundaries are not supported");
      } else {
        body += c;
        body += next;
      }
    } else if (c == '[' && !in_class) {
      in_class = true;
      body += c;
    } else if (c == ']') {
      in_class = false;
      body += c;
    } else if (c == '^' && !in_class && i == 0) {
      from_start = true;
    } else if (c == '$' && !in_class && i + 1 == pattern.size()) {
      to_end = true;
    } else if ((c == '^' || c == '$') && !in_class) {
      return invalid_argument("pattern: an anchor inside the expression is not supported");
    } else if (c == '/') {
      body += "\\/";
    } else if (c == '\n') {
      body += "\\n";
    } else {
      body += c;
    }
  }
  // ^a|b$ binds each anchor to one side only.
  if ((from_start || to_end) && body.find('|') != std::string::npos) {
    int depth = 0;
    for (std::size_t i = 0; i < body.size(); ++i) {
      if (body[i] == '\\') {
        ++i;
      } else if (body[i] == '(') {
        ++depth;
      } else if (body[i] == ')') {
        --depth;
      } else if (body[i] == '|' && depth == 0) {
        return invalid_argument("pattern: an anchor beside an alternation is not supported");
      }
    }
  }
  return fmt::format("/{}({}){}/", from_start ? "" : "(?s:.*)", body, to_end ? "" : "(?s:.*)");
}

class Reader {
 public:
  explicit Reader(const Json& defs) : defs_(defs) {}

  Result<RawStrings> read(const Json& schema, int depth) {
    if (depth > kMaxDepth) return invalid_argument("$ref: nested deeper than {} schemas", kMaxDepth);
    RawStrings out;
    out.any = true;
    if (schema.is_boolean()) return schema == true ? out : nothing();
    if (const auto type = schema.find("type"); type != schema.end() && !admits_string(*type)) return nothing();
    if (const auto values = schema.find("enum"); values != schema.end()) out = intersect(out, strings_of(*values));
    if (const auto value = schema.find("const"); value != schema.end()) {
      out = intersect(out, strings_of(Json::array({*value})));
    }
    PERIGEE_RETURN_IF_ERROR(read_lengths(schema, out));
    if (const auto pattern = schema.find("pattern"); pattern != schema.end() && pattern->is_string()) {
      RawStrings part;
      PERIGEE_ASSIGN_OR_RETURN(part.expression, pattern_expression(pattern->get<std::string>()));
      out = intersect(out, part);
    }
    if (const auto ref = schema.find("$ref"); ref != schema.end()) {
      const auto& name = ref->get_ref<const std::string&>();
      PERIGEE_ASSIGN_OR_RETURN(const RawStrings target, read(defs_.at(name.substr(name.rfind('/') + 1)), depth + 1));
      out = intersect(out, target);
    }
    if (const auto all = schema.find("allOf"); all != schema.end()) {
      for (const Json& part : *all) {
        PERIGEE_ASSIGN_OR_RETURN(const RawStrings strings, read(part, depth + 1));
        out = intersect(out, strings);
      }
    }
    for (const std::string_view name : {"anyOf", "oneOf"}) {
      const auto branches = schema.find(name);
      if (branches == schema.end()) continue;
      RawStrings sum = nothing();
      for (const Json& branch : *branches) {
        PERIGEE_ASSIGN_OR_RETURN(const RawStrings strings, read(branch, depth + 1));
        if (name == "oneOf" && !is_nothing(sum) && !is_nothing(strings) && !disjoint(sum, strings)) {
          return invalid_argument("oneOf: more than one branch may hold for the same string");
        }
        sum = unite(sum, strings);
      }
      out = intersect(out, sum);
    }
    return out;
  }

 private:
  static bool admits_string(const Json& type) {
    if (type.is_string()) return type == "string";
    return type.is_array() && std::find(type.begin(), type.end(), Json("string")) != type.end();
  }

  static RawStrings strings_of(const Json& values) {
    RawStrings out = nothing();
    for (const Json& value : values) {
      if (value.is_string()) out.values->insert(value.get<std::string>());
    }
    return out;
  }

  static bool disjoint(const RawStrings& a, const RawStrings& b) {
    return a.values && b.values && is_nothing(intersect(a, b));
  }

  static Status read_lengths(const Json& schema, RawStrings& out) {
    const auto least = schema.find("minLength");
    const auto most = schema.find("maxLength");
    if (least == schema.end() && most == schema.end()) return {};
    const auto bound = [&](auto member) {
      return member == schema.end() || !member->is_number() ? std::int64_t{0} : member->template get<std::int64_t>();
    };
    if (bound(least) > kMaxRepeat || bound(most) > kMaxRepeat) {
      return invalid_argument("{}: expected at most {}", bound(least) > kMaxRepeat ? "minLength" : "maxLength",
                              kMaxRepeat);
    }
    RawStrings part;
    part.expression = fmt::format("/(?s:.){{{},{}}}/", bound(least),
                                  most == schema.end() ? std::string() : std::to_string(bound(most)));
    out = intersect(out, part);
    return {};
  }

  const Json& defs_;
};

}  // namespace

Result<RawStrings> raw_strings(const Json& schema, const Json& defs) {
  return Reader(defs).read(schema, 0);
}

}  // namespace perigee
