// OpenAI Responses (spec chat.md 5.5): items with their parts, every event numbered.
#include <iterator>
#include <nlohmann/json.hpp>

#include "server/api/reply_state.h"

namespace perigee::api {
namespace {

enum class Item : std::uint8_t { kNone, kReasoning, kMessage, kCall };

class ResponsesEncoder final : public FoldingEncoder {
 public:
  ResponsesEncoder(const ChatRequest& request, ReplyIdentity identity)
      : FoldingEncoder(request, std::move(identity), 1), echo_(request.echo) {}

  void begin() override {
    if (!options_.stream) return;
    event("response.created", {{"response", response("in_progress")}});
    event("response.in_progress", {{"response", response("in_progress")}});
  }

  void reasoning(int choice, std::string_view text) override {
    FoldingEncoder::reasoning(choice, text);
    open(Item::kReasoning);
    text_ += text;
    if (options_.stream) {
      delta("response.reasoning_summary_text.delta", R"("summary_index":0,)", text, "");
    }
  }

  void reasoning_was_content(int choice) override {
    FoldingEncoder::reasoning_was_content(choice);
    // A stream has sent the item already; a document has not.
    if (!options_.stream && item_ == Item::kReasoning) item_ = Item::kNone;
  }

  void content(int choice, std::string_view text) override {
    FoldingEncoder::content(choice, text);
    open(Item::kMessage);
    text_ += text;
    if (!options_.stream) return;
    const std::size_t known = at(0).logprobs.size();
    const std::string logprobs = sent_logprobs_ == known ? "[]" : json_text(logprobs_from(sent_logprobs_));
    sent_logprobs_ = known;
    delta("response.output_text.delta", R"("content_index":0,)", text, R"(,"logprobs":)" + logprobs);
  }

  void call_begin(int choice, std::string_view id, std::string_view name) override {
    FoldingEncoder::call_begin(choice, id, name);
    close(true);
    open(Item::kCall);
  }

  void call_arguments(int choice, std::string_view text) override {
    FoldingEncoder::call_arguments(choice, text);
    if (options_.stream) delta("response.function_call_arguments.delta", "", text, "");
  }

  void call_end(int choice) override {
    FoldingEncoder::call_end(choice);
    close(true);
  }

  void finish(int choice, ReplyFinish reason, std::string_view stop_string) override {
    FoldingEncoder::finish(choice, reason, stop_string);
    close(reason != ReplyFinish::kLength && reason != ReplyFinish::kCancelled);
  }

  void end() override {
    if (!options_.stream) {
      pending_ += document();
      return;
    }
    const std::string status = final_status();
    // There is no event of its own for an answer that was cancelled.
    event(status == "cancelled" ? "response.incomplete" : "response." + status, {{"response", response(status)}});
  }

  void fail(const ApiError& error) override {
    if (!options_.stream) {
      pending_ += openai_error_body(error);
      return;
    }
    Json body = response("failed");
    body["error"] = {{"code", error.code.empty() ? "server_error" : error.code}, {"message", error.message}};
    event("response.failed", {{"response", std::move(body)}});
  }

  std::string document() const override { return json_text(response(final_status())); }

 private:
  std::string final_status() const {
    if (at(0).finish == ReplyFinish::kCancelled) return "cancelled";
    return at(0).finish == ReplyFinish::kLength ? "incomplete" : "completed";
  }

  Json logprobs_from(std::size_t first) const {
    const auto& all = at(0).logprobs;
    return chat_logprobs({all.begin() + static_cast<std::ptrdiff_t>(first), all.end()});
  }

  Json response(const std::string& status) const {
    Json out = {{"id", "resp_" + identity_.id},
                {"object", "response"},
                {"created_at", identity_.created},
                {"status", status},
                {"error", nullptr},
                {"incomplete_details", nullptr},
                {"model", options_.model},
                {"output", output_}};
    if (status == "incomplete") out["incomplete_details"] = {{"reason", "max_output_tokens"}};
    if (echo_ != nullptr) out.update(*echo_);
    if (status == "in_progress") {
      out["usage"] = nullptr;
    } else {
      out["usage"] = {{"input_tokens", usage_.prompt_tokens},
                      {"input_tokens_details", {{"cached_tokens", usage_.cached_tokens}}},
                      {"output_tokens", usage_.completion_tokens},
                      {"output_tokens_details", {{"reasoning_tokens", usage_.reasoning_tokens}}},
                      {"total_tokens", usage_.prompt_tokens + usage_.completion_tokens}};
    }
    return out;
  }

  void event(std::string_view type, const Json& members) {
    Json data = {{"type", type}, {"sequence_number", sequence_++}};
    data.update(members);
    send(type, data);
  }

  // Written without a JSON document in between: this runs for every token.
  void delta(std::string_view type, std::string_view before, std::string_view text, std::string_view after) {
    fmt::format_to(
        std::back_inserter(pending_),
        "event: {0}\ndata: {{\"type\":\"{0}\",\"sequence_number\":{1},\"item_id\":\"{2}\",\"output_index\":{3},"
        "{4}{5}{6}}}\n\n",
        type, sequence_++, item_id(), output_.size(), before, json_member_text("delta", text), after);
  }

  std::string item_id() const {
    const std::string_view prefix = item_ == Item::kReasoning ? "rs" : item_ == Item::kMessage ? "msg" : "fc";
    return fmt::format("{}_{}_{}", prefix, identity_.id, output_.size());
  }

  Json text_part() const {
    Json part = {{"type", "output_text"}, {"text", text_}, {"annotations", Json::array()}};
    if (options_.logprobs) part["logprobs"] = logprobs_from(item_logprobs_);
    return part;
  }
  Json summary_part() const { return {{"type", "summary_text"}, {"text", text_}}; }

  Json item_object(const std::string& status) const {
    if (item_ == Item::kReasoning) {
      Json summary = status == "in_progress" ? Json::array() : Json::array({summary_part()});
      return {{"id", item_id()}, {"type", "reasoning"}, {"summary", std::move(summary)}};
    }
    if (item_ == Item::kMessage) {
      Json content = status == "in_progress" ? Json::array() : Json::array({text_part()});
      return {{"id", item_id()},
              {"type", "message"},
              {"status", status},
              {"role", "assistant"},
              {"content", std::move(content)}};
    }
    const ReplyCall& call = at(0).calls.back();
    return {{"id", item_id()},    {"type", "function_call"}, {"status", status},
            {"call_id", call.id}, {"name", call.name},       {"arguments", call.arguments}};
  }

  void open(Item item) {
    if (item_ == item) return;
    close(true);
    item_ = item;
    text_.clear();
    item_logprobs_ = sent_logprobs_;
    if (!options_.stream) return;
    event("response.output_item.added", {{"output_index", output_.size()}, {"item", item_object("in_progress")}});
    if (item_ == Item::kReasoning) {
      event("response.reasoning_summary_part.added",
            {{"item_id", item_id()}, {"output_index", output_.size()}, {"summary_index", 0}, {"part", summary_part()}});
    } else if (item_ == Item::kMessage) {
      event("response.content_part.added",
            {{"item_id", item_id()}, {"output_index", output_.size()}, {"content_index", 0}, {"part", text_part()}});
    }
  }

  void close(bool complete) {
    if (item_ == Item::kNone) return;
    if (options_.stream) send_done();
    Json item = item_object(complete ? "completed" : "incomplete");
    if (options_.stream) {
      event("response.output_item.done", {{"output_index", output_.size()}, {"item", item}});
    }
    // A call that the budget cut may stand in a stream, not in a document.
    if (complete || item_ != Item::kCall || options_.stream) output_.push_back(std::move(item));
    item_ = Item::kNone;
  }

  void send_done() {
    const Json where = {{"item_id", item_id()}, {"output_index", output_.size()}};
    const auto with = [&](const Json& members) {
      Json out = where;
      out.update(members);
      return out;
    };
    if (item_ == Item::kReasoning) {
      event("response.reasoning_summary_text.done", with({{"summary_index", 0}, {"text", text_}}));
      event("response.reasoning_summary_part.done", with({{"summary_index", 0}, {"part", summary_part()}}));
    } else if (item_ == Item::kMessage) {
      event("response.output_text.done",
            with({{"content_index", 0}, {"text", text_}, {"logprobs", logprobs_from(item_logprobs_)}}));
      event("response.content_part.done", with({{"content_index", 0}, {"part", text_part()}}));
    } else {
      const ReplyCall& call = at(0).calls.back();
      event("response.function_call_arguments.done", with({{"name", call.name}, {"arguments", call.arguments}}));
    }
  }

  std::shared_ptr<const Json> echo_;
  Json output_ = Json::array();
  Item item_ = Item::kNone;
  std::string text_;               // of the open reasoning or message item
  std::size_t item_logprobs_ = 0;  // where those of the open item begin
  std::size_t sent_logprobs_ = 0;
  std::int64_t sequence_ = 0;
};

}  // namespace

std::unique_ptr<ReplyEncoder> make_responses_encoder(const ChatRequest& request, ReplyIdentity identity) {
  return std::make_unique<ResponsesEncoder>(request, std::move(identity));
}

}  // namespace perigee::api
