#include <algorithm>
#include <ctime>

#include "server/generation.h"
#include "server/random.h"
#include "server/stop_text.h"
#include "text/parser.h"

namespace perigee::server {
namespace {

// Raw text, without roles or channels. Each prompt is one submission; with best_of > n the branches are kept until all
// of a prompt's have ended, and the n best by mean log-probability are delivered.
class CompletionGeneration final : public Generation {
 public:
  CompletionGeneration(GenerationServices& services, const HttpRequest& http, api::CompletionRequest request)
      : Generation(services, http, request, std::max(request.n, request.best_of)),
        request_(std::move(request)),
        branches_(std::max(request_.n, request_.best_of)) {
    encoder_ = api::make_encoder(request_, {random_hex(12), std::time(nullptr), {}});
  }

  std::optional<api::ApiError> submit_prompts(std::unique_ptr<TokenConstraint> constraint) {
    const Tokenizer& tokenizer = services_.model.tokenizer;
    for (const api::CompletionRequest::Prompt& prompt : request_.prompts) {
      std::vector<TokenId> ids = prompt.is_ids            ? prompt.ids
                                 : request_.parse_special ? tokenizer.encode_with_specials(prompt.text)
                                                          : tokenizer.encode(prompt.text);
      // An empty prompt has nothing to compute logits from.
      if (ids.empty()) ids.push_back(tokenizer.special(Special::kBos));
      usage_.prompt_tokens += static_cast<std::int64_t>(ids.size());
      echoes_.push_back(!request_.echo  ? std::string()
                        : prompt.is_ids ? tokenizer.decode(ids, SpecialText::kKeep)
                                        : prompt.text);
      for (std::int32_t branch = 0; branch < branches_; ++branch) {
        slots_.push_back({StreamDecoder(tokenizer, SpecialText::kDrop),
                          StopText(request_.stop, request_.include_stop_str_in_output)});
      }
      GenerationRequest engine_request;
      engine_request.prompt = std::move(ids);
      if (constraint) engine_request.constraint = constraint->clone();
      if (const auto error = submit(std::move(engine_request), "prompt")) return error;
    }
    return std::nullopt;
  }

 private:
  struct Slot {
    StreamDecoder decoder;
    StopText stop_text;
    std::string text{};  // kept back, where the best are still to be chosen
    std::vector<api::TokenLogprobs> logprobs{};
    std::vector<TokenId> ids{};
    double logprob_sum = 0;
    std::int64_t tokens = 0;
    bool started = false;
    bool ended = false;
    api::ReplyFinish finish = api::ReplyFinish::kStop;
  };

  bool choosing() const { return branches_ > request_.n; }

  api::ReplyEncoder& encoder() override { return *encoder_; }

  void on_event(std::int32_t index, const TokenEvent& event) override {
    Slot& slot = slots_[static_cast<std::size_t>(index)];
    encoder_->set_usage(usage_);
    if (!slot.started) {
      slot.started = true;
      const std::string& echo = echoes_[static_cast<std::size_t>(index / branches_)];
      if (!echo.empty()) deliver_text(index, slot, echo);
    }
    if (event.id >= 0 && event.finish != FinishReason::kStop) {
      slot.logprob_sum += event.logprob;
      ++slot.tokens;
      if (request_.return_token_ids) deliver_ids(index, slot, event.id);
      if (request_.logprobs) deliver_logprobs(index, slot, event);
      deliver_text(index, slot, slot.stop_text.push(slot.decoder.push(event.id)));
    }
    if (slot.stop_text.matched()) {
      end(index, slot, api::ReplyFinish::kStop);
      stop(index);
    } else if (event.finish != FinishReason::kNone) {
      deliver_text(index, slot, slot.stop_text.push(slot.decoder.finish()));
      deliver_text(index, slot, slot.stop_text.finish());
      end(index, slot, event.finish == FinishReason::kLength ? api::ReplyFinish::kLength : api::ReplyFinish::kStop);
    }
  }

  void deliver_text(std::int32_t index, Slot& slot, std::string_view text) {
    if (text.empty()) return;
    if (choosing()) {
      slot.text += text;
    } else {
      encoder_->content(index, text);
    }
  }

  void deliver_ids(std::int32_t index, Slot& slot, TokenId id) {
    if (choosing()) {
      slot.ids.push_back(id);
    } else {
      encoder_->token_ids(index, {id});
    }
  }

  void deliver_logprobs(std::int32_t index, Slot& slot, const TokenEvent& event) {
    const auto text = [this](TokenId id, float logprob) {
      return api::TokenText{id, logprob, std::string(services_.model.tokenizer.bytes(id))};
    };
    api::TokenLogprobs logprobs{text(event.id, event.logprob), {}};
    for (const TokenLogprob& other : event.top) logprobs.top.push_back(text(other.id, other.logprob));
    if (choosing()) {
      slot.logprobs.push_back(std::move(logprobs));
    } else {
      encoder_->logprobs(index, {std::move(logprobs)});
    }
  }

  void end(std::int32_t index, Slot& slot, api::ReplyFinish finish) {
    slot.ended = true;
    slot.finish = finish;
    if (outcome_.empty()) outcome_ = finish == api::ReplyFinish::kLength ? "length" : "stop";
    if (!choosing()) return encoder_->finish(index, finish, slot.stop_text.match());
    const std::int32_t prompt = index / branches_;
    std::vector<Slot*> order;
    for (std::int32_t branch = 0; branch < branches_; ++branch) {
      order.push_back(&slots_[static_cast<std::size_t>(prompt * branches_ + branch)]);
    }
    if (std::all_of(order.begin(), order.end(), [](const Slot* other) { return other->ended; })) choose(prompt, order);
  }

  void choose(std::int32_t prompt, std::vector<Slot*>& order) {
    const auto mean = [](const Slot& slot) {
      return slot.logprob_sum / static_cast<double>(std::max<std::int64_t>(1, slot.tokens));
    };
    std::stable_sort(order.begin(), order.end(), [&](const Slot* a, const Slot* b) { return mean(*a) > mean(*b); });
    for (std::int32_t rank = 0; rank < request_.n; ++rank) {
      Slot& slot = *order[static_cast<std::size_t>(rank)];
      const std::int32_t choice = prompt * request_.n + rank;
      if (!slot.ids.empty()) encoder_->token_ids(choice, slot.ids);
      if (!slot.logprobs.empty()) encoder_->logprobs(choice, std::move(slot.logprobs));
      if (!slot.text.empty()) encoder_->content(choice, slot.text);
      encoder_->finish(choice, slot.finish, slot.stop_text.match());
    }
  }

  void on_complete() override { encoder_->end(); }

  const api::CompletionRequest request_;
  const std::int32_t branches_;
  std::unique_ptr<api::ReplyEncoder> encoder_;
  std::vector<std::string> echoes_;  // by prompt
  std::vector<Slot> slots_;
};

}  // namespace

HttpResponse generate_completion(GenerationServices& services, const HttpRequest& http,
                                 api::CompletionRequest request) {
  const bool stream = request.stream;
  auto constraint = compile_constraint(services, api::grammar_rules(request));
  if (!constraint.ok()) return error_response(constraint.error(), http);
  auto generation = std::make_shared<CompletionGeneration>(services, http, std::move(request));
  if (const auto error = generation->submit_prompts(std::move(*constraint))) return error_response(*error, http);
  HttpResponse response;
  response.pending = generation;
  if (stream) {
    response.stream = true;
    response.content_type = "text/event-stream";
    response.headers.emplace_back("Cache-Control", "no-cache");
    response.headers.emplace_back("X-Accel-Buffering", "no");
    response.heartbeat = api::keep_alive(api::ApiKind::kCompletions);
  }
  return response;
}

}  // namespace perigee::server
