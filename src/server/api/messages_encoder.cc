// Anthropic Messages (spec chat.md 5.6): one block at a time.
#include <nlohmann/json.hpp>

#include "base/sha256.h"
#include "server/api/reply_state.h"

namespace perigee::api {
namespace {

enum class Block : std::uint8_t { kNone, kThinking, kText, kToolUse };

class MessagesEncoder final : public FoldingEncoder {
 public:
  MessagesEncoder(const ChatRequest& request, ReplyIdentity identity)
      : FoldingEncoder(request, std::move(identity), 1) {}

  void begin() override {
    if (!options_.stream) return;
    Json message = head();
    message["content"] = Json::array();
    message["stop_reason"] = nullptr;
    message["stop_sequence"] = nullptr;
    message["usage"] = usage_object();
    send("message_start", {{"type", "message_start"}, {"message", std::move(message)}});
    send("ping", {{"type", "ping"}});
  }

  void reasoning(int choice, std::string_view text) override {
    FoldingEncoder::reasoning(choice, text);
    if (!options_.stream) return;
    open(Block::kThinking, {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}});
    delta("thinking_delta", "thinking", text);
  }

  void content(int choice, std::string_view text) override {
    FoldingEncoder::content(choice, text);
    if (!options_.stream) return;
    open(Block::kText, {{"type", "text"}, {"text", ""}});
    delta("text_delta", "text", text);
  }

  void call_begin(int choice, std::string_view id, std::string_view name) override {
    FoldingEncoder::call_begin(choice, id, name);
    if (!options_.stream) return;
    close();
    open(Block::kToolUse,
         {{"type", "tool_use"}, {"id", at(0).calls.back().id}, {"name", name}, {"input", Json::object()}});
  }

  void call_arguments(int choice, std::string_view text) override {
    FoldingEncoder::call_arguments(choice, text);
    if (options_.stream) delta("input_json_delta", "partial_json", text);
  }

  void call_end(int choice) override {
    FoldingEncoder::call_end(choice);
    if (options_.stream) close();
  }

  void finish(int choice, ReplyFinish reason, std::string_view stop_string) override {
    FoldingEncoder::finish(choice, reason, stop_string);
    if (options_.stream) close();
  }

  void end() override {
    if (!options_.stream) {
      pending_ += document();
      return;
    }
    Json change = {{"stop_reason", stop_reason()}, {"stop_sequence", stop_sequence()}};
    send("message_delta", {{"type", "message_delta"}, {"delta", std::move(change)}, {"usage", usage_object()}});
    send("message_stop", {{"type", "message_stop"}});
  }

  void fail(const ApiError& error) override {
    const std::string body = anthropic_error_body(error, options_.request_id);
    pending_ += options_.stream ? fmt::format("event: error\ndata: {}\n\n", body) : body;
  }

  std::string document() const override {
    const ReplyChoice& state = at(0);
    Json content = Json::array();
    if (!state.reasoning.empty()) {
      content.push_back({{"type", "thinking"}, {"thinking", state.reasoning}, {"signature", signature()}});
    }
    if (!state.content.empty()) content.push_back({{"type", "text"}, {"text", state.content}});
    for (const ReplyCall& call : state.calls) {
      if (!call.complete) continue;
      content.push_back({{"type", "tool_use"}, {"id", call.id}, {"name", call.name}, {"input", input_of(call)}});
    }
    Json body = head();
    body["content"] = std::move(content);
    body["stop_reason"] = stop_reason();
    body["stop_sequence"] = stop_sequence();
    body["usage"] = usage_object();
    return json_text(body);
  }

 private:
  Json head() const {
    return {{"id", "msg_" + identity_.id}, {"type", "message"}, {"role", "assistant"}, {"model", options_.model}};
  }

  Json usage_object() const {
    return {{"input_tokens", usage_.prompt_tokens - usage_.cached_tokens},
            {"cache_creation_input_tokens", 0},
            {"cache_read_input_tokens", usage_.cached_tokens},
            {"output_tokens", usage_.completion_tokens}};
  }

  Json stop_reason() const {
    const ReplyChoice& state = at(0);
    if (!state.finish) return nullptr;
    if (*state.finish == ReplyFinish::kToolCalls) return "tool_use";
    if (*state.finish == ReplyFinish::kLength) return "max_tokens";
    return state.stop_string.empty() ? "end_turn" : "stop_sequence";
  }

  Json stop_sequence() const { return at(0).stop_string.empty() ? Json(nullptr) : Json(at(0).stop_string); }

  // Clients send it back unread; it only has to be stable.
  std::string signature() const {
    return to_hex(sha256(std::as_bytes(std::span(at(0).reasoning.data(), at(0).reasoning.size()))));
  }

  // The model may write arguments that are no JSON object; the field must be one.
  static Json input_of(const ReplyCall& call) {
    auto parsed = parse_json(call.arguments);
    if (parsed.ok() && parsed->is_object()) return std::move(parsed).value();
    return {{"arguments", call.arguments}};
  }

  void open(Block block, const Json& start) {
    if (block_ == block) return;
    close();
    block_ = block;
    send("content_block_start", {{"type", "content_block_start"}, {"index", index_}, {"content_block", start}});
  }

  // Written without a JSON document in between: this runs for every token.
  void delta(std::string_view type, std::string_view key, std::string_view text) {
    fmt::format_to(std::back_inserter(pending_),
                   "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":{},"
                   "\"delta\":{{\"type\":\"{}\",{}}}}}\n\n",
                   index_, type, json_member_text(key, text));
  }

  void close() {
    if (block_ == Block::kNone) return;
    if (block_ == Block::kThinking) delta("signature_delta", "signature", signature());
    send("content_block_stop", {{"type", "content_block_stop"}, {"index", index_}});
    ++index_;
    block_ = Block::kNone;
  }

  Block block_ = Block::kNone;
  int index_ = 0;
};

}  // namespace

std::unique_ptr<ReplyEncoder> make_messages_encoder(const ChatRequest& request, ReplyIdentity identity) {
  return std::make_unique<MessagesEncoder>(request, std::move(identity));
}

}  // namespace perigee::api
