// What the two answer parsers share: they hand over bytes by field, this makes events of valid UTF-8 out of them,
// watches for stop strings in the content and numbers the calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/parser.h"
#include "text/utf8.h"

namespace perigee {

// Finds the stop string that is complete first (of several with the same end, the longest) in text that comes in
// pieces, and holds back what may still become one. Linear in text x number of strings.
class StopMatcher {
 public:
  explicit StopMatcher(const std::vector<std::string>& stop);

  // Appends to `out` what may be shown. True once a string has matched: `out` then ends before it, and the rest of
  // the text is dropped.
  bool push(std::string_view text, std::string& out);
  // No string can begin before and end after this point: appends what was held back.
  void release(std::string& out);
  const std::string& matched() const { return matched_; }

 private:
  struct Pattern {
    std::string text;
    std::vector<std::size_t> fallback;  // Knuth-Morris-Pratt
    std::size_t state = 0;
  };
  std::vector<Pattern> patterns_;
  std::string held_;
  std::string matched_;
};

class AnswerSink {
 public:
  explicit AnswerSink(const ParserOptions& options);

  void reasoning(std::string_view bytes, std::vector<AnswerEvent>& events);
  void content(std::string_view bytes, std::vector<AnswerEvent>& events);
  // The element has ended: nothing joins across this point.
  void end_reasoning(std::vector<AnswerEvent>& events);
  void end_content(std::vector<AnswerEvent>& events);
  // What was taken for reasoning was the reply: repeats it as content.
  void reasoning_was_content(std::vector<AnswerEvent>& events);

  // Calls that options drop give no events. One call is open at a time.
  void begin_call(std::string_view name, std::string_view id, std::vector<AnswerEvent>& events);
  void arguments(std::string_view valid_utf8, std::vector<AnswerEvent>& events);
  void end_call(std::vector<AnswerEvent>& events);

  void open_content() { content_opened_ = true; }
  bool stopped() const { return !stop_.matched().empty(); }
  bool content_opened() const { return content_opened_; }
  void finish(bool length, std::vector<AnswerEvent>& events);

 private:
  void emit_content(std::string text, bool was_reasoning, std::vector<AnswerEvent>& events);

  bool drop_calls_;
  bool include_stop_;
  std::string call_id_prefix_;
  StopMatcher stop_;
  Utf8Stream reasoning_stream_;
  Utf8Stream content_stream_;
  std::string reasoning_;  // all of it, should it turn out to be the reply
  bool content_opened_ = false;
  std::int32_t calls_ = 0;  // begun
  std::int32_t complete_calls_ = 0;
};

// The two parsers.
std::unique_ptr<AnswerParser> make_xtml_parser(const Tokenizer& tokenizer, const ParserOptions& options);
std::unique_ptr<AnswerParser> make_im_parser(const Tokenizer& tokenizer, const ParserOptions& options);

}  // namespace perigee
