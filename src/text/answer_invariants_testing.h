// What must hold for the answer to any sequence of ids, however wild; used by the property test and the fuzzer.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "text/parser.h"
#include "text/python_json.h"
#include "text/utf8.h"

namespace perigee {

// Parses `ids` in steps of `step` and says what is wrong, or nothing. `arguments_are_json`: the ids hold no json
// element.
inline std::string broken_invariant(const Dialect& dialect, const Tokenizer& tokenizer, const ParserOptions& options,
                                    std::span<const TokenId> ids, std::size_t step, bool length,
                                    bool arguments_are_json) {
  using Kind = AnswerEvent::Kind;
  const auto parser = make_answer_parser(dialect, tokenizer, options);
  AnswerFold fold;
  std::string reasoning;  // since it was last repeated as content: what came before was the reply
  std::string content;
  std::vector<ToolCall> calls;
  std::vector<bool> ended;
  std::string spelled;  // everything that the ordinary ids spell
  bool finished = false;
  std::string wrong;
  std::vector<AnswerEvent> events;
  const auto check = [&](bool ok, const char* what) {
    if (!ok && wrong.empty()) wrong = what;
  };
  const auto drain = [&] {
    for (const AnswerEvent& event : events) {
      check(!finished, "an event after the end");
      check(valid_utf8(event.text) == event.text, "text that is not UTF-8");
      fold.add(event);
      if (event.kind == Kind::kFinish) {
        finished = true;
      } else if (event.kind == Kind::kCallBegin) {
        check(event.call == static_cast<std::int32_t>(calls.size()), "a call's index is out of order");
        check(!event.text.empty() && !event.id.empty(), "a call without name or id");
        calls.push_back({event.id, event.text, ""});
        ended.push_back(false);
      } else if (event.kind == Kind::kCallEnd) {
        check(!ended.empty() && !ended.back(), "the end of no call");
        if (!ended.empty()) ended.back() = true;
      } else {
        check(!event.text.empty(), "an empty delta");
        if (event.kind == Kind::kReasoning) reasoning += event.text;
        if (event.kind == Kind::kContent) content += event.text;
        if (event.was_reasoning) reasoning.clear();
        if (event.kind == Kind::kCallArguments) {
          check(!calls.empty() && !ended.back(), "arguments of no call");
          if (!calls.empty()) calls.back().arguments += event.text;
        }
      }
    }
    events.clear();
  };
  for (std::size_t i = 0; i < ids.size(); ++i) {
    parser->push(ids[i], events);
    if (!tokenizer.is_special(ids[i])) spelled += tokenizer.bytes(ids[i]);
    if ((i + 1) % step == 0) drain();
  }
  parser->finish(length, events);
  drain();
  const Answer answer = fold.take();
  check(finished && answer.finish != AnswerFinish::kNone, "no end");
  check(answer.content.value_or("") == content, "the content deltas differ from the message");
  check(answer.reasoning.value_or("") == reasoning, "the reasoning deltas differ");
  std::size_t complete = 0;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (!ended[i]) continue;
    const bool kept =
        complete < answer.tool_calls.size() && answer.tool_calls[complete].arguments == calls[i].arguments;
    check(kept, "a complete call differs from the message");
    check(!arguments_are_json || is_json(calls[i].arguments), "arguments that are no JSON");
    ++complete;
  }
  check(complete == answer.tool_calls.size(), "the number of calls differs");
  if (spelled.find('<') == std::string::npos) {
    for (const std::string& text : {reasoning, content}) {
      check(text.find('<') == std::string::npos, "a marker in reasoning or content");
    }
  }
  return wrong;
}

}  // namespace perigee
