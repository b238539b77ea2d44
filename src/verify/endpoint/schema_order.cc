#include "verify/endpoint/schema_order.h"

#include <nlohmann/json.hpp>
#include <set>

#include "text/grammar.h"
#include "verify/endpoint/session.h"

namespace perigee::verify {
namespace {

class SchemaOrder {
 public:
  explicit SchemaOrder(const Json& root) : root_(root) {}

  Json apply(const Json& value, const std::vector<const Json*>& schemas) const {
    std::set<const Json*> seen;
    std::vector<const Json*> all;
    for (const Json* schema : schemas) collect(*schema, seen, all);
    if (value.is_array()) {
      Json out = Json::array();
      for (std::size_t i = 0; i < value.size(); ++i) out.push_back(apply(value[i], item_schemas(all, i)));
      return out;
    }
    if (!value.is_object()) return value;
    Json out = Json::object();
    for (const Json* schema : all) {
      const auto properties = schema->find("properties");
      if (properties == schema->end()) continue;
      for (const auto& [key, unused] : properties->items()) add(value, key, all, out);
    }
    for (const auto& [key, unused] : value.items()) add(value, key, all, out);
    return out;
  }

 private:
  void add(const Json& value, const std::string& key, const std::vector<const Json*>& all, Json& out) const {
    const auto member = value.find(key);
    if (member == value.end() || out.contains(key)) return;
    std::vector<const Json*> schemas;
    for (const Json* schema : all) {
      const auto properties = schema->find("properties");
      if (properties != schema->end() && properties->contains(key)) schemas.push_back(&properties->at(key));
      if (const auto rest = schema->find("additionalProperties"); rest != schema->end()) schemas.push_back(&*rest);
    }
    out[key] = apply(*member, schemas);
  }

  static std::vector<const Json*> item_schemas(const std::vector<const Json*>& all, std::size_t index) {
    std::vector<const Json*> out;
    for (const Json* schema : all) {
      const auto prefix = schema->find("prefixItems");
      if (prefix != schema->end() && index < prefix->size()) out.push_back(&(*prefix)[index]);
      if (const auto items = schema->find("items"); items != schema->end()) out.push_back(&*items);
    }
    return out;
  }

  void collect(const Json& schema, std::set<const Json*>& seen, std::vector<const Json*>& out) const {
    if (!schema.is_object() || !seen.insert(&schema).second) return;
    out.push_back(&schema);
    const auto ref = schema.find("$ref");
    if (ref != schema.end() && ref->is_string() && ref->get_ref<const std::string&>().starts_with('#')) {
      const Json::json_pointer pointer(ref->get_ref<const std::string&>().substr(1));
      if (root_.contains(pointer)) collect(root_.at(pointer), seen, out);
    }
    for (const std::string_view name : {"allOf", "anyOf", "oneOf"}) {
      const auto branches = schema.find(name);
      if (branches == schema.end()) continue;
      for (const Json& branch : *branches) collect(branch, seen, out);
    }
  }

  const Json& root_;
};

// Bytes as tokens: grammars are the same over any vocabulary, and this one costs nothing to set up.
const Tokenizer& bytes() {
  static const Tokenizer kBytes = Tokenizer::plain_bytes(SpecialTable::kK3);
  return kBytes;
}

}  // namespace

Json in_schema_order(const Json& schema, const Json& instance) {
  return SchemaOrder(schema).apply(instance, {&schema});
}

Result<bool> matches_schema(const Json& schema, const Json& instance) {
  static const GrammarCompiler kCompiler(kDialectK3, bytes());
  GrammarRules rules;
  rules.format.kind = FormatKind::kJsonSchema;
  rules.format.schema = std::make_shared<const Json>(schema);
  rules.start = Channel::kResponse;
  PERIGEE_ASSIGN_OR_RETURN(const auto constraint, kCompiler.compile(rules));
  std::vector<TokenId> ids;
  try {
    ids = bytes().encode(in_schema_order(schema, instance).dump());
  } catch (const Json::exception& error) {  // a reference that is no pointer
    return invalid_argument("schema: {}", error.what());
  }
  ids.push_back(bytes().special(Special::kClose));
  std::vector<std::uint32_t> mask;
  for (const TokenId id : ids) {
    mask.assign((static_cast<std::size_t>(bytes().vocab()) + 31) / 32, ~0U);
    const auto at = static_cast<std::size_t>(id);
    if (constraint->mask(mask) && (mask[at / 32] >> (at % 32) & 1U) == 0) return false;
    constraint->accept(id);
  }
  return true;
}

}  // namespace perigee::verify
