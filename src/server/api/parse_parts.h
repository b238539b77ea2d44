// Pieces that the request parsers share. Internal to server/api.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "server/api/fields.h"
#include "server/api/request.h"
#include "text/thinking.h"

namespace perigee::api {

using MaybeError = std::optional<ApiError>;

// "model": a string that names a served model; required unless `optional`.
void parse_model(FieldReader& fields, const ApiConfig& config, bool optional, std::string& model);

// temperature, top_p, ..., seed, logit_bias, stop, stream, n, cache and identity fields.
void parse_sampling(FieldReader& fields, const ApiConfig& config, GenerationOptions& out);
void parse_stream(FieldReader& fields, GenerationOptions& out);
void parse_stop(FieldReader& fields, std::string_view name, const ApiConfig& config, GenerationOptions& out);

// Declared tools. Names are unique over the whole request.
class ToolSet {
 public:
  ToolSet();
  ~ToolSet();
  ToolSet(const ToolSet&) = delete;
  ToolSet& operator=(const ToolSet&) = delete;
  // Checks one "tools" array in the Chat form and adds it.
  void add(const Json& tools, const std::string& path, MaybeError& error);
  bool contains(const std::string& name) const { return names_.contains(name); }
  bool empty() const { return names_.empty(); }
  std::shared_ptr<const Json> all() const { return all_; }

 private:
  std::set<std::string> names_;
  std::shared_ptr<Json> all_;
};

// Checks the Chat "messages" array; returns it with image payloads moved to `images`. Sets `partial`.
Json check_messages(const Json& messages, const ApiConfig& config, ToolSet& tools, std::vector<ImageInput>& images,
                    bool& partial, MaybeError& error);

// A data: URL into `images`; `path` names the member.
void add_image(const std::string& url, const std::string& path, const ApiConfig& config,
               std::vector<ImageInput>& images, MaybeError& error);
// Base64 without a data: prefix, as Anthropic sends it.
void add_image_base64(std::string_view payload, const std::string& path, const ApiConfig& config,
                      std::vector<ImageInput>& images, MaybeError& error);
// The part that marks an image's place for the renderer.
Json image_placeholder();

// The named form is {"type":"function","function":{"name"}} or, with `flat`, {"type":"function","name"}.
ToolChoice parse_tool_choice(const Json* value, const ToolSet& tools, bool flat, MaybeError& error);

// {"type":"text"|"json_object"|"json_schema",...} at `path`; with `flat` (Responses) name, schema and strict stand
// beside type.
ResponseFormat parse_format(const Json* value, const std::string& path, bool flat, MaybeError& error);
// guided_*, structured_outputs (vLLM), regex, ebnf (SGLang), grammar, json_schema (llama-server).
void parse_format_extensions(FieldReader& fields, ResponseFormat& format);

// An effort that a dialect has under a name of its own: "reasoning.effort" (Responses), "output_config.effort".
void apply_effort(const std::string& value, const std::string& path, bool lenient, ThinkingControl& out,
                  MaybeError& error);

// Puts the renderer's arguments together and settles `thinking` for a named tool choice.
void fill_render(ChatRequest& request, Json messages, const Json* tools, const Json* tool_choice,
                 const Json* response_format, const ThinkingControl& thinking);

}  // namespace perigee::api
