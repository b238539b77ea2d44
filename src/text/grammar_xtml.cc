// K3's answer markup (spec chat.md 3.1, 6.2) as states. [O] [C] [S] [E] are the four structural ids.
#include <optional>

#include "text/grammar_machine.h"

namespace perigee {
namespace {

enum class XtmlPhase : std::uint8_t {
  kThink,           // text [C]
  kBeforeResponse,  // [O]
  kResponse,        // text [C]
  kAfterResponse,   // [O] tools, or [C] message
  kTools,           // [O] call, or [C] tools
  kCall,            // [O] argument, or [C] call
  kValue,           // text [C]
  kAfterTools,      // [C] message
  kEnd,             // [E]
  kDone,
  // Text of a tag, up to its [S].
  kTag,
  kCallTag,
  kArgumentTag,
};

std::shared_ptr<const std::vector<std::string>> one_text(std::string text) {
  return std::make_shared<const std::vector<std::string>>(1, std::move(text));
}

class XtmlConstraint final : public TokenConstraint {
 public:
  explicit XtmlConstraint(std::shared_ptr<const CompiledRules> rules) : rules_(std::move(rules)) {
    const Tokenizer& tokenizer = rules_->vocabulary->tokenizer();
    open_ = tokenizer.special(Special::kOpen);
    close_ = tokenizer.special(Special::kClose);
    sep_ = tokenizer.special(Special::kSep);
    end_ = tokenizer.special(Special::kEndOfMessage);
    enter(rules_->start == Channel::kThink ? XtmlPhase::kThink : XtmlPhase::kResponse);
  }

  bool mask(std::vector<std::uint32_t>& allowed) override {
    if (phase_ == XtmlPhase::kDone) return false;
    bits_.assign(rules_->vocabulary->mask_words(), 0);
    allow_next();
    for (std::size_t i = 0; i < allowed.size(); ++i) allowed[i] &= i < bits_.size() ? bits_[i] : 0;
    return true;
  }

  void accept(TokenId token) override {
    if (phase_ == XtmlPhase::kDone) return;
    // An id that the mask had forbidden (the engine may force one): nothing is promised any more.
    if (!advance(token)) phase_ = XtmlPhase::kDone;
  }

  std::unique_ptr<TokenConstraint> clone() const override { return std::make_unique<XtmlConstraint>(*this); }

 private:
  const GrammarVocabulary& vocabulary() const { return *rules_->vocabulary; }
  const ToolRule& tool() const { return rules_->tools[tool_]; }

  void enter(XtmlPhase phase) {
    phase_ = phase;
    if (phase == XtmlPhase::kResponse) {
      text_ = TextMatcher(rules_->response);
      response_empty_ = true;
    }
  }

  void enter_tag(XtmlPhase phase, std::shared_ptr<const std::vector<std::string>> texts,
                 XtmlPhase next = XtmlPhase::kDone) {
    phase_ = phase;
    tag_ = LiteralMatcher(std::move(texts));
    next_ = next;
  }

  bool may_end_call() const {
    for (std::size_t i = 0; i < tool().arguments.size(); ++i) {
      if (tool().arguments[i].required && !given_[i]) return false;
    }
    return true;
  }

  bool may_open_argument() const {
    if (!tool().other_keys.empty()) return true;
    for (std::size_t i = 0; i < tool().arguments.size(); ++i) {
      if (!given_[i] && !tool().arguments[i].forms.empty()) return true;
    }
    return false;
  }

  bool may_open_call() const { return calls_ == 0 || rules_->parallel; }

  // With a constrained response, an answer may hold calls instead of it.
  bool may_skip_response() const { return !rules_->tools.empty() && response_empty_; }

  void allow_next() {
    switch (phase_) {
      case XtmlPhase::kThink:
        allow_ordinary(bits_, vocabulary().tokenizer().first_special());
        allow_bit(bits_, close_);
        break;
      case XtmlPhase::kBeforeResponse:
        allow_bit(bits_, open_);
        break;
      case XtmlPhase::kResponse:
        text_.allow(vocabulary(), bits_);
        if (text_.complete() || may_skip_response()) allow_bit(bits_, close_);
        break;
      case XtmlPhase::kValue:
        text_.allow(vocabulary(), bits_);
        if (text_.complete()) allow_bit(bits_, close_);
        break;
      case XtmlPhase::kAfterResponse:
        if (!rules_->tools.empty()) allow_bit(bits_, open_);
        if (!must_call_) allow_bit(bits_, close_);
        break;
      case XtmlPhase::kTools:
        if (may_open_call()) allow_bit(bits_, open_);
        if (calls_ > 0) allow_bit(bits_, close_);
        break;
      case XtmlPhase::kCall:
        if (may_open_argument()) allow_bit(bits_, open_);
        if (may_end_call()) allow_bit(bits_, close_);
        break;
      case XtmlPhase::kAfterTools:
        allow_bit(bits_, close_);
        break;
      case XtmlPhase::kEnd:
        allow_bit(bits_, end_);
        break;
      case XtmlPhase::kTag:
      case XtmlPhase::kCallTag:
      case XtmlPhase::kArgumentTag:
        if (tag_.alive()) tag_.allow(vocabulary(), bits_);
        if (other_key_) other_key_->allow(vocabulary(), bits_);
        if (tag_complete()) allow_bit(bits_, sep_);
        break;
      case XtmlPhase::kDone:
        break;
    }
  }

  bool tag_complete() const { return (tag_.alive() && tag_.complete() >= 0) || (other_key_ && other_key_->complete()); }

  bool advance(TokenId token) {
    switch (phase_) {
      case XtmlPhase::kThink:
        if (token == close_) {
          enter_tag(XtmlPhase::kTag, one_text("think"), XtmlPhase::kBeforeResponse);
        }
        return token == close_ || !vocabulary().tokenizer().is_special(token);
      case XtmlPhase::kBeforeResponse:
        enter_tag(XtmlPhase::kTag, one_text("response"), XtmlPhase::kResponse);
        return token == open_;
      case XtmlPhase::kResponse:
        if (token != close_) {
          response_empty_ = false;
          return !vocabulary().tokenizer().is_special(token) && text_.accept(vocabulary(), token);
        }
        must_call_ = rules_->tools_required || !text_.complete();
        if (must_call_ && rules_->tools.empty()) return false;
        enter_tag(XtmlPhase::kTag, one_text("response"), XtmlPhase::kAfterResponse);
        return true;
      case XtmlPhase::kAfterResponse:
        if (token == open_ && !rules_->tools.empty()) {
          enter_tag(XtmlPhase::kTag, one_text("tools"), XtmlPhase::kTools);
          return true;
        }
        enter_tag(XtmlPhase::kTag, one_text("message"), XtmlPhase::kEnd);
        return token == close_ && !must_call_;
      case XtmlPhase::kTools:
        if (token == open_ && may_open_call()) {
          enter_tag(XtmlPhase::kCallTag, rules_->call_headers);
          return true;
        }
        enter_tag(XtmlPhase::kTag, one_text("tools"), XtmlPhase::kAfterTools);
        return token == close_ && calls_ > 0;
      case XtmlPhase::kCall:
        if (token == open_ && may_open_argument()) return open_argument();
        ++calls_;
        enter_tag(XtmlPhase::kTag, one_text("call"), XtmlPhase::kTools);
        return token == close_ && may_end_call();
      case XtmlPhase::kValue:
        if (token != close_) {
          return !vocabulary().tokenizer().is_special(token) && text_.accept(vocabulary(), token);
        }
        if (!text_.complete()) return false;
        enter_tag(XtmlPhase::kTag, one_text("argument"), XtmlPhase::kCall);
        return true;
      case XtmlPhase::kAfterTools:
        enter_tag(XtmlPhase::kTag, one_text("message"), XtmlPhase::kEnd);
        return token == close_;
      case XtmlPhase::kEnd:
        phase_ = XtmlPhase::kDone;
        return true;
      case XtmlPhase::kTag:
      case XtmlPhase::kCallTag:
      case XtmlPhase::kArgumentTag:
        return token == sep_ ? end_tag() : extend_tag(token);
      case XtmlPhase::kDone:
        break;
    }
    return true;
  }

  bool extend_tag(TokenId token) {
    if (vocabulary().tokenizer().is_special(token)) return false;
    const std::string_view bytes = vocabulary().tokenizer().bytes(token);
    if (tag_.alive()) tag_.accept(bytes);
    if (other_key_) {
      header_ += bytes;
      if (!other_key_->accept(vocabulary(), token)) other_key_.reset();
    }
    return tag_.alive() || other_key_;
  }

  bool end_tag() {
    if (!tag_complete()) return false;
    if (phase_ == XtmlPhase::kTag) {
      enter(next_);
      return true;
    }
    if (phase_ == XtmlPhase::kCallTag) {
      tool_ = static_cast<std::size_t>(tag_.complete());
      given_.assign(tool().arguments.size(), false);
      taken_.clear();
      phase_ = XtmlPhase::kCall;
      return true;
    }
    begin_value();
    return true;
  }

  // Declared arguments that are still free are literal headers; other keys need a grammar that excludes what is taken.
  bool open_argument() {
    auto headers = std::make_shared<std::vector<std::string>>();
    header_forms_.clear();
    for (std::size_t i = 0; i < tool().arguments.size(); ++i) {
      if (given_[i]) continue;
      for (const ValueForm& form : tool().arguments[i].forms) {
        headers->push_back(fmt::format("argument key=\"{}\" type=\"{}\"", tool().arguments[i].key, form.type));
        header_forms_.push_back({i, &form});
      }
    }
    other_key_.reset();
    header_.clear();
    if (!tool().other_keys.empty()) {
      auto grammar = rules_->compile(GrammarLanguage::kLark, other_key_grammar(tool(), taken_));
      if (grammar.ok()) other_key_.emplace(*grammar);
    }
    enter_tag(XtmlPhase::kArgumentTag, std::move(headers));
    return true;
  }

  void begin_value() {
    const int literal = tag_.alive() ? tag_.complete() : -1;
    const ValueForm* form = nullptr;
    if (literal >= 0) {
      given_[header_forms_[static_cast<std::size_t>(literal)].first] = true;
      form = header_forms_[static_cast<std::size_t>(literal)].second;
    } else {
      // argument key="K" type="T": K holds no quote.
      const std::size_t key = header_.find('"') + 1;
      const std::size_t key_end = header_.find('"', key);
      const std::size_t type = header_.find('"', key_end + 1) + 1;
      const std::string type_name = header_.substr(type, header_.size() - 1 - type);
      taken_.push_back(header_.substr(key, key_end - key));
      for (const ValueForm& candidate : tool().other_keys) {
        if (candidate.type == type_name) form = &candidate;
      }
    }
    other_key_.reset();
    text_ = TextMatcher(*form);
    phase_ = XtmlPhase::kValue;
  }

  std::shared_ptr<const CompiledRules> rules_;
  TokenId open_ = 0;
  TokenId close_ = 0;
  TokenId sep_ = 0;
  TokenId end_ = 0;

  XtmlPhase phase_ = XtmlPhase::kThink;
  TextMatcher text_;  // kResponse, kValue
  bool response_empty_ = true;
  bool must_call_ = false;
  std::int64_t calls_ = 0;  // complete ones

  LiteralMatcher tag_;
  XtmlPhase next_ = XtmlPhase::kDone;  // after a kTag

  std::size_t tool_ = 0;            // of the open call
  std::vector<bool> given_;         // its declared arguments
  std::vector<std::string> taken_;  // its undeclared keys
  std::vector<std::pair<std::size_t, const ValueForm*>> header_forms_;
  std::optional<TextMatcher> other_key_;
  std::string header_;  // text of the tag, while other_key_ lives

  std::vector<std::uint32_t> bits_;  // scratch
};

}  // namespace

std::unique_ptr<TokenConstraint> make_xtml_constraint(std::shared_ptr<const CompiledRules> rules) {
  return std::make_unique<XtmlConstraint>(std::move(rules));
}

}  // namespace perigee
