#include <fmt/ranges.h>

#include <iterator>
#include <nlohmann/json.hpp>
#include <span>

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
    chunk_head_ = json_text(head("chat.completion.chunk"));
    chunk_head_.pop_back();  // stays open
    for (int choice = 0; choice < options_.n; ++choice) send_chunk(choice, R"("role":"assistant")");
  }

  void reasoning(int choice, std::string_view text) override {
    FoldingEncoder::reasoning(choice, text);
    if (options_.stream) send_chunk(choice, json_member_text("reasoning_content", text));
  }

  void content(int choice, std::string_view text) override {
    FoldingEncoder::content(choice, text);
    if (options_.stream) send_chunk(choice, json_member_text("content", text), /*content=*/true);
  }

  void call_begin(int choice, std::string_view id, std::string_view name) override {
    FoldingEncoder::call_begin(choice, id, name);
    if (!options_.stream) return;
    send_call(choice, fmt::format(R"({},"type":"function","function":{{{},"arguments":""}})",
                                  json_member_text("id", at(choice).calls.back().id), json_member_text("name", name)));
  }

  void call_arguments(int choice, std::string_view text) override {
    FoldingEncoder::call_arguments(choice, text);
    if (options_.stream) {
      send_call(choice, fmt::format(R"("function":{{{}}})", json_member_text("arguments", text)));
    }
  }

  void finish(int choice, ReplyFinish reason, std::string_view stop_string) override {
    FoldingEncoder::finish(choice, reason, stop_string);
    if (options_.stream) send_chunk(choice, "");
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

  void send_call(int choice, std::string_view members) {
    send_chunk(choice, fmt::format(R"("tool_calls":[{{"index":{},{}}}])", at(choice).calls.size() - 1, members));
  }

  // The members of a delta as JSON text. Written without a JSON document in between: this runs for every token.
  void send_chunk(int index, std::string_view delta, bool content = false) {
    const ReplyChoice& state = at(index);
    const auto append = std::back_inserter(pending_);
    fmt::format_to(append, R"(data: {},"choices":[{{"index":{},"delta":{{{}}},"logprobs":)", chunk_head_, index, delta);
    auto& sent = sent_logprobs_[static_cast<std::size_t>(index)];
    if (sent < state.logprobs.size() && (content || state.finish)) {
      const Json logprobs =
          chat_logprobs({state.logprobs.begin() + static_cast<std::ptrdiff_t>(sent), state.logprobs.end()});
      fmt::format_to(append, R"({{"content":{}}})", json_text(logprobs));
      sent = state.logprobs.size();
    } else {
      pending_ += "null";
    }
    auto& ids = sent_ids_[static_cast<std::size_t>(index)];
    if (options_.return_token_ids && ids < state.token_ids.size()) {
      const std::span fresh = std::span(state.token_ids).subspan(ids);
      fmt::format_to(append, R"(,"token_ids":[{}])", fmt::join(fresh, ","));
      ids = state.token_ids.size();
    }
    if (!state.finish) {
      pending_ += R"(,"finish_reason":null)";
    } else {
      fmt::format_to(append, R"(,"finish_reason":"{}")", finish_name(*state.finish));
      if (!state.stop_string.empty()) pending_ += "," + json_member_text("stop_reason", state.stop_string);
      // Where Kimi's own API has it.
      fmt::format_to(append, R"(,"usage":{})", json_text(chat_usage(usage_)));
    }
    pending_ += "}]";
    if (options_.continuous_usage) {
      fmt::format_to(append, R"(,"usage":{})", json_text(chat_usage(usage_)));
    } else if (options_.include_usage) {
      pending_ += R"(,"usage":null)";
    }
    pending_ += "}\n\n";
  }

  std::string chunk_head_;  // of every chunk: id, object, created and model, without the closing brace
  std::vector<std::size_t> sent_logprobs_;
  std::vector<std::size_t> sent_ids_;
};

}  // namespace

std::unique_ptr<ReplyEncoder> make_chat_encoder(const ChatRequest& request, ReplyIdentity identity) {
  return std::make_unique<ChatEncoder>(request, std::move(identity));
}

}  // namespace perigee::api
