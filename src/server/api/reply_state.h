// What all encoders fold and how they write events. Internal to server/api.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "server/api/reply.h"

namespace perigee::api {

struct ReplyCall {
  std::string id;
  std::string name;
  std::string arguments;
  bool complete = false;
};

struct ReplyChoice {
  std::string reasoning;
  std::string content;
  bool has_content = false;  // some text was content, or the choice ended without a call
  std::vector<ReplyCall> calls;
  std::vector<TokenLogprobs> logprobs;
  std::vector<TokenId> token_ids;
  std::optional<ReplyFinish> finish;
  std::string stop_string;
};

class FoldingEncoder : public ReplyEncoder {
 public:
  FoldingEncoder(const GenerationOptions& options, ReplyIdentity identity, std::size_t choices);
  ~FoldingEncoder() override;

  void reasoning(int choice, std::string_view text) override;
  void reasoning_was_content(int choice) override;
  void content(int choice, std::string_view text) override;
  void call_begin(int choice, std::string_view id, std::string_view name) override;
  void call_arguments(int choice, std::string_view text) override;
  void call_end(int choice) override;
  void logprobs(int choice, std::vector<TokenLogprobs> tokens) override;
  void token_ids(int choice, const std::vector<TokenId>& ids) override;
  void finish(int choice, ReplyFinish reason, std::string_view stop_string) override;
  Json message(int choice) const override;

 protected:
  ReplyChoice& at(int choice) { return choices_[static_cast<std::size_t>(choice)]; }
  const ReplyChoice& at(int choice) const { return choices_[static_cast<std::size_t>(choice)]; }

  // "data: JSON", with an event line where `event` is not empty.
  void send(std::string_view event, const Json& data);

  const GenerationOptions options_;
  const ReplyIdentity identity_;
  std::vector<ReplyChoice> choices_;
};

// Compact text; invalid UTF-8 (which no caller should send) is replaced.
std::string json_text(const Json& value);
// "key":"text" of valid UTF-8.
std::string json_member_text(std::string_view key, std::string_view text);
std::string_view finish_name(ReplyFinish finish);
Json chat_usage(const ReplyUsage& usage);
// [{"token","logprob","bytes","top_logprobs"}]
Json chat_logprobs(const std::vector<TokenLogprobs>& tokens);

std::unique_ptr<ReplyEncoder> make_chat_encoder(const ChatRequest& request, ReplyIdentity identity);
std::unique_ptr<ReplyEncoder> make_responses_encoder(const ChatRequest& request, ReplyIdentity identity);
std::unique_ptr<ReplyEncoder> make_messages_encoder(const ChatRequest& request, ReplyIdentity identity);

}  // namespace perigee::api
