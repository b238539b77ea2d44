#include <nlohmann/json.hpp>

#include <algorithm>
#include <ctime>

#include "server/generation.h"
#include "server/random.h"
#include "text/parser.h"
#include "text/thinking.h"

namespace perigee::server {
namespace {

const Json* member(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

class ChatGeneration final : public Generation {
 public:
  ChatGeneration(GenerationServices& services, const HttpRequest& http, api::ChatRequest request,
                 const Rendered& prompt)
      : Generation(services, http, request, request.n), request_(std::move(request)), start_(prompt.start) {
    identity_.id = random_hex(12);
    identity_.created = std::time(nullptr);
    encoder_ = api::make_encoder(request_, identity_);
    if (request_.kind == api::ApiKind::kResponses) services_.running.add(tenant_, response_id(), queue());
    usage_.prompt_tokens = prompt.prompt_tokens;
    ParserOptions parser;
    parser.start = start_;
    parser.drop_calls = request_.tool_choice.kind == api::ToolChoiceKind::kNone || request_.tools->empty();
    parser.tools = request_.tools.get();
    parser.stop = request_.stop;
    parser.include_stop = request_.include_stop_str_in_output;
    for (int choice = 0; choice < request_.n; ++choice) {
      std::string first = api::call_id(identity_, choice, 0);
      parser.call_id_prefix = first.substr(0, first.size() - 1);
      choices_.push_back({make_answer_parser(*services.model.dialect, services.model.tokenizer, parser), {}, {}});
    }
  }

  ~ChatGeneration() override {
    if (request_.kind == api::ApiKind::kResponses) services_.running.remove(tenant_, response_id());
  }

  std::optional<api::ApiError> submit_prompt(const Rendered& prompt, std::unique_ptr<TokenConstraint> constraint) {
    GenerationRequest engine_request;
    engine_request.prompt = expand_images(prompt);
    engine_request.system_tokens = prompt.system_tokens;
    engine_request.constraint = std::move(constraint);
    return submit(std::move(engine_request), request_.kind == api::ApiKind::kResponses ? "input" : "messages");
  }

 private:
  struct Choice {
    std::unique_ptr<AnswerParser> parser;
    AnswerFold fold;
    std::vector<TokenId> ids;
  };

  std::string response_id() const { return "resp_" + identity_.id; }

  api::ReplyEncoder& encoder() override { return *encoder_; }

  void on_event(std::int32_t slot, const TokenEvent& event) override {
    Choice& choice = choices_[static_cast<std::size_t>(slot)];
    if (event.id >= 0 && !is_requested_stop(event)) {
      events_.clear();
      choice.parser->push(event.id, events_);
      choice.ids.push_back(event.id);
      const AnswerPart part = choice.parser->last_part();
      if (part == AnswerPart::kReasoning) ++usage_.reasoning_tokens;
      if (request_.logprobs && part == AnswerPart::kContent) encoder_->logprobs(slot, {token_logprobs(event)});
      if (request_.return_token_ids) encoder_->token_ids(slot, {event.id});
      deliver(slot, choice);
    }
    if (event.finish != FinishReason::kNone) {
      finish(slot, choice, event.finish == FinishReason::kLength);
    } else if (choice.parser->done() && !request_.ignore_eos) {
      finish(slot, choice, false);
      stop(slot);
    }
  }

  // A stop id that the client named is no part of the answer.
  bool is_requested_stop(const TokenEvent& event) const {
    const auto& ids = request_.stop_token_ids;
    return event.finish == FinishReason::kStop && std::find(ids.begin(), ids.end(), event.id) != ids.end();
  }

  void finish(std::int32_t slot, Choice& choice, bool length) {
    events_.clear();
    choice.parser->finish(length, events_);
    deliver(slot, choice);
  }

  void deliver(std::int32_t slot, Choice& choice) {
    encoder_->set_usage(usage_);
    for (const AnswerEvent& event : events_) {
      choice.fold.add(event);
      switch (event.kind) {
        case AnswerEvent::Kind::kReasoning:
          if (request_.include_reasoning) encoder_->reasoning(slot, event.text);
          break;
        case AnswerEvent::Kind::kContent:
          if (event.was_reasoning) encoder_->reasoning_was_content(slot);
          encoder_->content(slot, event.text);
          break;
        case AnswerEvent::Kind::kCallBegin:
          encoder_->call_begin(slot, event.id, event.text);
          break;
        case AnswerEvent::Kind::kCallArguments:
          encoder_->call_arguments(slot, event.text);
          break;
        case AnswerEvent::Kind::kCallEnd:
          encoder_->call_end(slot);
          break;
        case AnswerEvent::Kind::kFinish:
          finish_choice(slot, choice, event);
          break;
      }
    }
  }

  void finish_choice(std::int32_t slot, Choice& choice, const AnswerEvent& event) {
    auto reason = api::ReplyFinish::kStop;
    std::string_view name = "stop";
    if (cancelled_) {
      reason = api::ReplyFinish::kCancelled;
    } else if (event.finish == AnswerFinish::kLength) {
      reason = api::ReplyFinish::kLength;
      name = "length";
    } else if (event.finish == AnswerFinish::kToolCalls) {
      reason = api::ReplyFinish::kToolCalls;
      name = "tool_calls";
    }
    if (outcome_.empty()) outcome_ = name;
    encoder_->finish(slot, reason, event.stop_string);
    // Only an answer that ended by itself can come back as a whole message of the history.
    if (!request_.partial && event.finish != AnswerFinish::kLength && event.stop_string.empty()) {
      services_.answers.remember(tenant_, services_.model.tokenizer, start_, choice.ids, choice.fold.take());
    }
  }

  void on_cancelled() override {
    cancelled_ = true;
    finish(0, choices_.front(), /*length=*/true);
    on_complete();
  }

  void on_complete() override {
    encoder_->end();
    if (request_.kind != api::ApiKind::kResponses || !request_.store) return;
    Json messages = request_.history ? *request_.history : Json::array();
    messages.push_back(encoder_->message(0));
    services_.responses.put(tenant_, response_id(), std::move(messages), encoder_->document());
  }

  api::TokenText token_text(TokenId id, float logprob) const {
    return {id, logprob, std::string(services_.model.tokenizer.bytes(id))};
  }

  api::TokenLogprobs token_logprobs(const TokenEvent& event) const {
    api::TokenLogprobs logprobs{token_text(event.id, event.logprob), {}};
    for (const TokenLogprob& other : event.top) logprobs.top.push_back(token_text(other.id, other.logprob));
    return logprobs;
  }

  const api::ChatRequest request_;
  const Channel start_;
  api::ReplyIdentity identity_;
  std::unique_ptr<api::ReplyEncoder> encoder_;
  std::vector<Choice> choices_;
  std::vector<AnswerEvent> events_;
  bool cancelled_ = false;
};

}  // namespace

api::ApiResult<Rendered> render_chat(const GenerationServices& services, const api::ChatRequest& request,
                                     const std::string& tenant) {
  if (!request.images.empty()) {
    return api::bad_field(request.images.front().param, "this server's model takes no images");
  }
  const Json& arguments = *request.render;
  RenderRequest render_request;
  render_request.messages = member(arguments, "messages");
  render_request.tools = member(arguments, "tools");
  render_request.tool_choice = member(arguments, "tool_choice");
  render_request.response_format = member(arguments, "response_format");
  render_request.thinking = arguments.value("thinking", true);
  render_request.effort = arguments.value("thinking_effort", std::string());
  render_request.add_generation_prompt = arguments.value("add_generation_prompt", true);
  render_request.answers = &services.answers;
  render_request.tenant = tenant;
  auto rendered = render(*services.model.dialect, services.model.tokenizer, render_request);
  if (!rendered.ok()) return api::from_field_status(rendered.status());
  return std::move(*rendered);
}

HttpResponse generate_chat(GenerationServices& services, const HttpRequest& http, api::ChatRequest request) {
  const std::string tenant = http.tenant;
  auto rendered = render_chat(services, request, tenant);
  if (!rendered.ok()) return error_response(rendered.error(), http);
  auto constraint = compile_constraint(services, api::grammar_rules(request, rendered->start));
  if (!constraint.ok()) return error_response(constraint.error(), http);
  if (request.thinking && request.thinking_token_budget) {
    *constraint = limit_thinking(*services.model.dialect, services.model.tokenizer, rendered->start,
                                 *request.thinking_token_budget, std::move(*constraint));
  }
  const bool stream = request.stream;
  const api::ApiKind kind = request.kind;
  auto generation = std::make_shared<ChatGeneration>(services, http, std::move(request), *rendered);
  if (const auto error = generation->submit_prompt(*rendered, std::move(*constraint)))
    return error_response(*error, http);
  HttpResponse response;
  response.pending = generation;
  if (stream) {
    response.stream = true;
    response.content_type = "text/event-stream";
    response.headers.emplace_back("Cache-Control", "no-cache");
    response.headers.emplace_back("X-Accel-Buffering", "no");
    response.heartbeat = api::keep_alive(kind);
  }
  return response;
}

}  // namespace perigee::server
