#include "text/parser.h"

#include <utility>

#include "text/answer_sink.h"

namespace perigee {

void AnswerFold::add(const AnswerEvent& event) {
  using Kind = AnswerEvent::Kind;
  switch (event.kind) {
    case Kind::kReasoning:
      reasoning_ += event.text;
      break;
    case Kind::kContent:
      if (event.was_reasoning) reasoning_.clear();
      content_ += event.text;
      break;
    case Kind::kCallBegin:
      calls_.push_back({event.id, event.text, ""});
      complete_.push_back(false);
      break;
    case Kind::kCallArguments:
      calls_.back().arguments += event.text;
      break;
    case Kind::kCallEnd:
      complete_.back() = true;
      break;
    case Kind::kFinish:
      finish_ = event;
      break;
  }
}

Answer AnswerFold::take() {
  Answer answer;
  for (std::size_t i = 0; i < calls_.size(); ++i) {
    if (complete_[i]) answer.tool_calls.push_back(std::move(calls_[i]));
  }
  if (!reasoning_.empty()) answer.reasoning = std::move(reasoning_);
  if (!content_.empty() || (finish_.content_opened && answer.tool_calls.empty())) answer.content = std::move(content_);
  answer.finish = finish_.finish;
  answer.stop_string = finish_.stop_string;
  return answer;
}

std::unique_ptr<AnswerParser> make_answer_parser(const Dialect& dialect, const Tokenizer& tokenizer,
                                                 const ParserOptions& options) {
  return dialect.format == PromptFormat::kXtml ? make_xtml_parser(tokenizer, options)
                                               : make_im_parser(tokenizer, options);
}

std::vector<TokenId> stop_ids(const Tokenizer& tokenizer) {
  return {tokenizer.special(Special::kEndOfMessage), tokenizer.special(Special::kEos),
          tokenizer.special(Special::kEndOfTurn)};
}

}  // namespace perigee
