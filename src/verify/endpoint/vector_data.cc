// The reference vectors of tests/data/text as bytes of this object, and their selection.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "verify/endpoint/session.h"

#define PERIGEE_EMBED(symbol, file)                                                                                   \
  __asm__(".section .rodata\n.balign 16\n.global " #symbol "\n" #symbol ":\n.incbin \"" PERIGEE_TEXT_VECTORS "/" file \
          "\"\n.global " #symbol "_end\n" #symbol "_end:\n.byte 0\n.previous\n");                                     \
  extern "C" const char symbol[];                                                                                     \
  extern "C" const char symbol##_end[];

PERIGEE_EMBED(perigee_vectors_tokenizer, "tokenizer.json")
PERIGEE_EMBED(perigee_vectors_decode, "decode.json")
PERIGEE_EMBED(perigee_vectors_render, "render.json")
PERIGEE_EMBED(perigee_vectors_validate, "validate.json")
PERIGEE_EMBED(perigee_vectors_schema, "schema.json")

namespace perigee::verify {

Result<Json> vector_document(const EndpointOptions& options, std::string_view name) {
  Result<Json> document = make_error(StatusCode::kInternal, "{}: no such vectors are built in", name);
  if (!options.vectors.empty()) {
    document = read_json_file(options.vectors + "/" + std::string(name));
  } else {
    const std::array<std::pair<std::string_view, std::string_view>, 5> files = {{
        {"tokenizer.json", {perigee_vectors_tokenizer, perigee_vectors_tokenizer_end}},
        {"decode.json", {perigee_vectors_decode, perigee_vectors_decode_end}},
        {"render.json", {perigee_vectors_render, perigee_vectors_render_end}},
        {"validate.json", {perigee_vectors_validate, perigee_vectors_validate_end}},
        {"schema.json", {perigee_vectors_schema, perigee_vectors_schema_end}},
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
