// The model's ids to an answer (spec chat.md 3, 4): a streaming machine driven by token id, so that text which spells a
// marker stays text. A stream sends its events; a whole answer is the fold of the same events. Not thread-safe: one
// object an answer.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/dialect.h"
#include "text/render.h"
#include "text/tokenizer.h"

namespace perigee {

enum class AnswerFinish : std::uint8_t { kNone, kStop, kLength, kToolCalls };

struct AnswerEvent {
  enum class Kind : std::uint8_t {
    kReasoning,      // text
    kContent,        // text
    kCallBegin,      // call, id, text = name
    kCallArguments,  // call, text
    kCallEnd,        // call is complete; without it the call is not part of the answer
    kFinish,         // last event
  };
  Kind kind = Kind::kContent;
  std::string text = {};  // valid UTF-8, never empty for the two text kinds and kCallArguments
  std::int32_t call = -1;
  std::string id = {};
  bool was_reasoning = false;  // kContent that repeats all reasoning sent so far: it was the reply (spec 3.2.1, 3.5)

  AnswerFinish finish = AnswerFinish::kNone;  // kFinish only
  bool content_opened = false;                // kFinish only: an empty content is "" and not null
  std::string stop_string = {};               // kFinish only: the one that matched
};

struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments;  // a JSON object in text form, or what the model wrote instead
};

struct Answer {
  std::optional<std::string> reasoning;
  std::optional<std::string> content;
  std::vector<ToolCall> tool_calls;
  AnswerFinish finish = AnswerFinish::kNone;
  std::string stop_string;
};

// Folds events to the answer of a request without streaming.
class AnswerFold {
 public:
  void add(const AnswerEvent& event);
  Answer take();

 private:
  std::string reasoning_;
  std::string content_;
  std::vector<ToolCall> calls_;
  std::vector<bool> complete_;
  AnswerEvent finish_;
};

struct ParserOptions {
  Channel start = Channel::kThink;       // Rendered::start
  bool drop_calls = false;               // tool_choice none, or a request without any tools
  const Json* tools = nullptr;           // array; declared types of arguments without one. Read during construction
  std::string call_id_prefix = "call_";  // K3: call i gets the id prefix + i. K2 writes its own ids
  std::vector<std::string> stop;         // matched on content only
  bool include_stop = false;
};

// Where the bytes of the last pushed id went (or would go, for an id without bytes).
enum class AnswerPart : std::uint8_t { kReasoning, kContent, kArguments, kMarkup };

class AnswerParser {
 public:
  virtual ~AnswerParser() = default;

  // Appends what one sampled id gives: nothing, or several events.
  virtual void push(TokenId id, std::vector<AnswerEvent>& events) = 0;

  // The end: by a stop id (which may have been pushed) or, with `length`, by the token budget. Appends the remaining
  // events and kFinish. Once.
  virtual void finish(bool length, std::vector<AnswerEvent>& events) = 0;

  // A stop id was pushed or a stop string matched: later ids are ignored, so generation may end.
  virtual bool done() const = 0;

  virtual AnswerPart last_part() const = 0;
};

std::unique_ptr<AnswerParser> make_answer_parser(const Dialect& dialect, const Tokenizer& tokenizer,
                                                 const ParserOptions& options);

// K3 answers that come as text, without ids: markers are recognised by their spelling, so literal ones cannot be told
// apart. For clients of foreign servers, never for our own.
class TextAnswerParser {
 public:
  explicit TextAnswerParser(const ParserOptions& options);
  ~TextAnswerParser();
  void push(std::string_view text, std::vector<AnswerEvent>& events);
  void finish(bool length, std::vector<AnswerEvent>& events);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// The ids that end an answer: spec 1.3, and [EOT].
std::vector<TokenId> stop_ids(const Tokenizer& tokenizer);

}  // namespace perigee
