// Anthropic Messages to the Chat form (spec chat.md 5.6).
#include <nlohmann/json.hpp>

#include "server/api/parse_parts.h"

namespace perigee::api {
namespace {

class Converter {
 public:
  Converter(const ApiConfig& config, std::vector<ImageInput>& images, MaybeError& error)
      : config_(config), images_(images), error_(error) {}

  Json take() { return std::move(out_); }

  void system(const Json& value) { out_.push_back({{"role", "system"}, {"content", text_parts(value, "system")}}); }

  void message(const Json& message, const std::string& path) {
    if (!message.is_object()) {
      error_ = bad_field(path, "expected an object, found {}", json_type_name(message));
      return;
    }
    FieldReader fields(message, path, error_);
    std::string role;
    fields.string("role", role);
    // System messages may come in the middle (Claude Code sends them); the first one belongs into `system`.
    const bool system_turn = role == "system" && begun_;
    begun_ = true;
    if (!error_ && role != "user" && role != "assistant" && !system_turn) {
      error_ = bad_field(path + ".role", "expected user or assistant, found \"{}\"", role);
    }
    const Json* content = fields.find("content");
    if (content == nullptr) fields.fail(bad_field(path + ".content", "is missing"));
    if (error_) return;
    if (system_turn) {
      out_.push_back({{"role", role}, {"content", text_parts(*content, path + ".content")}});
    } else if (content->is_string()) {
      out_.push_back({{"role", role}, {"content", *content}});
    } else if (!content->is_array()) {
      error_ = bad_field(path + ".content", "expected a string or an array, found {}", json_type_name(*content));
    } else if (role == "user") {
      user(*content, path + ".content");
    } else {
      assistant(*content, path + ".content");
    }
  }

 private:
  // The block's type; empty after an error.
  std::string type_of(const Json& block, const std::string& path) {
    if (!block.is_object()) {
      error_ = bad_field(path, "expected an object, found {}", json_type_name(block));
      return {};
    }
    FieldReader fields(block, path, error_);
    std::string type;
    if (!fields.string("type", type)) fields.fail(bad_field(path + ".type", "is missing"));
    return error_ ? std::string() : type;
  }

  std::string required_text(const Json& block, std::string_view name, const std::string& path) {
    FieldReader fields(block, path, error_);
    std::string text;
    if (!fields.string(name, text)) fields.fail(bad_field(fields.path(name), "is missing"));
    return text;
  }

  static std::string at(const std::string& path, std::size_t index) { return fmt::format("{}[{}]", path, index); }

  Json text_parts(const Json& value, const std::string& path) {
    if (value.is_string()) return value;
    if (!value.is_array()) {
      error_ = bad_field(path, "expected a string or an array, found {}", json_type_name(value));
      return {};
    }
    Json parts = Json::array();
    for (std::size_t i = 0; i < value.size() && !error_; ++i) part(value[i], at(path, i), false, parts);
    return parts;
  }

  // text, image and document blocks.
  void part(const Json& block, const std::string& path, bool images, Json& parts) {
    const std::string type = type_of(block, path);
    if (error_) return;
    if (type == "text") {
      parts.push_back({{"type", "text"}, {"text", required_text(block, "text", path)}});
      return;
    }
    if ((type != "image" && type != "document") || !images) {
      error_ = bad_field(path + ".type", "the block type \"{}\" is not supported here", type);
      return;
    }
    FieldReader fields(block, path, error_);
    const Json* source = fields.object("source");
    if (source == nullptr) return fields.fail(bad_field(path + ".source", "is missing"));
    const std::string source_path = path + ".source";
    const std::string kind = required_text(*source, "type", source_path);
    if (error_) return;
    if (type == "document") {
      if (kind != "text") {
        error_ = bad_field(source_path + ".type", "documents of type \"{}\" are not supported; send text", kind);
        return;
      }
      parts.push_back({{"type", "text"}, {"text", required_text(*source, "data", source_path)}});
    } else if (kind == "base64") {
      add_image_base64(required_text(*source, "data", source_path), source_path + ".data", config_, images_, error_);
      parts.push_back(image_placeholder());
    } else if (kind == "url") {
      add_image(required_text(*source, "url", source_path), source_path + ".url", config_, images_, error_);
      parts.push_back(image_placeholder());
    } else {
      error_ = bad_field(source_path + ".type", "expected base64 or url, found \"{}\"", kind);
    }
  }

  // Results of tools stand before everything else of their turn.
  void user(const Json& blocks, const std::string& path) {
    Json parts = Json::array();
    for (std::size_t i = 0; i < blocks.size() && !error_; ++i) {
      if (type_of(blocks[i], at(path, i)) == "tool_result") result(blocks[i], at(path, i));
    }
    for (std::size_t i = 0; i < blocks.size() && !error_; ++i) {
      if (type_of(blocks[i], at(path, i)) != "tool_result") part(blocks[i], at(path, i), true, parts);
    }
    if (!parts.empty() || blocks.empty()) out_.push_back({{"role", "user"}, {"content", std::move(parts)}});
  }

  void result(const Json& block, const std::string& path) {
    const std::string id = required_text(block, "tool_use_id", path);
    FieldReader fields(block, path, error_);
    Json content = "";
    if (const Json* value = fields.find("content")) {
      if (value->is_array()) {
        content = Json::array();
        for (std::size_t i = 0; i < value->size() && !error_; ++i) {
          part((*value)[i], at(path + ".content", i), true, content);
        }
      } else {
        content = text_parts(*value, path + ".content");
      }
    }
    out_.push_back({{"role", "tool"}, {"tool_call_id", id}, {"content", std::move(content)}});
  }

  void assistant(const Json& blocks, const std::string& path) {
    Json parts = Json::array();
    Json calls = Json::array();
    std::string reasoning;
    for (std::size_t i = 0; i < blocks.size() && !error_; ++i) {
      const Json& block = blocks[i];
      const std::string where = at(path, i);
      const std::string type = type_of(block, where);
      if (error_ || type == "redacted_thinking") continue;
      if (type == "thinking") {
        reasoning += required_text(block, "thinking", where);
      } else if (type == "tool_use") {
        FieldReader fields(block, where, error_);
        const std::string id = required_text(block, "id", where);
        const std::string name = required_text(block, "name", where);
        const Json* input = fields.object("input");
        calls.push_back({{"id", id},
                         {"type", "function"},
                         {"function", {{"name", name}, {"arguments", input == nullptr ? Json::object() : *input}}}});
      } else {
        part(block, where, false, parts);
      }
    }
    Json message = {{"role", "assistant"}};
    // One text block is the usual case and renders as the string would.
    if (parts.size() == 1) {
      message["content"] = parts[0]["text"];
    } else {
      message["content"] = parts.empty() ? Json("") : std::move(parts);
    }
    if (!reasoning.empty()) message["reasoning_content"] = reasoning;
    if (!calls.empty()) message["tool_calls"] = std::move(calls);
    out_.push_back(std::move(message));
  }

  const ApiConfig& config_;
  std::vector<ImageInput>& images_;
  MaybeError& error_;
  bool begun_ = false;  // a message was seen
  Json out_ = Json::array();
};

// Client tools in the Chat form; tools that only Anthropic's servers could run are left out.
Json convert_tools(const Json& tools, MaybeError& error) {
  Json out = Json::array();
  for (std::size_t i = 0; i < tools.size() && !error; ++i) {
    const std::string path = fmt::format("tools[{}]", i);
    if (!tools[i].is_object()) {
      error = bad_field(path, "expected an object, found {}", json_type_name(tools[i]));
      break;
    }
    FieldReader fields(tools[i], path, error);
    std::string type = "custom";
    fields.string("type", type);
    if (type != "custom") continue;
    Json function = Json::object();
    const Json* name = fields.find("name");
    function["name"] = name == nullptr ? Json() : *name;
    if (const Json* description = fields.find("description")) function["description"] = *description;
    if (const Json* schema = fields.object("input_schema")) function["parameters"] = *schema;
    if (const Json* strict = fields.find("strict")) function["strict"] = *strict;
    out.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return out;
}

// {"type": "auto" | "any" | "tool" | "none"} to the Chat form.
Json convert_choice(FieldReader& fields, bool& parallel) {
  const Json* choice = fields.object("tool_choice");
  if (choice == nullptr) return nullptr;
  MaybeError error;
  FieldReader inner(*choice, "tool_choice", error);
  std::string type;
  inner.string("type", type);
  bool disable = false;
  if (inner.boolean("disable_parallel_tool_use", disable)) parallel = !disable;
  Json out;
  if (type == "any") {
    out = "required";
  } else if (type == "auto" || type == "none") {
    out = type;
  } else if (type == "tool") {
    std::string name;
    inner.string("name", name);
    out = {{"type", "function"}, {"function", {{"name", name}}}};
  } else {
    inner.fail(bad_field("tool_choice.type", "expected auto, any, tool or none, found \"{}\"", type));
  }
  if (error) fields.fail(*error);
  return out;
}

ThinkingControl parse_thinking_block(FieldReader& fields, const ApiConfig& config, ChatRequest& request) {
  ThinkingControl out;
  MaybeError error;
  // Anthropic's own scale has five steps; ours has three.
  const bool lenient = config.mode != ApiMode::kStrict;
  if (const Json* output = fields.object("output_config")) {
    FieldReader inner(*output, "output_config", error);
    std::string effort;
    if (inner.string("effort", effort)) apply_effort(effort, "output_config.effort", lenient, out, error);
    if (const Json* format = inner.object("format")) {
      Json named = *format;
      named["name"] = "output";
      request.format = parse_format(&named, "output_config.format", /*flat=*/true, error);
    }
  }
  if (const Json* thinking = fields.object("thinking")) {
    FieldReader inner(*thinking, "thinking", error);
    std::string type;
    inner.string("type", type);
    if (type != "enabled" && type != "disabled" && type != "adaptive") {
      inner.fail(bad_field("thinking.type", "expected enabled, disabled or adaptive, found \"{}\"", type));
    }
    out.thinking = type != "disabled";
    std::int64_t budget = 0;
    if (inner.integer("budget_tokens", 1, kMost, budget)) request.thinking_token_budget = budget;
  }
  if (error) fields.fail(*error);
  if (!out.thinking || config.default_effort.empty()) out.effort.clear();
  if (out.thinking && out.effort.empty()) out.effort = config.default_effort;
  return out;
}

// The renderer knows formats in the Chat form.
Json chat_format(const ResponseFormat& format) {
  if (format.kind != FormatKind::kJsonSchema) return nullptr;
  return {{"type", "json_schema"}, {"json_schema", {{"name", "output"}, {"schema", *format.schema}}}};
}

ApiResult<ChatRequest> parse(const Json& body, const ApiConfig& config, bool counting) {
  ChatRequest request;
  request.kind = ApiKind::kMessages;
  MaybeError error;
  FieldReader fields(body, "", error);
  parse_model(fields, config, /*optional=*/false, request.model);
  std::int64_t max_tokens = 1;
  if (!fields.integer("max_tokens", 1, kMost, max_tokens) && !counting) {
    fields.fail(bad_field("max_tokens", "is missing"));
  }
  request.max_tokens = max_tokens;
  const Json* messages = fields.array("messages");
  if (messages == nullptr || messages->empty()) fields.fail(bad_field("messages", "expected a non-empty array"));
  if (error) return *error;

  Converter converter(config, request.images, error);
  if (const Json* system = fields.find("system")) converter.system(*system);
  for (std::size_t i = 0; i < messages->size() && !error; ++i) {
    converter.message((*messages)[i], fmt::format("messages[{}]", i));
  }
  ToolSet tools;
  Json declared;
  if (const Json* list = fields.array("tools")) declared = convert_tools(*list, error);
  if (!declared.is_null()) tools.add(declared, "tools", error);
  const Json choice = convert_choice(fields, request.parallel_tool_calls);
  request.tool_choice = parse_tool_choice(choice.is_null() ? nullptr : &choice, tools, /*flat=*/false, error);
  const ThinkingControl thinking = parse_thinking_block(fields, config, request);
  parse_sampling(fields, config, request);
  parse_stop(fields, "stop_sequences", config, request);
  fields.boolean("stream", request.stream);
  if (const Json* metadata = fields.object("metadata")) {
    FieldReader inner(*metadata, "metadata", error);
    inner.string("user_id", request.user);
  }
  if (error) return *error;
  request.n = 1;
  request.tools = tools.all();
  const Json format = chat_format(request.format);
  fill_render(request, converter.take(), declared.is_null() ? nullptr : &declared, choice.is_null() ? nullptr : &choice,
              format.is_null() ? nullptr : &format, thinking);
  return request;
}

}  // namespace

ApiResult<ChatRequest> parse_messages(const Json& body, const ApiConfig& config) {
  return parse(body, config, /*counting=*/false);
}

ApiResult<ChatRequest> parse_count_tokens(const Json& body, const ApiConfig& config) {
  return parse(body, config, /*counting=*/true);
}

}  // namespace perigee::api
