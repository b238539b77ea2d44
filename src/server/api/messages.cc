// The "messages" array of Chat Completions: roles, parts, tool calls and their results (spec chat.md 2.3, 5.3).
#include <algorithm>
#include <nlohmann/json.hpp>

#include "server/api/parse_parts.h"

namespace perigee::api {
namespace {

class MessageChecker {
 public:
  MessageChecker(const ApiConfig& config, ToolSet& tools, std::vector<ImageInput>& images, MaybeError& error)
      : config_(config), tools_(tools), images_(images), error_(error) {}

  Json check_all(const Json& messages, bool& partial) {
    Json out = Json::array();
    for (std::size_t i = 0; i < messages.size() && !error_; ++i) {
      out.push_back(check(messages[i], fmt::format("messages[{}]", i), i + 1 == messages.size(), partial));
    }
    if (!error_ && config_.mode == ApiMode::kStrict && !open_calls_.empty()) missing_result();
    return out;
  }

 private:
  Json check(const Json& message, const std::string& path, bool last, bool& partial) {
    if (!message.is_object()) {
      error_ = bad_field(path, "expected an object, found {}", json_type_name(message));
      return {};
    }
    FieldReader fields(message, path, error_);
    std::string role;
    if (!fields.string("role", role)) fields.fail(bad_field(path + ".role", "is missing"));
    if (error_) return {};
    if (role != "system" && role != "developer" && role != "user" && role != "assistant" && role != "tool") {
      error_ = bad_field(path + ".role", "expected system, developer, user, assistant or tool, found \"{}\"", role);
      return {};
    }
    std::string text;
    for (const std::string_view name : {"name", "reasoning_content", "reasoning"}) fields.string(name, text);

    Json out = message;
    check_declared_tools(fields, role);
    if (error_) return {};
    if (const Json* content = fields.find("content")) out["content"] = check_content(*content, path + ".content");
    const bool calls = check_calls(fields, role);
    if (role == "tool") check_result(fields);
    if (role == "assistant" || role == "user") check_open_calls(role, path);
    if (role == "assistant") open_new_calls(fields);
    bool is_partial = false;
    fields.boolean("partial", is_partial);
    if (is_partial && !error_) {
      if (!last || role != "assistant") {
        error_ = bad_field(path + ".partial", "is only allowed on the last message, of role assistant");
      } else if (calls) {
        error_ = bad_field(path + ".partial", "is not allowed together with tool_calls");
      }
      partial = true;
    }
    return out;
  }

  // `tools` of a system message declares further tools; such a message has no content of its own.
  void check_declared_tools(FieldReader& fields, const std::string& role) {
    const Json* tools = fields.find("tools");
    const Json* content = fields.find("content");
    const bool declares = tools != nullptr && !(tools->is_array() && tools->empty());
    if (declares) {
      if (role != "system") {
        return fields.fail(bad_field(fields.path("tools"), "is only allowed on system messages"));
      }
      const bool has_content = content != nullptr && (content->is_string() ? *content != "" : !content->empty());
      if (has_content) {
        return fields.fail(bad_field(fields.path("content"), "must be empty where the message declares tools"));
      }
      return tools_.add(*tools, fields.path("tools"), error_);
    }
    if (role == "system" && content == nullptr) {
      fields.fail(bad_field(fields.path("content"), "is missing"));
    }
  }

  Json check_content(const Json& content, const std::string& path) {
    if (content.is_string()) return content;
    if (!content.is_array()) {
      error_ = bad_field(path, "expected a string or an array of parts, found {}", json_type_name(content));
      return {};
    }
    Json parts = Json::array();
    for (std::size_t i = 0; i < content.size() && !error_; ++i) {
      parts.push_back(check_part(content[i], fmt::format("{}[{}]", path, i)));
    }
    return parts;
  }

  Json check_part(const Json& part, const std::string& path) {
    if (!part.is_object()) {
      error_ = bad_field(path, "expected an object, found {}", json_type_name(part));
      return {};
    }
    FieldReader fields(part, path, error_);
    std::string type;
    if (!fields.string("type", type)) {
      fields.fail(bad_field(path + ".type", "is missing"));
      return {};
    }
    if (type == "text" || type == "refusal") {
      std::string text;
      if (!fields.string(type, text)) fields.fail(bad_field(fmt::format("{}.{}", path, type), "is missing"));
      return {{"type", "text"}, {"text", text}};
    }
    if (type == "image_url" || type == "image") {
      const Json* holder = fields.find(type);
      if (holder == nullptr) holder = fields.find("image_url");
      std::string url_path = fmt::format("{}.{}", path, type);
      if (holder != nullptr && holder->is_object()) {
        url_path += ".url";
        const auto url = holder->find("url");
        holder = url == holder->end() ? nullptr : &*url;
      }
      if (holder == nullptr || !holder->is_string()) {
        error_ = bad_field(url_path, "expected a string");
        return {};
      }
      add_image(holder->get_ref<const std::string&>(), url_path, config_, images_, error_);
      return image_placeholder();
    }
    error_ = bad_field(path + ".type", "expected text or image_url, found \"{}\"", type);
    return {};
  }

  // True if the message has at least one call.
  bool check_calls(FieldReader& fields, const std::string& role) {
    const Json* calls = fields.array("tool_calls");
    if (calls == nullptr || calls->empty()) return false;
    if (role != "assistant") {
      fields.fail(bad_field(fields.path("tool_calls"), "is only allowed on assistant messages"));
      return false;
    }
    for (std::size_t i = 0; i < calls->size() && !error_; ++i) {
      check_call((*calls)[i], fmt::format("{}[{}]", fields.path("tool_calls"), i));
    }
    return true;
  }

  void check_call(const Json& call, const std::string& path) {
    if (!call.is_object()) {
      error_ = bad_field(path, "expected an object, found {}", json_type_name(call));
      return;
    }
    FieldReader fields(call, path, error_);
    const Json* function = fields.object("function");
    const bool flat = function == nullptr && fields.find("name") != nullptr;
    if (function == nullptr && !flat) return fields.fail(bad_field(path + ".function", "is missing"));
    FieldReader inner(flat ? call : *function, flat ? path : path + ".function", error_);
    std::string name;
    inner.string("name", name);
    if (name.empty()) return inner.fail(bad_field(inner.path("name"), "expected a non-empty string"));
    const Json* arguments = inner.find("arguments");
    if (arguments == nullptr || arguments->is_object()) return;
    if (!arguments->is_string()) {
      return inner.fail(
          bad_field(inner.path("arguments"), "expected a string or an object, found {}", json_type_name(*arguments)));
    }
    // A string that is no JSON at all is kept as it is; JSON that is no object is an error.
    const auto parsed = parse_json(arguments->get_ref<const std::string&>());
    if (parsed.ok() && !parsed->is_object()) {
      inner.fail(bad_field(inner.path("arguments"), "expected a JSON object, found {}", json_type_name(*parsed)));
    }
  }

  static std::string id_text(const Json& id) { return id.is_string() ? id.get<std::string>() : id.dump(); }

  // "tool_call_id", else "id", of a tool message or the "id" of a call; numbers count as their decimal text.
  const Json* find_id(FieldReader& fields, std::initializer_list<std::string_view> names) {
    for (const std::string_view name : names) {
      const Json* id = fields.find(name);
      if (id == nullptr) continue;
      if (!id->is_string() && !id->is_number_integer()) {
        fields.fail(bad_field(fields.path(name), "expected a string, found {}", json_type_name(*id)));
        return nullptr;
      }
      return id;
    }
    return nullptr;
  }

  void check_result(FieldReader& fields) {
    const Json* id = find_id(fields, {"tool_call_id", "id"});
    if (error_) return;
    if (id == nullptr) return fields.fail(bad_field(fields.path("tool_call_id"), "is missing"));
    if (config_.mode != ApiMode::kStrict) return;
    const auto open = std::find(open_calls_.begin(), open_calls_.end(), id_text(*id));
    if (open == open_calls_.end()) {
      return fields.fail(bad_field(fields.path("tool_call_id"), "tool_call_id {} is not found", id_text(*id)));
    }
    open_calls_.erase(open);
  }

  void check_open_calls(const std::string& role, const std::string& path) {
    if (error_ || config_.mode != ApiMode::kStrict || open_calls_.empty()) return;
    error_ = bad_field(path, "a {} message stands where the result of tool call \"{}\" is expected", role,
                       open_calls_.front());
  }

  void missing_result() {
    error_ = bad_field("messages", "the result of tool call \"{}\" is missing", open_calls_.front());
  }

  void open_new_calls(FieldReader& fields) {
    if (error_ || config_.mode != ApiMode::kStrict) return;
    const Json* calls = fields.array("tool_calls");
    if (calls == nullptr) return;
    for (const Json& call : *calls) {
      FieldReader inner(call, fields.path("tool_calls"), error_);
      const Json* id = find_id(inner, {"id"});
      open_calls_.push_back(id == nullptr ? "" : id_text(*id));
    }
  }

  const ApiConfig& config_;
  ToolSet& tools_;
  std::vector<ImageInput>& images_;
  MaybeError& error_;
  std::vector<std::string> open_calls_;  // strict mode: calls that have no result yet
};

}  // namespace

Json check_messages(const Json& messages, const ApiConfig& config, ToolSet& tools, std::vector<ImageInput>& images,
                    bool& partial, MaybeError& error) {
  if (error) return {};
  if (!messages.is_array() || messages.empty()) {
    error = bad_field("messages", "expected a non-empty array");
    return {};
  }
  return MessageChecker(config, tools, images, error).check_all(messages, partial);
}

}  // namespace perigee::api
