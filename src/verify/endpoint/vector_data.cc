// The reference vectors of tests/data/text as bytes of this object, and their selection.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/embed.h"
#include "verify/endpoint/session.h"

PERIGEE_EMBED(perigee_vectors_tokenizer, PERIGEE_TEXT_VECTORS "/tokenizer.json")
PERIGEE_EMBED(perigee_vectors_decode, PERIGEE_TEXT_VECTORS "/decode.json")
PERIGEE_EMBED(perigee_vectors_render, PERIGEE_TEXT_VECTORS "/render.json")
PERIGEE_EMBED(perigee_vectors_validate, PERIGEE_TEXT_VECTORS "/validate.json")
PERIGEE_EMBED(perigee_vectors_schema, PERIGEE_TEXT_VECTORS "/schema.json")

namespace perigee::verify {

Result<Json> vector_document(const EndpointOptions& options, std::string_view name) {
  Result<Json> document = make_error(StatusCode::kInternal, "{}: no such vectors are built in", name);
  if (!options.vectors.empty()) {
    document = read_json_file(options.vectors + "/" + std::string(name));
  } else {
    const std::array<std::pair<std::string_view, std::string_view>, 5> files = {{
        {"tokenizer.json", PERIGEE_EMBEDDED(perigee_vectors_tokenizer)},
        {"decode.json", PERIGEE_EMBEDDED(perigee_vectors_decode)},
        {"render.json", PERIGEE_EMBEDDED(perigee_vectors_render)},
        {"validate.json", PERIGEE_EMBEDDED(perigee_vectors_validate)},
        {"schema.json", PERIGEE_EMBEDDED(perigee_vectors_schema)},
    }};
    for (const auto& [key, text] : files) {
      if (key == name) document = parse_json(text);
    }
  }
  if (!document.ok()) return document.status();
  const auto cases = document->is_object() ? document->find("cases") : document->end();
  if (cases == document->end() || !cases->is_array()) return invalid_argument("{}: expected an array \"cases\"", name);
  for (const Json& item : *cases) {
    if (!item.is_object() || !item.contains("id") || !item["id"].is_string()) {
      return invalid_argument("{}: expected an object with an id in each case", name);
    }
  }
  return document;
}

std::vector<const Json*> spread(const EndpointOptions& options, const Json& list, bool (*keep)(const Json& item)) {
  std::vector<const Json*> all;
  for (const Json& item : list) {
    if (keep(item)) all.push_back(&item);
  }
  if (options.cases == 0 || all.size() <= options.cases) return all;
  std::vector<const Json*> out;
  for (std::size_t i = 0; i < options.cases; ++i) out.push_back(all[i * all.size() / options.cases]);
  return out;
}

}  // namespace perigee::verify
