// Prompts of the K2 family and of Kimi-Linear (spec chat.md 4).
#include <nlohmann/json.hpp>

#include "text/prompt_builder.h"
#include "text/renderers.h"
#include "text/replay.h"

namespace perigee {
namespace {

class ImRenderer {
 public:
  ImRenderer(const Dialect& dialect, const Tokenizer& tokenizer, const RenderRequest& request,
             const Conversation& conversation)
      : dialect_(dialect), request_(request), conversation_(conversation), out_(tokenizer, true) {}

  Result<Rendered> run() {
    const auto& messages = conversation_.messages;
    PERIGEE_RETURN_IF_ERROR(declare_tools());
    if (!dialect_.default_system.empty() && (messages.empty() || messages.front().role != Role::kSystem)) {
      open(Special::kImSystem, "system");
      out_.text(dialect_.default_system);
      out_.special(Special::kEndOfMessage);
      out_.text(dialect_.after_default_system);
    }
    // Reasoning is kept only after the last assistant message without calls.
    std::size_t first_kept = 0;
    for (std::size_t i = 0; i < messages.size(); ++i) {
      if (messages[i].role == Role::kAssistant && messages[i].calls.empty() && !messages[i].partial) first_kept = i + 1;
    }
    std::int64_t system_tokens = -1;
    bool partial = false;
    for (std::size_t i = 0; i < messages.size(); ++i) {
      if (system_tokens < 0 && messages[i].role != Role::kSystem) system_tokens = out_.tokens();
      PERIGEE_RETURN_IF_ERROR(message(messages[i], i >= first_kept));
      partial = messages[i].partial;
    }
    if (system_tokens < 0) system_tokens = out_.tokens();
    Channel start = Channel::kResponse;
    if (!partial && request_.add_generation_prompt) {
      open(Special::kImAssistant, "assistant");
      if (dialect_.think == ThinkStyle::kPrefilled) {
        out_.special(Special::kThink);
        if (request_.thinking) {
          start = Channel::kThink;
        } else {
          out_.special(Special::kThinkEnd);
        }
      }
    }
    Rendered rendered = out_.take();
    rendered.system_tokens = system_tokens;
    rendered.replayed_answers = replayed_;
    rendered.start = start;
    rendered.thinking = dialect_.think != ThinkStyle::kNone && request_.thinking;
    return rendered;
  }

 private:
  void open(Special turn, std::string_view role) {
    out_.special(turn);
    out_.text(role);
    out_.special(Special::kImMiddle);
  }

  Status declare_tools() {
    if (conversation_.tools == nullptr) return {};
    std::string text;
    if (dialect_.tools == ToolText::kTypeScript) {
      PERIGEE_ASSIGN_OR_RETURN(text, typescript_tools(*conversation_.tools));
    } else {
      text = dump_python_json(to_python(*conversation_.tools));
    }
    open(Special::kImSystem, "tool_declare");
    out_.text(text);
    out_.special(Special::kEndOfMessage);
    return {};
  }

  Status message(const MessageView& message, bool keep_reasoning) {
    if (message.tools != nullptr) {
      return invalid_argument("{}.tools: this model takes no tools within the conversation", message.path);
    }
    const std::string_view role = !message.name.empty()              ? std::string_view(message.name)
                                  : message.role == Role::kUser      ? "user"
                                  : message.role == Role::kAssistant ? "assistant"
                                  : message.role == Role::kTool      ? "tool"
                                                                     : "system";
    if (message.role == Role::kAssistant && replay(message, keep_reasoning)) return {};
    open(message.role == Role::kUser        ? Special::kImUser
         : message.role == Role::kAssistant ? Special::kImAssistant
                                            : Special::kImSystem,
         role);
    if (message.role == Role::kTool) {
      if (message.call_id.empty()) return invalid_argument("{}.tool_call_id: expected a call's id", message.path);
      out_.text("## Return of " + message.call_id + "\n");
    }
    if (message.role == Role::kAssistant && dialect_.think != ThinkStyle::kNone) {
      out_.special(Special::kThink);
      if (keep_reasoning) out_.text(message.reasoning);
      out_.special(Special::kThinkEnd);
    }
    for_each_part(
        message, [&](std::string_view text) { out_.text(text); },
        [&](std::size_t index) {
          out_.image("image", index, image_tokens(dialect_, request_.images[index]));
          out_.text(dialect_.after_image);
        });
    PERIGEE_RETURN_IF_ERROR(calls(message));
    if (!message.partial) out_.special(Special::kEndOfMessage);
    return {};
  }

  Status calls(const MessageView& message) {
    if (message.calls.empty()) return {};
    out_.special(Special::kToolCallsBegin);
    for (const CallView& call : message.calls) {
      const std::size_t index = calls_++;
      out_.special(Special::kCallBegin);
      out_.text(call.id.empty() ? fmt::format("functions.{}:{}", call.name, index) : call.id);
      out_.special(Special::kArgumentBegin);
      if (call.arguments == nullptr) {
        out_.text("{}");
      } else if (call.arguments->is_string()) {
        out_.text(call.arguments->get_ref<const std::string&>());
      } else {
        out_.text(dump_python_json(to_python(*call.arguments)));
      }
      out_.special(Special::kCallEnd);
    }
    out_.special(Special::kToolCallsEnd);
    return {};
  }

  // An answer can be spliced only where its reasoning, if any, stays in the prompt.
  bool replay(const MessageView& message, bool keep_reasoning) {
    if (request_.answers == nullptr || !message.name.empty() || message.partial) return false;
    if (dialect_.think != ThinkStyle::kNone && !keep_reasoning) return false;
    AnswerStore::Found found;
    if (!request_.answers->find(request_.tenant, *message.json, found)) return false;
    open(Special::kImAssistant, "assistant");
    if (dialect_.think == ThinkStyle::kPrefilled) {
      out_.special(Special::kThink);
      if (found.start == Channel::kResponse) out_.special(Special::kThinkEnd);
    }
    out_.splice(found.ids);
    out_.special(Special::kEndOfMessage);
    calls_ += message.calls.size();
    ++replayed_;
    return true;
  }

  const Dialect& dialect_;
  const RenderRequest& request_;
  const Conversation& conversation_;
  PromptBuilder out_;
  std::size_t calls_ = 0;  // in the whole conversation
  std::int64_t replayed_ = 0;
};

}  // namespace

Result<Rendered> render_im_turns(const Dialect& dialect, const Tokenizer& tokenizer, const RenderRequest& request,
                                 const Conversation& conversation) {
  return ImRenderer(dialect, tokenizer, request, conversation).run();
}

}  // namespace perigee
