// The state machine behind both K3 parsers (spec chat.md 3.2): it is told markers and bytes, by id or by spelling.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/answer_sink.h"
#include "text/parser.h"

namespace perigee {

// A tag's header between its marker and <|sep|>.
struct XtmlHeader {
  std::string name;
  std::map<std::string, std::string> attributes;  // unescaped
  bool well_formed = false;                       // a name and key="value" pairs, nothing else
};
XtmlHeader parse_xtml_header(std::string_view text);

class XtmlMachine {
 public:
  enum class Marker : std::uint8_t { kOpen, kClose, kSep };
  using Events = std::vector<AnswerEvent>;

  explicit XtmlMachine(const ParserOptions& options);

  void marker(Marker marker, Events& events);
  void bytes(std::string_view bytes, Events& events);
  void end(Events& events);  // a stop id
  void finish(bool length, Events& events);

  bool done() const { return ended_ || sink_.stopped(); }
  AnswerPart part() const;

 private:
  enum class Tag : std::uint8_t { kNone, kMessage, kThink, kResponse, kTools, kCall, kArgument, kJson };
  enum class Pending : std::uint8_t { kNone, kOpen, kClose };
  enum class CallState : std::uint8_t { kNone, kOpen, kDropped };
  // How the open argument or json body is delivered.
  enum class Body : std::uint8_t { kNone, kDropped, kRaw, kString, kJson, kBoolean, kNull, kAny };

  static Tag tag_of(std::string_view name);
  bool is_open(Tag tag) const;

  void resolve_pending(bool sep, Events& events);
  void put_back(bool sep, Events& events);
  void open_tag(Tag tag, const XtmlHeader& header, Events& events);
  void close_tag(Tag tag, Events& events);

  void enter(Tag section, Events& events);
  void leave_section(Events& events);
  void reply_was_in_think(Events& events);

  void begin_call(const XtmlHeader& header, Events& events);
  void end_call(Events& events);
  void begin_argument(const XtmlHeader& header, Events& events);
  void end_body(Events& events);
  Body body_of(const std::string& type, const std::string& key) const;
  static Body body_of_type(std::string_view type);

  AnswerSink sink_;
  std::map<std::string, std::map<std::string, std::string>> declared_;  // tool, argument -> type

  Tag section_ = Tag::kNone;  // kThink, kResponse or kTools; kNone: message level
  CallState call_ = CallState::kNone;
  std::string call_name_;
  std::size_t arguments_ = 0;  // of the open call
  bool json_child_ = false;

  Tag body_tag_ = Tag::kNone;  // kArgument or kJson while one is open
  Body body_ = Body::kNone;
  std::string body_prefix_;  // ,"key": of a body that can be judged only when it is complete
  std::string body_text_;
  Utf8Stream body_stream_;

  Pending pending_ = Pending::kNone;
  std::string header_;

  bool only_think_;  // think is the only element so far, and still open
  bool response_seen_ = false;
  bool tools_seen_ = false;
  bool message_closed_ = false;
  bool ended_ = false;
};

}  // namespace perigee
