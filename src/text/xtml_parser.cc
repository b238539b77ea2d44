// K3 answers by token id, and by text where there are no ids.
#include <algorithm>
#include <array>
#include <utility>

#include "text/answer_sink.h"
#include "text/xtml_machine.h"

namespace perigee {
namespace {

using Marker = XtmlMachine::Marker;

class XtmlParser : public AnswerParser {
 public:
  XtmlParser(const Tokenizer& tokenizer, const ParserOptions& options) : tokenizer_(tokenizer), machine_(options) {}

  void push(TokenId id, std::vector<AnswerEvent>& events) override {
    if (!tokenizer_.is_special(id)) {
      machine_.bytes(tokenizer_.bytes(id), events);
      part_ = machine_.part();
      return;
    }
    part_ = AnswerPart::kMarkup;
    switch (static_cast<Special>(id - tokenizer_.first_special())) {
      case Special::kOpen:
        return machine_.marker(Marker::kOpen, events);
      case Special::kClose:
        return machine_.marker(Marker::kClose, events);
      case Special::kSep:
        return machine_.marker(Marker::kSep, events);
      case Special::kEndOfMessage:
      case Special::kEos:
      case Special::kEndOfTurn:
        return machine_.end(events);
      default:  // media and reserved ids are not shown
        return;
    }
  }

  void finish(bool length, std::vector<AnswerEvent>& events) override { machine_.finish(length, events); }
  bool done() const override { return machine_.done(); }
  AnswerPart last_part() const override { return part_; }

 private:
  Tokenizer tokenizer_;
  XtmlMachine machine_;
  AnswerPart part_ = AnswerPart::kMarkup;
};

}  // namespace

std::unique_ptr<AnswerParser> make_xtml_parser(const Tokenizer& tokenizer, const ParserOptions& options) {
  return std::make_unique<XtmlParser>(tokenizer, options);
}

class TextAnswerParser::Impl {
 public:
  explicit Impl(const ParserOptions& options) : machine_(options) {}

  void push(std::string_view text, std::vector<AnswerEvent>& events) {
    held_ += text;
    std::size_t at = 0;
    while (true) {
      const std::size_t found = held_.find("<|", at);
      if (found == std::string::npos) break;
      const std::size_t marker = match(std::string_view(held_).substr(found));
      if (marker == kSpellings.size()) {
        machine_.bytes(std::string_view(held_).substr(at, found + 2 - at), events);
        at = found + 2;
        continue;
      }
      if (held_.size() - found < kSpellings[marker].size()) break;  // may still become this one
      machine_.bytes(std::string_view(held_).substr(at, found - at), events);
      at = found + kSpellings[marker].size();
      if (marker == kEnd) {
        machine_.end(events);
      } else {
        machine_.marker(static_cast<Marker>(marker), events);
      }
    }
    const std::string_view rest = std::string_view(held_).substr(at);
    std::size_t keep = rest.find("<|");
    if (keep == std::string_view::npos) keep = rest.ends_with('<') ? rest.size() - 1 : rest.size();
    machine_.bytes(rest.substr(0, keep), events);
    held_.erase(0, at + keep);
  }

  void finish(bool length, std::vector<AnswerEvent>& events) {
    machine_.bytes(held_, events);
    held_.clear();
    machine_.finish(length, events);
  }

 private:
  static constexpr std::array<std::string_view, 4> kSpellings = {"<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>"};
  static constexpr std::size_t kEnd = 3;

  // The spelling that `text` begins with or is a beginning of; their number when there is none.
  static std::size_t match(std::string_view text) {
    const auto found = std::find_if(kSpellings.begin(), kSpellings.end(), [&](std::string_view spelling) {
      return text.starts_with(spelling) || spelling.starts_with(text);
    });
    return static_cast<std::size_t>(found - kSpellings.begin());
  }

  XtmlMachine machine_;
  std::string held_;  // a possible beginning of a marker
};

TextAnswerParser::TextAnswerParser(const ParserOptions& options) : impl_(std::make_unique<Impl>(options)) {}
TextAnswerParser::~TextAnswerParser() = default;
void TextAnswerParser::push(std::string_view text, std::vector<AnswerEvent>& events) {
  impl_->push(text, events);
}
void TextAnswerParser::finish(bool length, std::vector<AnswerEvent>& events) {
  impl_->finish(length, events);
}

}  // namespace perigee
