#include <nlohmann/json.hpp>

#include "server/api/reply_state.h"
#include "text/utf8.h"

namespace perigee::api {
namespace {

class CompletionsEncoder final : public FoldingEncoder {
 public:
  CompletionsEncoder(const CompletionRequest& request, ReplyIdentity identity)
      : FoldingEncoder(request, std::move(identity), request.prompts.size() * static_cast<std::size_t>(request.n)),
        sent_logprobs_(choices_.size()),
        offsets_(choices_.size()) {}

  void begin() override {}

  void content(int choice, std::string_view text) override {
    FoldingEncoder::content(choice, text);
    if (options_.stream) send_chunk(choice, text);
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
      Json chunk = head();
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
    Json body = head();
    body["choices"] = Json::array();
    for (std::size_t i = 0; i < choices_.size(); ++i) {
      std::size_t offset = 0;
      body["choices"].push_back(choice_object(static_cast<int>(i), choices_[i].content, 0, offset));
    }
    body["usage"] = chat_usage(usage_);
    return json_text(body);
  }

 private:
  Json head() const {
    return {{"id", "cmpl-" + identity_.id},
            {"object", "text_completion"},
            {"created", identity_.created},
            {"model", options_.model}};
  }

  // Log-probabilities from `first` on, in the form of Completions; `offset` counts characters of the text.
  Json choice_object(int index, std::string_view text, std::size_t first, std::size_t& offset) const {
    const ReplyChoice& state = at(index);
    Json choice = {{"index", index}, {"text", text}, {"logprobs", nullptr}};
    if (options_.logprobs) {
      Json tokens = Json::array();
      Json values = Json::array();
      Json tops = Json::array();
      Json offsets = Json::array();
      for (std::size_t i = first; i < state.logprobs.size(); ++i) {
        const TokenLogprobs& entry = state.logprobs[i];
        const std::string spelling = valid_utf8(entry.token.bytes);
        tokens.push_back(spelling);
        values.push_back(entry.token.logprob);
        Json top = Json::object();
        for (const TokenText& other : entry.top) top[valid_utf8(other.bytes)] = other.logprob;
        tops.push_back(std::move(top));
        offsets.push_back(offset);
        for (const char c : spelling) offset += (static_cast<unsigned char>(c) & 0xC0U) != 0x80U ? 1 : 0;
      }
      choice["logprobs"] = {{"tokens", std::move(tokens)},
                            {"token_logprobs", std::move(values)},
                            {"top_logprobs", std::move(tops)},
                            {"text_offset", std::move(offsets)}};
    }
    choice["finish_reason"] = state.finish ? Json(finish_name(*state.finish)) : Json(nullptr);
    if (!state.stop_string.empty()) choice["stop_reason"] = state.stop_string;
    if (options_.return_token_ids && state.finish) choice["token_ids"] = state.token_ids;
    return choice;
  }

  void send_chunk(int index, std::string_view text) {
    auto& sent = sent_logprobs_[static_cast<std::size_t>(index)];
    Json chunk = head();
    chunk["choices"] = Json::array({choice_object(index, text, sent, offsets_[static_cast<std::size_t>(index)])});
    sent = at(index).logprobs.size();
    if (options_.continuous_usage) {
      chunk["usage"] = chat_usage(usage_);
    } else if (options_.include_usage) {
      chunk["usage"] = nullptr;
    }
    send("", chunk);
  }

  std::vector<std::size_t> sent_logprobs_;
  std::vector<std::size_t> offsets_;
};

}  // namespace

std::unique_ptr<ReplyEncoder> make_encoder(const CompletionRequest& request, ReplyIdentity identity) {
  return std::make_unique<CompletionsEncoder>(request, std::move(identity));
}

}  // namespace perigee::api
