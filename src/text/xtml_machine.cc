#include "text/xtml_machine.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "text/conversation.h"
#include "text/python_json.h"

namespace perigee {
namespace {

constexpr std::size_t kMaxHeader = 4096;
constexpr std::array<std::string_view, 7> kTagNames = {"message", "think",    "response", "tools",
                                                       "call",    "argument", "json"};

bool is_space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  std::string out;
  std::size_t at = 0;
  for (std::size_t found = text.find(from); found != std::string::npos; found = text.find(from, at)) {
    out.append(text, at, found - at).append(to);
    at = found + from.size();
  }
  text = out.append(text, at);
}

bool equals_ignoring_case(std::string_view text, std::string_view lower) {
  return std::equal(text.begin(), text.end(), lower.begin(), lower.end(),
                    [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a + ('a' - 'A') : a) == b; });
}

// A header that the budget cuts off: what has come of it begins a tag.
bool begins_a_tag(std::string_view header) {
  while (!header.empty() && is_space(header.front())) header.remove_prefix(1);
  return std::any_of(kTagNames.begin(), kTagNames.end(),
                     [&](std::string_view name) { return name.starts_with(header) || header.starts_with(name); });
}

std::string json_string(std::string_view text) {
  std::string out = "\"";
  append_json_escaped(text, out);
  return out + "\"";
}

std::map<std::string, std::map<std::string, std::string>> declared_types(const Json* tools) {
  std::map<std::string, std::map<std::string, std::string>> types;
  if (tools == nullptr || !tools->is_array()) return types;
  for (const Json& tool : *tools) {
    const Json* function = json_member(tool, "function");
    if (function == nullptr) continue;
    const Json* name = json_member(*function, "name");
    const Json* parameters = json_member(*function, "parameters");
    const Json* properties = parameters == nullptr ? nullptr : json_member(*parameters, "properties");
    if (name == nullptr || !name->is_string() || properties == nullptr || !properties->is_object()) continue;
    for (const auto& [key, schema] : properties->items()) {
      const Json* type = json_member(schema, "type");
      if (type != nullptr && type->is_string()) types[name->get<std::string>()][key] = type->get<std::string>();
    }
  }
  return types;
}

}  // namespace

XtmlHeader parse_xtml_header(std::string_view text) {
  XtmlHeader header;
  text = trim(text);
  std::size_t at = 0;
  const auto word = [&](std::string_view ends) {
    const std::size_t begin = at;
    while (at < text.size() && !is_space(text[at]) && ends.find(text[at]) == std::string_view::npos) ++at;
    return text.substr(begin, at - begin);
  };
  const auto skip_space = [&] {
    const std::size_t begin = at;
    while (at < text.size() && is_space(text[at])) ++at;
    return at > begin;
  };
  header.name = word("");
  header.well_formed = !header.name.empty();
  while (at < text.size()) {
    skip_space();
    const std::string_view key = word("=");
    bool strict = !key.empty() && !skip_space();
    if (at >= text.size() || text[at] != '=') {
      header.well_formed = false;  // a word without a value says nothing
      if (key.empty()) ++at;
      continue;
    }
    ++at;
    strict = !skip_space() && strict;
    std::string value;
    if (at < text.size() && text[at] == '"') {
      const std::size_t end = std::min(text.find('"', at + 1), text.size());
      strict = strict && end < text.size() && (end + 1 == text.size() || is_space(text[end + 1]));
      value = text.substr(at + 1, end - at - 1);
      at = std::min(end + 1, text.size());
    } else {
      strict = false;
      value = word("");
    }
    header.well_formed = header.well_formed && strict;
    replace_all(value, "&quot;", "\"");
    replace_all(value, "&amp;", "&");
    if (!key.empty()) header.attributes.emplace(key, valid_utf8(value));
  }
  return header;
}

XtmlMachine::XtmlMachine(const ParserOptions& options)
    : sink_(options), declared_(declared_types(options.tools)), only_think_(options.start == Channel::kThink) {
  section_ = only_think_ ? Tag::kThink : Tag::kResponse;
  if (!only_think_) {
    response_seen_ = true;
    sink_.open_content();
  }
}

XtmlMachine::Tag XtmlMachine::tag_of(std::string_view name) {
  const auto found = std::find(kTagNames.begin(), kTagNames.end(), name);
  return found == kTagNames.end() ? Tag::kNone : static_cast<Tag>(found - kTagNames.begin() + 1);
}

bool XtmlMachine::is_open(Tag tag) const {
  return tag == Tag::kMessage || (tag != Tag::kNone && (tag == section_ || tag == body_tag_)) ||
         (tag == Tag::kCall && call_ != CallState::kNone);
}

AnswerPart XtmlMachine::part() const {
  if (pending_ != Pending::kNone || done() || message_closed_) return AnswerPart::kMarkup;
  if (body_tag_ != Tag::kNone) return AnswerPart::kArguments;
  if (section_ == Tag::kThink) return AnswerPart::kReasoning;
  return section_ == Tag::kResponse ? AnswerPart::kContent : AnswerPart::kMarkup;
}

void XtmlMachine::marker(Marker marker, Events& events) {
  if (done() || message_closed_) return;
  if (pending_ != Pending::kNone) resolve_pending(marker == Marker::kSep, events);
  if (marker == Marker::kOpen) pending_ = Pending::kOpen;
  if (marker == Marker::kClose) pending_ = Pending::kClose;
}

void XtmlMachine::bytes(std::string_view bytes, Events& events) {
  if (done() || message_closed_ || bytes.empty()) return;
  if (pending_ != Pending::kNone) {
    header_ += bytes;
    if (header_.size() > kMaxHeader) put_back(false, events);
    return;
  }
  if (body_tag_ != Tag::kNone) {
    if (body_ == Body::kRaw || body_ == Body::kString) {
      std::string text;
      body_stream_.push(bytes, text);
      if (body_ == Body::kString) {
        std::string escaped;
        append_json_escaped(text, escaped);
        text = std::move(escaped);
      }
      sink_.arguments(text, events);
    } else if (body_ != Body::kDropped) {
      body_text_ += bytes;
    }
    return;
  }
  if (section_ == Tag::kThink) {
    sink_.reasoning(bytes, events);
  } else if (section_ == Tag::kResponse) {
    sink_.content(bytes, events);
  } else if (section_ == Tag::kNone && !response_seen_ && !tools_seen_) {
    // Text where a tag is due: the reply, without its opening.
    while (!bytes.empty() && is_space(bytes.front())) bytes.remove_prefix(1);
    if (bytes.empty()) return;
    enter(Tag::kResponse, events);
    sink_.content(bytes, events);
  }
}

// The header is complete (`sep`), or something else than a separator came after it.
void XtmlMachine::resolve_pending(bool sep, Events& events) {
  const XtmlHeader header = parse_xtml_header(header_);
  const Tag tag = tag_of(header.name);
  const bool closing = pending_ == Pending::kClose;
  const bool bare = header.well_formed && header.attributes.empty();
  if (!sep && (tag == Tag::kNone || !header.well_formed || (closing && !bare))) return put_back(sep, events);
  if (body_tag_ != Tag::kNone) {
    const auto has = [&](const char* key) { return header.attributes.contains(key); };
    const bool structure = closing ? is_open(tag)
                                   : (tag == Tag::kArgument && has("key")) || (tag == Tag::kJson && has("type")) ||
                                         (tag == Tag::kCall && has("tool"));
    if (!structure) return put_back(sep, events);
  }
  pending_ = Pending::kNone;
  header_.clear();
  if (closing) {
    close_tag(tag, events);
  } else {
    open_tag(tag, header, events);
  }
}

// It was no tag: its text goes where text goes, its markers only into a body.
void XtmlMachine::put_back(bool sep, Events& events) {
  const std::string header = std::move(header_);
  const std::string_view opener = pending_ == Pending::kOpen ? "<|open|>" : "<|close|>";
  header_.clear();
  pending_ = Pending::kNone;
  if (body_tag_ != Tag::kNone) bytes(opener, events);
  bytes(header, events);
  if (body_tag_ != Tag::kNone && sep) bytes("<|sep|>", events);
}

void XtmlMachine::open_tag(Tag tag, const XtmlHeader& header, Events& events) {
  switch (tag) {
    case Tag::kThink:
    case Tag::kResponse:
    case Tag::kTools:
      if (section_ != tag) enter(tag, events);
      break;
    case Tag::kCall:
      begin_call(header, events);
      break;
    case Tag::kArgument:
    case Tag::kJson:
      end_body(events);
      body_tag_ = tag;
      body_ = Body::kDropped;
      if (call_ != CallState::kOpen || json_child_) break;
      if (tag == Tag::kArgument) {
        begin_argument(header, events);
      } else if (arguments_ == 0) {
        json_child_ = true;
        body_ = Body::kRaw;
      }
      break;
    default:
      break;
  }
}

void XtmlMachine::close_tag(Tag tag, Events& events) {
  if (tag == Tag::kMessage) {
    if (only_think_) reply_was_in_think(events);
    leave_section(events);
    message_closed_ = true;
  } else if (tag == Tag::kResponse && only_think_) {
    reply_was_in_think(events);
    leave_section(events);
  } else if (tag != Tag::kNone && tag == section_) {
    leave_section(events);
  } else if (tag == Tag::kCall && call_ != CallState::kNone) {
    end_call(events);
  } else if (tag != Tag::kNone && tag == body_tag_) {
    end_body(events);
  }
}

void XtmlMachine::enter(Tag section, Events& events) {
  leave_section(events);
  only_think_ = false;
  section_ = section;
  if (section == Tag::kTools) tools_seen_ = true;
  if (section == Tag::kResponse) {
    response_seen_ = true;
    sink_.open_content();
  }
}

void XtmlMachine::leave_section(Events& events) {
  end_call(events);
  end_body(events);  // of an element outside any call
  if (section_ == Tag::kThink) sink_.end_reasoning(events);
  if (section_ == Tag::kResponse) sink_.end_content(events);
  if (section_ == Tag::kThink) only_think_ = false;
  section_ = Tag::kNone;
}

void XtmlMachine::reply_was_in_think(Events& events) {
  only_think_ = false;
  response_seen_ = true;
  sink_.reasoning_was_content(events);
}

void XtmlMachine::begin_call(const XtmlHeader& header, Events& events) {
  if (section_ == Tag::kTools) {
    end_call(events);
    end_body(events);
  } else {
    enter(Tag::kTools, events);
  }
  const auto tool = header.attributes.find("tool");
  arguments_ = 0;
  json_child_ = false;
  if (tool == header.attributes.end() || tool->second.empty()) {
    call_ = CallState::kDropped;
    return;
  }
  call_ = CallState::kOpen;
  call_name_ = tool->second;
  sink_.begin_call(call_name_, "", events);
}

void XtmlMachine::end_call(Events& events) {
  if (call_ == CallState::kNone) return;
  end_body(events);
  if (call_ == CallState::kOpen) {
    if (!json_child_) sink_.arguments(arguments_ == 0 ? "{}" : "}", events);
    sink_.end_call(events);
  }
  call_ = CallState::kNone;
}

void XtmlMachine::begin_argument(const XtmlHeader& header, Events& events) {
  const auto key = header.attributes.find("key");
  if (key == header.attributes.end()) return;
  const auto type = header.attributes.find("type");
  body_ = body_of(type == header.attributes.end() ? "" : type->second, key->second);
  body_prefix_ = (arguments_ == 0 ? "{" : ",") + json_string(key->second) + ":";
  ++arguments_;
  if (body_ == Body::kString) sink_.arguments(body_prefix_ + "\"", events);
}

// The type attribute decides; where it says nothing, the type that the tool declares.
XtmlMachine::Body XtmlMachine::body_of(const std::string& type, const std::string& key) const {
  if (const Body body = body_of_type(type); body != Body::kAny) return body;
  const auto tool = declared_.find(call_name_);
  if (tool == declared_.end()) return Body::kAny;
  const auto declared = tool->second.find(key);
  return declared == tool->second.end() ? Body::kAny : body_of_type(declared->second);
}

XtmlMachine::Body XtmlMachine::body_of_type(std::string_view type) {
  if (type == "string") return Body::kString;
  if (type == "boolean") return Body::kBoolean;
  if (type == "null") return Body::kNull;
  if (type == "number" || type == "integer" || type == "object" || type == "array") return Body::kJson;
  return Body::kAny;
}

void XtmlMachine::end_body(Events& events) {
  if (body_tag_ == Tag::kNone) return;
  std::string text;
  if (body_ == Body::kRaw || body_ == Body::kString) {
    body_stream_.finish(text);
    sink_.arguments(text, events);
    if (body_ == Body::kString) sink_.arguments("\"", events);
  } else if (body_ != Body::kDropped) {
    text = valid_utf8(body_text_);
    const std::string_view trimmed = trim_json(text);
    std::string value;
    if (body_ == Body::kNull) {
      value = "null";
    } else if (body_ == Body::kBoolean) {
      value = equals_ignoring_case(trimmed, "true")    ? "true"
              : equals_ignoring_case(trimmed, "false") ? "false"
                                                       : json_string(text);
    } else {
      value = is_json(trimmed) ? std::string(trimmed) : json_string(text);
    }
    sink_.arguments(body_prefix_ + value, events);
  }
  body_text_.clear();
  body_tag_ = Tag::kNone;
  body_ = Body::kNone;
}

void XtmlMachine::end(Events& events) {
  if (done()) return;
  if (pending_ != Pending::kNone) resolve_pending(false, events);
  if (only_think_) reply_was_in_think(events);
  // A call that is open here is incomplete: nothing more is said of it.
  if (section_ == Tag::kThink) sink_.end_reasoning(events);
  if (section_ == Tag::kResponse) sink_.end_content(events);
  ended_ = true;
}

void XtmlMachine::finish(bool length, Events& events) {
  const bool cut = length && !ended_;
  if (!done()) {
    if (cut) {
      if (pending_ != Pending::kNone && !begins_a_tag(header_)) put_back(false, events);
      if (section_ == Tag::kThink) sink_.end_reasoning(events);
      if (section_ == Tag::kResponse) sink_.end_content(events);
      ended_ = true;
    } else {
      end(events);
    }
  }
  sink_.finish(cut, events);
}

}  // namespace perigee
