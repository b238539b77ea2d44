// K3 prompts (spec chat.md 2). Literal texts are those that the model was trained on.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "text/prompt_builder.h"
#include "text/renderers.h"
#include "text/replay.h"
#include "text/splitter.h"

namespace perigee {
namespace {

constexpr std::string_view kToolsIntro = "# Tools\nHere are the available tools, described in JSONSchema.\n\n```json\n";
constexpr std::string_view kMoreToolsIntro =
    "## New Tools Available\nThe system dynamically extends the toolset via lazy-loading.\n"
    "You have access to all existing and extended tools.\nHere are the specs for the extended tools.\n\n```json\n";
constexpr std::string_view kEffortIntro =
    "`thinking_effort` guides on how much to think in your thinking channel (not including the response channel), "
    "supported values include `low`, `medium`, `high`, and `max`.\nNow the system is invoked with `thinking_effort=";
constexpr std::int64_t kStubTokens = 3;  // open, think or response, sep

std::string escape_attribute(std::string_view value) {
  std::string out;
  for (const char c : value) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '"') {
      out += "&quot;";
    } else {
      out += c;
    }
  }
  return out;
}

struct Attribute {
  std::string_view key;
  std::string_view value;
};

// A tool result, with the attributes that it gets.
struct ToolResult {
  const MessageView* message = nullptr;
  std::string name;
};

class XtmlRenderer {
 public:
  XtmlRenderer(const Dialect& dialect, const Tokenizer& tokenizer, const RenderRequest& request,
               const Conversation& conversation)
      : dialect_(dialect),
        request_(request),
        conversation_(conversation),
        out_(tokenizer, false),
        // A named tool must be called at once, so there is no thinking before it (spec 2.2).
        thinking_(request.thinking && conversation.named_tool.empty()) {}

  Result<Rendered> run() {
    const auto& messages = conversation_.messages;
    if (conversation_.tools != nullptr) internal_message("tool-declare", tools_body(kToolsIntro, *conversation_.tools));
    PERIGEE_RETURN_IF_ERROR(effort());
    std::int64_t system_tokens = -1;
    const MessageView* partial = !messages.empty() && messages.back().partial ? &messages.back() : nullptr;
    const std::size_t count = messages.size() - (partial != nullptr ? 1 : 0);
    for (std::size_t i = 0; i < count;) {
      if (system_tokens < 0 && messages[i].role != Role::kSystem) system_tokens = out_.tokens();
      std::size_t end = i + 1;
      if (messages[i].role == Role::kTool) {
        while (end < count && messages[end].role == Role::kTool) ++end;
        PERIGEE_RETURN_IF_ERROR(tool_results(i, end));
      } else {
        PERIGEE_RETURN_IF_ERROR(message(messages[i]));
      }
      i = end;
    }
    if (system_tokens < 0) system_tokens = out_.tokens();
    tool_choice();
    response_format();
    Channel start = thinking_ ? Channel::kThink : Channel::kResponse;
    bool stub = false;
    if (partial != nullptr) {
      open_assistant(*partial);
      open("response");
      content(*partial);
      start = Channel::kResponse;
    } else if (request_.add_generation_prompt) {
      open("message", {{"role", "assistant"}});
      open(thinking_ ? "think" : "response");
      stub = true;
    }
    Rendered rendered = out_.take();
    if (stub) rendered.prompt_tokens -= kStubTokens;
    rendered.system_tokens = system_tokens;
    rendered.replayed_answers = replayed_;
    rendered.start = start;
    rendered.thinking = thinking_;
    return rendered;
  }

 private:
  void open(std::string_view tag, std::initializer_list<Attribute> attributes = {}) {
    out_.special(Special::kOpen);
    out_.text(tag);
    for (const Attribute& attribute : attributes) {
      if (attribute.value.data() == nullptr) continue;
      out_.text(std::string(" ").append(attribute.key));
      out_.text("=\"");
      out_.text(escape_attribute(attribute.value));
      out_.text("\"");
    }
    out_.special(Special::kSep);
  }

  void close(std::string_view tag) {
    out_.special(Special::kClose);
    out_.text(tag);
    out_.special(Special::kSep);
  }

  void end_message() {
    close("message");
    out_.special(Special::kEndOfMessage);
  }

  // An attribute that is left out when it is empty.
  static Attribute optional(std::string_view key, const std::string& value) {
    return value.empty() ? Attribute{key, {}} : Attribute{key, value};
  }

  void internal_message(std::string_view type, std::string_view body) {
    open("message", {{"role", "system"}, {"type", type}});
    out_.text(body);
    end_message();
  }

  static std::string tools_body(std::string_view intro, const Json& tools) {
    return std::string(intro) + dump_sorted_json(to_python(tools)) + "\n```";
  }

  Status effort() {
    if (!thinking_ || request_.effort.empty()) return {};
    if (request_.effort != "low" && request_.effort != "high" && request_.effort != "max") {
      return invalid_argument("reasoning_effort: expected low, high or max, found \"{}\"", request_.effort);
    }
    internal_message("thinking-effort", std::string(kEffortIntro) + request_.effort + "`.");
    return {};
  }

  void tool_choice() {
    const std::string& choice = conversation_.tool_choice;
    if (choice.empty() || choice == "auto") return;
    std::string body = "The system is invoked with `tool_choice=" + choice + "`.\n";
    if (choice == "required") {
      body += "You MUST call tools in the next message.";
    } else if (choice == "none") {
      body += "You MUST NOT call any tools in the next message.";
    } else {
      body += "You MUST call the tool `" + conversation_.named_tool + "` in the next message.";
    }
    internal_message("tool-choice", body);
  }

  void response_format() {
    const std::string& format = conversation_.response_format;
    if (format.empty() || format == "text") return;
    std::string body = "The system is invoked with `response_format=" + format +
                       "`.\nYour response must be raw JSON data without markdown code blocks (```json) or any "
                       "additional formatting.";
    if (conversation_.schema != nullptr) {
      body += "\nThe JSON data must match the following schema:\n```json\n" +
              dump_sorted_json(to_python(*conversation_.schema)) + "\n```";
    }
    internal_message("response-format", body);
  }

  void content(const MessageView& message) {
    for_each_part(
        message, [&](std::string_view text) { out_.text(text); },
        [&](std::size_t index) {
          const ImageSize& size = request_.images[index];
          out_.image(fmt::format("image {}x{}", size.width, size.height), index, image_tokens(dialect_, size));
        });
  }

  Status message(const MessageView& message) {
    if (message.role == Role::kAssistant) return assistant(message);
    if (message.tools != nullptr) {
      internal_message("tool-declare", tools_body(kMoreToolsIntro, *message.tools));
      return {};
    }
    open("message", {{"role", message.role == Role::kUser ? "user" : "system"}, optional("name", message.name)});
    content(message);
    end_message();
    return {};
  }

  // The opening of an assistant message and, in thinking mode, its whole think element.
  void open_assistant(const MessageView& message) {
    open("message", {{"role", "assistant"}, optional("name", message.name)});
    if (!thinking_) return;
    open("think");
    if (!message.reasoning.empty()) out_.text(message.reasoning);
    close("think");
  }

  Status assistant(const MessageView& message) {
    last_calls_ = &message.calls;
    results_ = 0;
    if (replay(message)) return {};
    open_assistant(message);
    open("response");
    content(message);
    close("response");
    if (!message.calls.empty()) {
      open("tools");
      for (std::size_t i = 0; i < message.calls.size(); ++i) PERIGEE_RETURN_IF_ERROR(call(message.calls[i], i + 1));
      close("tools");
    }
    end_message();
    return {};
  }

  bool replay(const MessageView& message) {
    if (request_.answers == nullptr || !message.name.empty()) return false;
    AnswerStore::Found found;
    if (!request_.answers->find(request_.tenant, *message.json, found)) return false;
    if ((found.start == Channel::kThink) != thinking_) return false;
    open("message", {{"role", "assistant"}});
    open(thinking_ ? "think" : "response");
    out_.splice(found.ids);
    out_.special(Special::kEndOfMessage);
    ++replayed_;
    return true;
  }

  Status call(const CallView& call, std::size_t index) {
    open("call", {{"tool", call.name}, {"index", std::to_string(index)}});
    if (call.arguments != nullptr) {
      PythonValue arguments;
      arguments.kind = PythonValue::Kind::kObject;
      if (call.arguments->is_string()) {
        const std::string& text = call.arguments->get_ref<const std::string&>();
        if (!is_blank(text)) {
          auto parsed = parse_python_json(text);
          if (!parsed.ok()) return parsed.status().with_context(call.path + ".function.arguments");
          if (*parsed) {
            arguments = std::move(**parsed);
          } else {
            open("json", {{"type", "object"}});
            out_.text(text);
            close("json");
          }
        }
      } else {
        arguments = to_python(*call.arguments);
      }
      if (arguments.kind != PythonValue::Kind::kObject) {
        return invalid_argument("{}.function.arguments: expected a JSON object", call.path);
      }
      for (std::size_t i = 0; i < arguments.keys.size(); ++i) argument(arguments.keys[i], arguments.items[i]);
    }
    close("call");
    return {};
  }

  void argument(const std::string& key, const PythonValue& value) {
    using Kind = PythonValue::Kind;
    const auto type = [&]() -> std::string_view {
      switch (value.kind) {
        case Kind::kBool:
          return "boolean";
        case Kind::kNull:
          return "null";
        case Kind::kInteger:
        case Kind::kFloat:
          return "number";
        case Kind::kString:
          return "string";
        case Kind::kObject:
          return "object";
        default:
          return "array";
      }
    };
    open("argument", {{"key", key}, {"type", type()}});
    out_.text(value.kind == Kind::kString ? value.text : dump_python_json(value));
    close("argument");
  }

  // A run of tool messages: in the order of the calls if every id is known, otherwise as given.
  Status tool_results(std::size_t begin, std::size_t end) {
    struct Result {
      const MessageView* message;
      std::size_t call;  // position, when all match
    };
    std::unordered_map<std::string, std::size_t> positions;
    const std::size_t calls = last_calls_ == nullptr ? 0 : last_calls_->size();
    for (std::size_t i = 0; i < calls; ++i) {
      if (const std::string& id = (*last_calls_)[i].id; !id.empty()) positions.emplace(id, i);
    }
    std::vector<Result> run;
    bool all = true;
    for (std::size_t i = begin; i < end; ++i) {
      const auto found = positions.find(conversation_.messages[i].call_id);
      all = all && found != positions.end();
      run.push_back({&conversation_.messages[i], all ? found->second : 0});
    }
    if (all) {
      std::stable_sort(run.begin(), run.end(), [](const Result& a, const Result& b) { return a.call < b.call; });
    }
    for (const Result& result : run) {
      const std::size_t index = ++results_;
      const MessageView& message = *result.message;
      std::string name = all ? (*last_calls_)[result.call].name : !message.tool.empty() ? message.tool : message.name;
      if (name.empty() && index <= calls) name = (*last_calls_)[index - 1].name;
      if (name.empty()) {
        return invalid_argument("{}.tool_call_id: \"{}\" is no call of the assistant message before", message.path,
                                message.call_id);
      }
      open("message", {{"role", "tool"}, {"tool", name}, {"index", std::to_string(index)}});
      content(message);
      end_message();
    }
    return {};
  }

  const Dialect& dialect_;
  const RenderRequest& request_;
  const Conversation& conversation_;
  PromptBuilder out_;
  bool thinking_;
  const std::vector<CallView>* last_calls_ = nullptr;
  std::size_t results_ = 0;  // tool messages since the last assistant message
  std::int64_t replayed_ = 0;
};

}  // namespace

Result<Rendered> render_xtml(const Dialect& dialect, const Tokenizer& tokenizer, const RenderRequest& request,
                             const Conversation& conversation) {
  return XtmlRenderer(dialect, tokenizer, request, conversation).run();
}

}  // namespace perigee
