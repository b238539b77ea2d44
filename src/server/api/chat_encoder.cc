#include <nlohmann/json.hpp>

#include "server/api/reply_state.h"

namespace perigee::api {
namespace {

class ChatEncoder final : public FoldingEncoder {
 public:
  ChatEncoder(const ChatRequest& request, ReplyIdentity identity)
      : FoldingEncoder(request, std::move(identity), static_cast<std::size_t>(request.n)),
        sent_logprobs_(choices_.size()),
        sent_ids_(choices_.size()) {}

  void begin() override {
    if (!options_.stream) return;
    for (int choice = 0; choice < options_.n; ++choice) send_chunk(choice, {{"role", "assistant"}});
  }

  void reasoning(int choice, std::string_view text) override {
    FoldingEncoder::reasoning(choice, text);
    if (options_.stream) send_chunk(choice, {{"reasoning_content", text}});
  }

  void content(int choice, std::string_view text) override {
    FoldingEncoder::content(choice, text);
    if (options_.stream) send_chunk(choice, {{"content", text}});
  }

  void call_begin(int choice, std::string_view id, std::string_view name) override {
    FoldingEncoder::call_begin(choice, id, name);
    if (!options_.stream) return;
    send_call(
        choice,
        {{"id", at(choice).calls.back().id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", ""}}}});
  }

  void call_arguments(int choice, std::string_view text) override {
    FoldingEncoder::call_arguments(choice, text);
    if (options_.stream) send_call(choice, {{"function", {{"arguments", text}}}});
  }

  void finish(int choice, ReplyFinish reason, std::string_view stop_string) override {
    FoldingEncoder::finish(choice, reason, stop_string);
    if (options_.stream) send_chunk(choice, Json::object());
  }

  void end() override {
    if (!options_.stream) {
      pending_ += document();
      return;
    }
    if (options_.include_usage) {
      Json chunk = head("chat.completion.chunk");
      chunk["choices"] = Json::array();
      chunk["usage"] = chat_usage(usage_);
      send("", chunk);
    }
    pending_ += "data: [DONE]\n\n";
  }

  void fail(const ApiError& error) override {
    pending_ += options_.stream ? fmt::format("data: {}\n\n", openai_error_body(error)) : openai_error_body(error);
  }

  std::string document() const override {
    Json body = head("chat.completion");
    body["choices"] = Json::array();
    for (int i = 0; i < options_.n; ++i) {
      const ReplyChoice& state = at(i);
      Json choice = {{"index", i}, {"message", message(i)}, {"logprobs", nullptr}};
      if (options_.logprobs) choice["logprobs"] = {{"content", chat_logprobs(state.logprobs)}};
      add_finish(state, choice);
      if (options_.return_token_ids) choice["token_ids"] = state.token_ids;
      body["choices"].push_back(std::move(choice));
    }
    body["usage"] = chat_usage(usage_);
    return json_text(body);
  }

 private:
  Json head(std::string_view object) const {
    Json out = {{"id", "chatcmpl-" + identity_.id},
                {"object", object},
                {"created", identity_.created},
                {"model", options_.model}};
    if (!identity_.fingerprint.empty()) out["system_fingerprint"] = identity_.fingerprint;
    return out;
  }

  static void add_finish(const ReplyChoice& state, Json& choice) {
    choice["finish_reason"] = state.finish ? Json(finish_name(*state.finish)) : Json(nullptr);
    if (!state.stop_string.empty()) choice["stop_reason"] = state.stop_string;
  }

  void send_call(int choice, Json call) {
    Json item = {{"index", at(choice).calls.size() - 1}};
    item.update(call);
    send_chunk(choice, {{"tool_calls", Json::array({std::move(item)})}});
  }

  void send_chunk(int index, Json delta) {
    const ReplyChoice& state = at(index);
    Json choice = {{"index", index}, {"delta", std::move(delta)}, {"logprobs", nullptr}};
    auto& sent = sent_logprobs_[static_cast<std::size_t>(index)];
    if (sent < state.logprobs.size() && (choice["delta"].contains("content") || state.finish)) {
      choice["logprobs"] = {{"content", chat_logprobs({state.logprobs.begin() + static_cast<std::ptrdiff_t>(sent),
                                                       state.logprobs.end()})}};
      sent = state.logprobs.size();
    }
    auto& ids = sent_ids_[static_cast<std::size_t>(index)];
    if (options_.return_token_ids && ids < state.token_ids.size()) {
      choice["token_ids"] =
          std::vector<TokenId>(state.token_ids.begin() + static_cast<std::ptrdiff_t>(ids), state.token_ids.end());
      ids = state.token_ids.size();
    }
    add_finish(state, choice);
    if (state.finish) choice["usage"] = chat_usage(usage_);  // where Kimi's own API has it
    Json chunk = head("chat.completion.chunk");
    chunk["choices"] = Json::array({std::move(choice)});
    if (options_.continuous_usage) {
      chunk["usage"] = chat_usage(usage_);
    } else if (options_.include_usage) {
      chunk["usage"] = nullptr;
    }
    send("", chunk);
  }

  std::vector<std::size_t> sent_logprobs_;
  std::vector<std::size_t> sent_ids_;
};

}  // namespace

std::unique_ptr<ReplyEncoder> make_chat_encoder(const ChatRequest& request, ReplyIdentity identity) {
  return std::make_unique<ChatEncoder>(request, std::move(identity));
}

}  // namespace perigee::api
