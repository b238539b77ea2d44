// OpenAI Responses to the Chat form (spec chat.md 5.5).
#include <nlohmann/json.hpp>

#include "server/api/parse_parts.h"
#include "server/api/response_store.h"

namespace perigee::api {
namespace {

// Items become messages; reasoning, text and calls that follow one another are one assistant message.
class Converter {
 public:
  Converter(const ApiConfig& config, Json messages, std::vector<ImageInput>& images, MaybeError& error)
      : config_(config), out_(std::move(messages)), images_(images), error_(error) {}

  Json take() { return std::move(out_); }

  void item(const Json& item, const std::string& path) {
    if (!item.is_object()) {
      error_ = bad_field(path, "expected an object, found {}", json_type_name(item));
      return;
    }
    FieldReader fields(item, path, error_);
    std::string type = fields.find("role") == nullptr ? "" : "message";
    fields.string("type", type);
    if (error_) return;
    if (type == "message") {
      message(fields);
    } else if (type == "reasoning") {
      reasoning(fields);
    } else if (type == "function_call") {
      call(fields);
    } else if (type == "function_call_output") {
      output(fields);
    } else if (config_.mode != ApiMode::kLenient) {
      error_ = bad_field(path + ".type", "the item type \"{}\" is not supported", type);
    }
  }

 private:
  void message(FieldReader& fields) {
    std::string role;
    fields.string("role", role);
    if (role != "user" && role != "assistant" && role != "system" && role != "developer") {
      return fields.fail(
          bad_field(fields.path("role"), "expected user, assistant, system or developer, found \"{}\"", role));
    }
    const Json* content = fields.find("content");
    if (content == nullptr) return fields.fail(bad_field(fields.path("content"), "is missing"));
    Json parts = convert(*content, fields.path("content"));
    if (error_) return;
    if (role != "assistant") {
      out_.push_back({{"role", role}, {"content", std::move(parts)}});
      return;
    }
    Json& target = assistant(/*with_content=*/true);
    // A single text is the usual case; it renders as a string does.
    target["content"] = parts.is_array() && parts.size() == 1 && parts[0]["type"] == "text" ? parts[0]["text"] : parts;
  }

  void reasoning(FieldReader& fields) {
    std::string text;
    for (const std::string_view name : {"content", "summary"}) {
      const Json* parts = fields.array(name);
      if (parts == nullptr || !text.empty()) continue;
      for (const Json& part : *parts) {
        const auto found = part.is_object() ? part.find("text") : part.end();
        if (part.is_object() && found != part.end() && found->is_string()) text += found->get<std::string>();
      }
    }
    if (text.empty()) return;
    Json& target = assistant(/*with_content=*/false);
    target["reasoning_content"] = target.value("reasoning_content", std::string()) + text;
  }

  void call(FieldReader& fields) {
    std::string id;
    std::string name;
    std::string arguments;
    if (!fields.string("call_id", id)) fields.fail(bad_field(fields.path("call_id"), "is missing"));
    if (!fields.string("name", name)) fields.fail(bad_field(fields.path("name"), "is missing"));
    fields.string("arguments", arguments);
    if (error_) return;
    const auto parsed = parse_json(arguments);
    if (parsed.ok() && !parsed->is_object()) {
      return fields.fail(
          bad_field(fields.path("arguments"), "expected a JSON object, found {}", json_type_name(*parsed)));
    }
    // Text after a call belongs to the next message, a further call to this one.
    const bool follows = !out_.empty() && out_.back()["role"] == "assistant";
    Json& target = follows ? out_.back() : assistant(/*with_content=*/false);
    if (!target.contains("tool_calls")) target["tool_calls"] = Json::array();
    target["tool_calls"].push_back(
        {{"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", arguments}}}});
  }

  void output(FieldReader& fields) {
    std::string id;
    if (!fields.string("call_id", id)) fields.fail(bad_field(fields.path("call_id"), "is missing"));
    const Json* value = fields.find("output");
    if (value == nullptr) fields.fail(bad_field(fields.path("output"), "is missing"));
    if (error_) return;
    Json parts = convert(*value, fields.path("output"));
    out_.push_back({{"role", "tool"}, {"tool_call_id", id}, {"content", std::move(parts)}});
  }

  // The assistant message that the next piece belongs to. Reasoning and text come before calls.
  Json& assistant(bool with_content) {
    if (!out_.empty() && out_.back()["role"] == "assistant") {
      const Json& last = out_.back();
      if (!last.contains("tool_calls") && (last["content"].is_null() || !with_content) && open_) return out_.back();
    }
    open_ = true;
    out_.push_back({{"role", "assistant"}, {"content", nullptr}});
    return out_.back();
  }

  Json convert(const Json& content, const std::string& path) {
    if (content.is_string()) return content;
    if (!content.is_array()) {
      error_ = bad_field(path, "expected a string or an array, found {}", json_type_name(content));
      return {};
    }
    Json parts = Json::array();
    for (std::size_t i = 0; i < content.size() && !error_; ++i) {
      parts.push_back(part(content[i], fmt::format("{}[{}]", path, i)));
    }
    return parts;
  }

  Json part(const Json& part, const std::string& path) {
    if (!part.is_object()) {
      error_ = bad_field(path, "expected an object, found {}", json_type_name(part));
      return {};
    }
    FieldReader fields(part, path, error_);
    std::string type;
    std::string text;
    fields.string("type", type);
    if (type == "input_text" || type == "output_text" || type == "text" || type == "refusal") {
      const std::string_view name = type == "refusal" ? "refusal" : "text";
      if (!fields.string(name, text)) fields.fail(bad_field(fields.path(name), "is missing"));
      return {{"type", "text"}, {"text", text}};
    }
    if (type == "input_image") {
      if (!fields.string("image_url", text)) fields.fail(bad_field(fields.path("image_url"), "is missing"));
      add_image(text, fields.path("image_url"), config_, images_, error_);
      return image_placeholder();
    }
    fields.fail(bad_field(path + ".type", "the part type \"{}\" is not supported", type));
    return {};
  }

  const ApiConfig& config_;
  Json out_;
  std::vector<ImageInput>& images_;
  MaybeError& error_;
  bool open_ = false;  // the last assistant message was begun by this input, not by the stored conversation
};

// Flat function tools in the Chat form; tools that only a host could run are left out.
Json convert_tools(const Json& tools, MaybeError& error) {
  Json out = Json::array();
  for (std::size_t i = 0; i < tools.size() && !error; ++i) {
    const std::string path = fmt::format("tools[{}]", i);
    if (!tools[i].is_object()) {
      error = bad_field(path, "expected an object, found {}", json_type_name(tools[i]));
      break;
    }
    FieldReader fields(tools[i], path, error);
    std::string type;
    if (!fields.string("type", type)) fields.fail(bad_field(path + ".type", "is missing"));
    if (type != "function") continue;
    Json function = Json::object();
    for (const std::string_view name : {"name", "description", "parameters", "strict"}) {
      if (const Json* value = fields.find(name)) function[std::string(name)] = *value;
    }
    out.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return out;
}

// The Chat form of the request's format, for the renderer.
Json chat_format(const ResponseFormat& format, const Json* declared) {
  if (declared == nullptr || format.kind == FormatKind::kText) return nullptr;
  if (format.kind == FormatKind::kJsonObject) return {{"type", "json_object"}};
  return {{"type", "json_schema"},
          {"json_schema", {{"name", declared->at("name")}, {"schema", *format.schema}, {"strict", format.strict}}}};
}

// What the response object repeats of the request.
Json echo_of(const Json& body, const ChatRequest& request) {
  Json out = Json::object();
  for (const std::string_view name :
       {"instructions", "max_output_tokens", "max_tool_calls", "previous_response_id", "user"}) {
    const auto member = body.find(name);
    out[std::string(name)] = member == body.end() ? Json(nullptr) : *member;
  }
  const auto or_default = [&](std::string_view name, const Json& value) {
    const auto member = body.find(name);
    out[std::string(name)] = member == body.end() || member->is_null() ? value : *member;
  };
  or_default("metadata", Json::object());
  or_default("reasoning", {{"effort", nullptr}, {"summary", nullptr}});
  or_default("text", {{"format", {{"type", "text"}}}});
  or_default("tool_choice", "auto");
  or_default("tools", Json::array());
  or_default("top_logprobs", 0);
  or_default("truncation", "disabled");
  out["parallel_tool_calls"] = request.parallel_tool_calls;
  out["store"] = request.store;
  out["temperature"] = request.sampling.temperature;
  out["top_p"] = request.sampling.top_p;
  return out;
}

}  // namespace

ApiResult<ChatRequest> parse_responses(const Json& body, const ApiConfig& config, ResponseStore* store,
                                       std::string_view tenant) {
  ChatRequest request;
  request.kind = ApiKind::kResponses;
  MaybeError error;
  FieldReader fields(body, "", error);
  parse_model(fields, config, /*optional=*/false, request.model);
  bool background = false;
  if (fields.boolean("background", background) && background) {
    fields.fail(bad_field("background", "is not supported"));
  }
  fields.boolean("store", request.store);
  Json messages = Json::array();
  if (fields.string("previous_response_id", request.previous_response_id)) {
    const auto known = store == nullptr ? nullptr : store->messages(tenant, request.previous_response_id);
    if (known == nullptr) {
      ApiError missing =
          bad_field("previous_response_id", "no response \"{}\" is stored here", request.previous_response_id);
      missing.code = "previous_response_not_found";
      fields.fail(std::move(missing));
    } else {
      messages = *known;
    }
  }
  const Json* input = fields.find("input");
  if (input == nullptr) fields.fail(bad_field("input", "is missing"));
  if (error) return *error;
  Converter converter(config, std::move(messages), request.images, error);
  if (input->is_string()) {
    converter.item({{"role", "user"}, {"content", *input}}, "input");
  } else if (!input->is_array()) {
    error = bad_field("input", "expected a string or an array, found {}", json_type_name(*input));
  } else {
    for (std::size_t i = 0; i < input->size() && !error; ++i) converter.item((*input)[i], fmt::format("input[{}]", i));
  }
  if (error) return *error;
  Json history = converter.take();
  if (history.empty()) return bad_field("input", "holds no message");

  ToolSet tools;
  Json declared;
  if (const Json* list = fields.array("tools")) declared = convert_tools(*list, error);
  if (!declared.is_null()) tools.add(declared, "tools", error);
  const Json* choice = fields.find("tool_choice");
  request.tool_choice = parse_tool_choice(choice, tools, /*flat=*/true, error);
  Json chat_choice = choice == nullptr ? Json() : *choice;
  if (request.tool_choice.kind == ToolChoiceKind::kNamed) {
    chat_choice = {{"type", "function"}, {"function", {{"name", request.tool_choice.name}}}};
  }
  fields.boolean("parallel_tool_calls", request.parallel_tool_calls);

  const Json* format = nullptr;
  if (const Json* text = fields.object("text")) {
    FieldReader inner(*text, "text", error);
    format = inner.object("format");
    request.format = parse_format(format, "text.format", /*flat=*/true, error);
  }
  ThinkingControl thinking;
  if (const Json* reasoning = fields.object("reasoning")) {
    FieldReader inner(*reasoning, "reasoning", error);
    std::string effort;
    if (inner.string("effort", effort))
      apply_effort(effort, "reasoning.effort", config.mode == ApiMode::kLenient, thinking, error);
  }
  if (thinking.thinking && thinking.effort.empty()) thinking.effort = config.default_effort;
  if (config.default_effort.empty()) thinking.effort.clear();

  std::int64_t max_tokens = config.default_max_tokens;
  fields.integer("max_output_tokens", 1, kMost, max_tokens);
  request.max_tokens = max_tokens;
  std::string instructions;
  fields.string("instructions", instructions);
  parse_sampling(fields, config, request);
  fields.boolean("stream", request.stream);
  std::int32_t top = 0;
  fields.integer("top_logprobs", 0, 20, top);
  request.logprobs = top > 0;
  if (const Json* include = fields.array("include")) {
    for (const Json& item : *include) request.logprobs |= item == "message.output_text.logprobs";
  }
  if (request.logprobs) request.sampling.top_logprobs = top;
  // Bounds the calls of built-in tools, which only a host could run; those of functions are the client's own.
  std::int64_t tool_calls = 0;
  fields.integer("max_tool_calls", 1, kMost, tool_calls);
  if (error) return *error;
  request.n = 1;
  request.tools = tools.all();
  request.echo = std::make_shared<const Json>(echo_of(body, request));

  Json prompt = Json::array();
  if (!instructions.empty()) prompt.push_back({{"role", "system"}, {"content", instructions}});
  for (const Json& message : history) prompt.push_back(message);
  request.history = std::make_shared<const Json>(std::move(history));
  const Json rendered_format = chat_format(request.format, format);
  fill_render(request, std::move(prompt), declared.is_null() ? nullptr : &declared,
              chat_choice.is_null() ? nullptr : &chat_choice, rendered_format.is_null() ? nullptr : &rendered_format,
              thinking);
  return request;
}

}  // namespace perigee::api
