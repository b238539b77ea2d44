#include "text/answer_sink.h"

#include <algorithm>
#include <utility>

namespace perigee {

StopMatcher::StopMatcher(const std::vector<std::string>& stop) {
  for (const std::string& text : stop) {
    if (text.empty()) continue;
    Pattern pattern{text, std::vector<std::size_t>(text.size(), 0), 0};
    for (std::size_t i = 1, k = 0; i < text.size(); ++i) {
      while (k > 0 && text[i] != text[k]) k = pattern.fallback[k - 1];
      if (text[i] == text[k]) ++k;
      pattern.fallback[i] = k;
    }
    patterns_.push_back(std::move(pattern));
  }
}

bool StopMatcher::push(std::string_view text, std::string& out) {
  if (!matched_.empty()) return true;
  if (patterns_.empty()) {
    out += text;
    return false;
  }
  std::size_t held = 0;  // longest prefix of a pattern that the text so far ends in
  for (const char c : text) {
    held_ += c;
    held = 0;
    const Pattern* match = nullptr;
    for (Pattern& pattern : patterns_) {
      while (pattern.state > 0 && pattern.text[pattern.state] != c) pattern.state = pattern.fallback[pattern.state - 1];
      if (pattern.text[pattern.state] == c) ++pattern.state;
      held = std::max(held, pattern.state);
      if (pattern.state == pattern.text.size() && (match == nullptr || match->text.size() < pattern.text.size())) {
        match = &pattern;
      }
    }
    if (match != nullptr) {
      out.append(held_, 0, held_.size() - match->text.size());
      held_.clear();
      matched_ = match->text;
      return true;
    }
  }
  if (held_.size() > held) {
    out.append(held_, 0, held_.size() - held);
    held_.erase(0, held_.size() - held);
  }
  return false;
}

void StopMatcher::release(std::string& out) {
  out += held_;
  held_.clear();
  for (Pattern& pattern : patterns_) pattern.state = 0;
}

AnswerSink::AnswerSink(const ParserOptions& options)
    : drop_calls_(options.drop_calls),
      include_stop_(options.include_stop),
      call_id_prefix_(options.call_id_prefix),
      stop_(options.stop) {}

void AnswerSink::reasoning(std::string_view bytes, std::vector<AnswerEvent>& events) {
  std::string text;
  reasoning_stream_.push(bytes, text);
  if (text.empty()) return;
  reasoning_ += text;
  events.push_back({.kind = AnswerEvent::Kind::kReasoning, .text = std::move(text)});
}

void AnswerSink::end_reasoning(std::vector<AnswerEvent>& events) {
  std::string text;
  reasoning_stream_.finish(text);
  reasoning(text, events);
}

void AnswerSink::emit_content(std::string text, bool was_reasoning, std::vector<AnswerEvent>& events) {
  if (text.empty()) return;
  events.push_back({.kind = AnswerEvent::Kind::kContent, .text = std::move(text), .was_reasoning = was_reasoning});
}

void AnswerSink::content(std::string_view bytes, std::vector<AnswerEvent>& events) {
  if (stopped()) return;
  content_opened_ = true;
  std::string text;
  content_stream_.push(bytes, text);
  std::string shown;
  if (stop_.push(text, shown) && include_stop_) shown += stop_.matched();
  emit_content(std::move(shown), false, events);
}

void AnswerSink::end_content(std::vector<AnswerEvent>& events) {
  if (stopped()) return;
  std::string text;
  content_stream_.finish(text);
  std::string shown;
  if (stop_.push(text, shown)) {
    if (include_stop_) shown += stop_.matched();
  } else {
    stop_.release(shown);
  }
  emit_content(std::move(shown), false, events);
}

void AnswerSink::reasoning_was_content(std::vector<AnswerEvent>& events) {
  end_reasoning(events);
  content_opened_ = true;
  std::string shown;
  if (stop_.push(reasoning_, shown)) {
    if (include_stop_) shown += stop_.matched();
  } else {
    stop_.release(shown);
  }
  emit_content(std::move(shown), true, events);
}

void AnswerSink::begin_call(std::string_view name, std::string_view id, std::vector<AnswerEvent>& events) {
  if (drop_calls_ || stopped()) return;
  const std::int32_t call = calls_++;
  events.push_back({.kind = AnswerEvent::Kind::kCallBegin,
                    .text = std::string(name),
                    .call = call,
                    .id = id.empty() ? call_id_prefix_ + std::to_string(call) : std::string(id)});
}

void AnswerSink::arguments(std::string_view valid_utf8, std::vector<AnswerEvent>& events) {
  if (drop_calls_ || stopped() || valid_utf8.empty()) return;
  // Neighbours of one step become one event.
  if (!events.empty() && events.back().kind == AnswerEvent::Kind::kCallArguments && events.back().call == calls_ - 1) {
    events.back().text += valid_utf8;
    return;
  }
  events.push_back({.kind = AnswerEvent::Kind::kCallArguments, .text = std::string(valid_utf8), .call = calls_ - 1});
}

void AnswerSink::end_call(std::vector<AnswerEvent>& events) {
  if (drop_calls_ || stopped()) return;
  ++complete_calls_;
  events.push_back({.kind = AnswerEvent::Kind::kCallEnd, .call = calls_ - 1});
}

void AnswerSink::finish(bool length, std::vector<AnswerEvent>& events) {
  AnswerEvent event{.kind = AnswerEvent::Kind::kFinish};
  event.finish = stopped()              ? AnswerFinish::kStop
                 : length               ? AnswerFinish::kLength
                 : complete_calls_ != 0 ? AnswerFinish::kToolCalls
                                        : AnswerFinish::kStop;
  event.content_opened = content_opened_ || event.finish == AnswerFinish::kStop;
  event.stop_string = stop_.matched();
  events.push_back(std::move(event));
}

}  // namespace perigee
