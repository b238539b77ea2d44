// Reads the documents of a RenderRequest for the renderers: one place that knows the fields of a message and says what
// is wrong with them.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "text/python_json.h"
#include "text/render.h"

namespace perigee {

enum class Role : std::uint8_t { kSystem, kUser, kAssistant, kTool };

struct CallView {
  std::string id;  // a number's decimal text; empty: none
  std::string name;
  const Json* arguments = nullptr;  // nullptr: absent or null
  std::string path;
};

struct MessageView {
  const Json* json = nullptr;
  std::string path;  // "messages[3]"
  Role role = Role::kUser;
  std::string name;               // empty: none
  std::string reasoning;          // assistant; empty when blank
  std::string call_id;            // tool: tool_call_id, else id
  std::string tool;               // tool: the field of that name
  const Json* content = nullptr;  // string or array; nullptr: absent or null
  const Json* tools = nullptr;    // system: non-empty array
  std::vector<CallView> calls;    // assistant
  bool partial = false;
  std::size_t first_image = 0;  // index of its first image part in the request
};

struct Conversation {
  std::vector<MessageView> messages;  // developer has become system
  const Json* tools = nullptr;        // non-empty array, or nullptr
  std::string tool_choice;            // "", "auto", "none", "required", or "specified" with `named_tool`
  std::string named_tool;
  std::string response_format;  // "", "text", "json_object", "json_schema"
  const Json* schema = nullptr;
  std::size_t images = 0;  // image parts in all messages
};

Result<Conversation> read_conversation(const RenderRequest& request);

// Calls `text` or `image` (with the image's index in the request) for each part, in order.
void for_each_part(const MessageView& message, const std::function<void(std::string_view)>& text,
                   const std::function<void(std::size_t)>& image);

// nullptr when the key is absent or null, or `object` is no object.
const Json* json_member(const Json& object, const char* key);

}  // namespace perigee
