// Answers of the K2 family by token id (spec chat.md 4): <think> blocks and tool call sections.
#include <utility>

#include "text/answer_sink.h"

namespace perigee {
namespace {

constexpr std::string_view kSingularMarker = "<|tool_call_section_begin|>";
constexpr std::string_view kIdPrefix = "functions.";

bool is_space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

// functions.NAME:IDX, with or without its parts; a foreign id is its own name.
std::string_view name_of(std::string_view id) {
  if (id.starts_with(kIdPrefix)) id.remove_prefix(kIdPrefix.size());
  const std::size_t colon = id.rfind(':');
  if (colon == std::string_view::npos || colon + 1 == id.size()) return id;
  const bool digits = id.find_first_not_of("0123456789", colon + 1) == std::string_view::npos;
  return digits ? id.substr(0, colon) : id;
}

// Some checkpoints spell a singular section marker as ordinary text right before a call: it is held back until it is
// known whether a call follows.
class SingularFilter {
 public:
  // Appends what cannot be part of the marker any more.
  void push(std::string_view bytes, std::string& out) {
    for (const char c : bytes) {
      if (held_ == kSingularMarker.size() || (held_ > 0 && kSingularMarker[held_] != c)) {
        // The marker has only one '<', so no shorter beginning of it can be inside what is held.
        out += kSingularMarker.substr(0, held_);
        held_ = 0;
      }
      if (kSingularMarker[held_] == c) {
        ++held_;
      } else {
        out += c;
      }
    }
  }
  void release(std::string& out) {
    out += kSingularMarker.substr(0, held_);
    held_ = 0;
  }
  void call_follows(std::string& out) {
    if (held_ == kSingularMarker.size()) held_ = 0;
    release(out);
  }

 private:
  std::size_t held_ = 0;
};

class ImParser : public AnswerParser {
 public:
  ImParser(const Tokenizer& tokenizer, const ParserOptions& options)
      : tokenizer_(tokenizer), sink_(options), only_think_(options.start == Channel::kThink) {
    state_ = only_think_ ? State::kThink : State::kContent;
    if (!only_think_) sink_.open_content();
  }

  void push(TokenId id, std::vector<AnswerEvent>& events) override {
    part_ = AnswerPart::kMarkup;
    if (done()) return;
    if (!tokenizer_.is_special(id)) return bytes(tokenizer_.bytes(id), events);
    switch (static_cast<Special>(id - tokenizer_.first_special())) {
      case Special::kToolCallsBegin:
        if (state_ == State::kThink || state_ == State::kContent) enter_section(false, events);
        return;
      case Special::kCallBegin:
        if (state_ == State::kThink || state_ == State::kContent) enter_section(true, events);
        end_call(events);
        state_ = State::kCallId;
        return;
      case Special::kArgumentBegin:
        if (state_ == State::kCallId) begin_arguments(events);
        return;
      case Special::kCallEnd:
        end_call(events);
        return;
      case Special::kToolCallsEnd:
        end_call(events);
        if (state_ == State::kSection) enter_content(true);
        return;
      case Special::kThink:
        if (state_ == State::kContent) {
          flush_text(events);
          state_ = State::kThink;
        }
        return;
      case Special::kThinkEnd:
        if (state_ == State::kThink) {
          flush_text(events);
          only_think_ = false;
          enter_content(false);
        }
        return;
      case Special::kEndOfMessage:
      case Special::kEos:
      case Special::kEndOfTurn:
        return end(events);
      default:
        return;
    }
  }

  void finish(bool length, std::vector<AnswerEvent>& events) override {
    const bool cut = length && !ended_;
    if (!done()) {
      if (cut) {
        flush_text(events);
        ended_ = true;
      } else {
        end(events);
      }
    }
    sink_.finish(cut, events);
  }

  bool done() const override { return ended_ || sink_.stopped(); }
  AnswerPart last_part() const override { return part_; }

 private:
  enum class State : std::uint8_t { kThink, kContent, kSection, kCallId, kArguments };

  void bytes(std::string_view bytes, std::vector<AnswerEvent>& events) {
    std::string text;
    switch (state_) {
      case State::kThink:
        part_ = AnswerPart::kReasoning;
        filter_.push(bytes, text);
        sink_.reasoning(text, events);
        break;
      case State::kContent:
        // White space right after a section belongs to it.
        while (after_section_ && !bytes.empty() && is_space(bytes.front())) bytes.remove_prefix(1);
        if (bytes.empty()) break;
        after_section_ = false;
        part_ = AnswerPart::kContent;
        filter_.push(bytes, text);
        if (!text.empty()) sink_.content(text, events);
        break;
      case State::kCallId:
        call_id_ += bytes;
        break;
      case State::kArguments:
        part_ = AnswerPart::kArguments;
        arguments_stream_.push(bytes, text);
        arguments(text, events);
        break;
      case State::kSection:
        break;
    }
  }

  // Arguments are trimmed: leading white space is dropped, other is held until something follows it.
  void arguments(std::string_view text, std::vector<AnswerEvent>& events) {
    std::string_view rest = text;
    if (!arguments_begun_) {
      while (!rest.empty() && is_space(rest.front())) rest.remove_prefix(1);
    }
    std::string_view shown = rest;
    while (!shown.empty() && is_space(shown.back())) shown.remove_suffix(1);
    if (!shown.empty()) {
      arguments_begun_ = true;
      sink_.arguments(space_ + std::string(shown), events);
      space_.clear();
    }
    if (arguments_begun_) space_ += rest.substr(shown.size());
  }

  void enter_content(bool after_section) {
    state_ = State::kContent;
    after_section_ = after_section;
    sink_.open_content();
  }

  void enter_section(bool call, std::vector<AnswerEvent>& events) {
    std::string text;
    if (call) filter_.call_follows(text);
    text_to_sink(text, events);
    flush_text(events);
    only_think_ = false;
    state_ = State::kSection;
  }

  void text_to_sink(std::string_view text, std::vector<AnswerEvent>& events) {
    if (text.empty()) return;
    if (state_ == State::kThink) sink_.reasoning(text, events);
    if (state_ == State::kContent) sink_.content(text, events);
  }

  // The end of a stretch of reasoning or content.
  void flush_text(std::vector<AnswerEvent>& events) {
    std::string text;
    filter_.release(text);
    text_to_sink(text, events);
    if (state_ == State::kThink) sink_.end_reasoning(events);
    if (state_ == State::kContent) sink_.end_content(events);
  }

  void begin_arguments(std::vector<AnswerEvent>& events) {
    const std::string id = valid_utf8(trim(call_id_));
    call_id_.clear();
    arguments_begun_ = false;
    space_.clear();
    const std::string_view name = name_of(id);
    if (name.empty()) {
      state_ = State::kSection;  // a call without a name cannot be answered
      return;
    }
    sink_.begin_call(name, id, events);
    state_ = State::kArguments;
  }

  // Completes the call that is open, if any.
  void end_call(std::vector<AnswerEvent>& events) {
    if (state_ == State::kCallId) begin_arguments(events);
    if (state_ != State::kArguments) return;
    std::string text;
    arguments_stream_.finish(text);
    arguments(text, events);
    if (!arguments_begun_) sink_.arguments("{}", events);
    sink_.end_call(events);
    state_ = State::kSection;
  }

  void end(std::vector<AnswerEvent>& events) {
    end_call(events);
    flush_text(events);
    if (only_think_) sink_.reasoning_was_content(events);
    ended_ = true;
  }

  Tokenizer tokenizer_;
  AnswerSink sink_;
  State state_;
  SingularFilter filter_;
  bool only_think_;  // the prompt's think block was never closed, and nothing else was opened
  bool after_section_ = false;
  bool ended_ = false;
  std::string call_id_;
  Utf8Stream arguments_stream_;
  bool arguments_begun_ = false;
  std::string space_;
  AnswerPart part_ = AnswerPart::kMarkup;
};

}  // namespace

std::unique_ptr<AnswerParser> make_im_parser(const Tokenizer& tokenizer, const ParserOptions& options) {
  return std::make_unique<ImParser>(tokenizer, options);
}

}  // namespace perigee
