#include "text/conversation.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "text/splitter.h"

namespace perigee {
namespace {

const Json* non_null(const Json* json) {
  return json == nullptr || json->is_null() ? nullptr : json;
}

bool is_image_part(const Json& part) {
  const Json* type = json_member(part, "type");
  return type != nullptr && (*type == "image_url" || *type == "image");
}

// An optional string field. Other types are refused.
Status read_string(const Json& object, const std::string& path, const char* key, std::string& out) {
  const Json* value = json_member(object, key);
  if (value == nullptr) return {};
  if (!value->is_string()) return invalid_argument("{}.{}: expected a string, found {}", path, key, value->type_name());
  out = value->get_ref<const std::string&>();
  return {};
}

// Ids are opaque strings; a number counts as its decimal text.
Status read_id(const Json& object, const std::string& path, const char* key, std::string& out) {
  const Json* value = json_member(object, key);
  if (value == nullptr || !value->is_number_integer()) return read_string(object, path, key, out);
  out = value->dump();
  return {};
}

// A non-empty array, or nullptr for absent, null and empty.
Result<const Json*> read_array(const Json* value, const std::string& path) {
  value = non_null(value);
  if (value == nullptr) return static_cast<const Json*>(nullptr);
  if (!value->is_array()) return invalid_argument("{}: expected an array, found {}", path, value->type_name());
  return value->empty() ? nullptr : value;
}

Status read_role(const Json& json, MessageView& message, bool& developer) {
  std::string role;
  PERIGEE_RETURN_IF_ERROR(read_string(json, message.path, "role", role));
  developer = role == "developer";
  if (role == "system" || developer) {
    message.role = Role::kSystem;
  } else if (role == "user") {
    message.role = Role::kUser;
  } else if (role == "assistant") {
    message.role = Role::kAssistant;
  } else if (role == "tool") {
    message.role = Role::kTool;
  } else {
    return invalid_argument("{}.role: expected system, developer, user, assistant or tool, found \"{}\"", message.path,
                            role);
  }
  return {};
}

Status read_content(MessageView& message, std::size_t& images) {
  message.first_image = images;
  message.content = json_member(*message.json, "content");
  if (message.content == nullptr || message.content->is_string()) return {};
  if (!message.content->is_array()) {
    return invalid_argument("{}.content: expected a string or an array of parts, found {}", message.path,
                            message.content->type_name());
  }
  for (std::size_t i = 0; i < message.content->size(); ++i) {
    const Json& part = (*message.content)[i];
    const std::string path = fmt::format("{}.content[{}]", message.path, i);
    if (is_image_part(part)) {
      ++images;
      continue;
    }
    const Json* type = json_member(part, "type");
    if (type == nullptr || *type != "text") {
      return invalid_argument("{}.type: expected text, image_url or image", path);
    }
    const Json* text = json_member(part, "text");
    if (text == nullptr || !text->is_string()) return invalid_argument("{}.text: expected a string", path);
  }
  return {};
}

Status read_calls(MessageView& message) {
  PERIGEE_ASSIGN_OR_RETURN(const Json* calls,
                           read_array(json_member(*message.json, "tool_calls"), message.path + ".tool_calls"));
  for (std::size_t i = 0; calls != nullptr && i < calls->size(); ++i) {
    const Json& item = (*calls)[i];
    CallView call;
    call.path = fmt::format("{}.tool_calls[{}]", message.path, i);
    if (!item.is_object()) return invalid_argument("{}: expected an object, found {}", call.path, item.type_name());
    PERIGEE_RETURN_IF_ERROR(read_id(item, call.path, "id", call.id));
    const Json* function = json_member(item, "function");
    const Json& body = function == nullptr ? item : *function;
    PERIGEE_RETURN_IF_ERROR(read_string(body, call.path + ".function", "name", call.name));
    if (call.name.empty()) return invalid_argument("{}.function.name: expected a non-empty string", call.path);
    call.arguments = json_member(body, "arguments");
    message.calls.push_back(std::move(call));
  }
  return {};
}

bool is_empty_content(const Json* content) {
  return content == nullptr || content->empty() || *content == "";
}

Status read_message(const Json& json, MessageView& message, std::size_t& images) {
  if (!json.is_object()) return invalid_argument("{}: expected an object, found {}", message.path, json.type_name());
  message.json = &json;
  bool developer = false;
  PERIGEE_RETURN_IF_ERROR(read_role(json, message, developer));
  PERIGEE_RETURN_IF_ERROR(read_content(message, images));
  PERIGEE_RETURN_IF_ERROR(read_string(json, message.path, "name", message.name));
  PERIGEE_ASSIGN_OR_RETURN(message.tools, read_array(json_member(json, "tools"), message.path + ".tools"));
  if (message.tools != nullptr) {
    if (message.role != Role::kSystem || developer) {
      return invalid_argument("{}.tools: only a system message may declare tools", message.path);
    }
    if (!is_empty_content(message.content)) {
      return invalid_argument("{}.content: a system message has either content or tools", message.path);
    }
  } else if (message.role == Role::kSystem && message.content == nullptr) {
    return invalid_argument("{}.content: expected content or tools", message.path);
  }
  if (message.role == Role::kAssistant) {
    PERIGEE_RETURN_IF_ERROR(read_string(json, message.path, "reasoning_content", message.reasoning));
    if (message.reasoning.empty()) {
      PERIGEE_RETURN_IF_ERROR(read_string(json, message.path, "reasoning", message.reasoning));
    }
    if (is_blank(message.reasoning)) message.reasoning.clear();
    PERIGEE_RETURN_IF_ERROR(read_calls(message));
  }
  if (message.role == Role::kTool) {
    PERIGEE_RETURN_IF_ERROR(read_id(json, message.path, "tool_call_id", message.call_id));
    if (message.call_id.empty()) PERIGEE_RETURN_IF_ERROR(read_id(json, message.path, "id", message.call_id));
    PERIGEE_RETURN_IF_ERROR(read_string(json, message.path, "tool", message.tool));
  }
  if (const Json* partial = json_member(json, "partial"); partial != nullptr) {
    if (!partial->is_boolean()) return invalid_argument("{}.partial: expected a boolean", message.path);
    message.partial = partial->get<bool>();
  }
  return {};
}

bool declares(const Json* tools, const std::string& name) {
  if (tools == nullptr) return false;
  for (const Json& tool : *tools) {
    const Json* function = json_member(tool, "function");
    const Json* declared = json_member(function == nullptr ? tool : *function, "name");
    if (declared != nullptr && *declared == name) return true;
  }
  return false;
}

Status read_tool_choice(const RenderRequest& request, Conversation& conversation) {
  const Json* choice = non_null(request.tool_choice);
  if (choice == nullptr) return {};
  if (choice->is_string()) {
    conversation.tool_choice = choice->get<std::string>();
    if (conversation.tool_choice == "auto" || conversation.tool_choice == "none" ||
        conversation.tool_choice == "required") {
      return {};
    }
    return invalid_argument("tool_choice: expected auto, none, required or a named function, found \"{}\"",
                            conversation.tool_choice);
  }
  const Json* function = json_member(*choice, "function");
  const Json* name = function == nullptr ? nullptr : json_member(*function, "name");
  if (name == nullptr || !name->is_string() || name->get_ref<const std::string&>().empty()) {
    return invalid_argument("tool_choice.function.name: expected a non-empty string");
  }
  conversation.tool_choice = "specified";
  conversation.named_tool = name->get<std::string>();
  bool declared = declares(conversation.tools, conversation.named_tool);
  for (const MessageView& message : conversation.messages) {
    declared = declared || declares(message.tools, conversation.named_tool);
  }
  if (!declared) {
    return invalid_argument("tool_choice.function.name: no tool named \"{}\" is declared", conversation.named_tool);
  }
  return {};
}

Status read_response_format(const RenderRequest& request, Conversation& conversation) {
  const Json* format = non_null(request.response_format);
  if (format == nullptr) return {};
  if (!format->is_object()) {
    return invalid_argument("response_format: expected an object, found {}", format->type_name());
  }
  PERIGEE_RETURN_IF_ERROR(read_string(*format, "response_format", "type", conversation.response_format));
  if (conversation.response_format == "text" || conversation.response_format == "json_object") return {};
  if (conversation.response_format != "json_schema") {
    return invalid_argument("response_format.type: expected text, json_object or json_schema, found \"{}\"",
                            conversation.response_format);
  }
  const Json* outer = json_member(*format, "json_schema");
  if (outer == nullptr || !outer->is_object()) {
    return invalid_argument("response_format.json_schema: expected an object");
  }
  conversation.schema = json_member(*outer, "schema");
  if (conversation.schema == nullptr) conversation.schema = json_member(*outer, "json_schema");
  if (conversation.schema == nullptr) conversation.schema = outer;
  return {};
}

}  // namespace

const Json* json_member(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

Result<Conversation> read_conversation(const RenderRequest& request) {
  Conversation conversation;
  if (request.messages == nullptr || !request.messages->is_array()) {
    return invalid_argument("messages: expected an array");
  }
  PERIGEE_ASSIGN_OR_RETURN(conversation.tools, read_array(request.tools, "tools"));
  conversation.messages.resize(request.messages->size());
  for (std::size_t i = 0; i < conversation.messages.size(); ++i) {
    MessageView& message = conversation.messages[i];
    message.path = fmt::format("messages[{}]", i);
    PERIGEE_RETURN_IF_ERROR(read_message((*request.messages)[i], message, conversation.images));
    if (!message.partial) continue;
    if (message.role != Role::kAssistant || i + 1 != conversation.messages.size()) {
      return invalid_argument("{}.partial: only the last message may be partial, and only an assistant's",
                              message.path);
    }
    if (!message.calls.empty()) {
      return invalid_argument("{}.tool_calls: a partial message cannot have tool calls", message.path);
    }
  }
  if (conversation.images != request.images.size()) {
    return invalid_argument("messages: expected {} images, found {} image parts", request.images.size(),
                            conversation.images);
  }
  PERIGEE_RETURN_IF_ERROR(read_tool_choice(request, conversation));
  PERIGEE_RETURN_IF_ERROR(read_response_format(request, conversation));
  return conversation;
}

void for_each_part(const MessageView& message, const std::function<void(std::string_view)>& text,
                   const std::function<void(std::size_t)>& image) {
  if (message.content == nullptr) return;
  if (message.content->is_string()) {
    text(message.content->get_ref<const std::string&>());
    return;
  }
  std::size_t next_image = message.first_image;
  for (const Json& part : *message.content) {
    if (is_image_part(part)) {
      image(next_image++);
    } else {
      text(part.at("text").get_ref<const std::string&>());
    }
  }
}

}  // namespace perigee
