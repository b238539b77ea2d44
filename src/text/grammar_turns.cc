// The K2 family's answer markup (spec chat.md 4) as states: text, then at most one section of calls whose arguments are
// one JSON document each. The section wrapper is mandatory.
#include "text/grammar_machine.h"

namespace perigee {
namespace {

enum class Phase : std::uint8_t {
  kThink,         // text </think>
  kResponse,      // text, then a section or the end
  kSection,       // call begin, or section end
  kCallTag,       // functions.NAME:N, then argument begin
  kArguments,     // JSON, then call end
  kAfterSection,  // the end
  kDone,
};

class TurnConstraint final : public TokenConstraint {
 public:
  explicit TurnConstraint(std::shared_ptr<const CompiledRules> rules)
      : rules_(std::move(rules)),
        phase_(rules_->start == Channel::kThink ? Phase::kThink : Phase::kResponse),
        may_think_(rules_->model_opens_think && rules_->start == Channel::kResponse),
        text_(rules_->response) {}

  bool mask(std::vector<std::uint32_t>& allowed) override {
    if (phase_ == Phase::kDone) return false;
    bits_.assign(rules_->vocabulary->mask_words(), 0);
    allow_next();
    for (std::size_t i = 0; i < allowed.size(); ++i) allowed[i] &= i < bits_.size() ? bits_[i] : 0;
    return true;
  }

  void accept(TokenId token) override {
    if (phase_ != Phase::kDone && !advance(token)) phase_ = Phase::kDone;
  }

  std::unique_ptr<TokenConstraint> clone() const override { return std::make_unique<TurnConstraint>(*this); }

 private:
  const GrammarVocabulary& vocabulary() const { return *rules_->vocabulary; }
  TokenId id(Special special) const { return vocabulary().tokenizer().special(special); }

  bool may_end() const { return !rules_->tools_required && text_.complete(); }
  bool may_call() const { return !rules_->tools.empty() && (empty_ || text_.complete()); }
  bool may_open_call() const { return calls_ == 0 || rules_->parallel; }

  void allow_next() {
    switch (phase_) {
      case Phase::kThink:
        allow_ordinary(bits_, vocabulary().tokenizer().first_special());
        allow_bit(bits_, id(Special::kThinkEnd));
        break;
      case Phase::kResponse:
        text_.allow(vocabulary(), bits_);
        if (may_think_ && empty_) allow_bit(bits_, id(Special::kThink));
        if (may_call()) allow_bit(bits_, id(Special::kToolCallsBegin));
        if (may_end()) allow_bit(bits_, id(Special::kEndOfMessage));
        break;
      case Phase::kSection:
        if (may_open_call()) allow_bit(bits_, id(Special::kCallBegin));
        if (calls_ > 0) allow_bit(bits_, id(Special::kToolCallsEnd));
        break;
      case Phase::kCallTag:
        tag_.allow(vocabulary(), bits_);
        if (tag_.complete() >= 0) allow_bit(bits_, id(Special::kArgumentBegin));
        break;
      case Phase::kArguments:
        text_.allow(vocabulary(), bits_);
        if (text_.complete()) allow_bit(bits_, id(Special::kCallEnd));
        break;
      case Phase::kAfterSection:
        allow_bit(bits_, id(Special::kEndOfMessage));
        break;
      case Phase::kDone:
        break;
    }
  }

  bool advance(TokenId token) {
    const bool special = vocabulary().tokenizer().is_special(token);
    switch (phase_) {
      case Phase::kThink:
        if (token == id(Special::kThinkEnd)) phase_ = Phase::kResponse;
        return !special || phase_ == Phase::kResponse;
      case Phase::kResponse:
        if (!special) {
          empty_ = false;
          return text_.accept(vocabulary(), token);
        }
        if (token == id(Special::kThink) && may_think_ && empty_) {
          may_think_ = false;
          phase_ = Phase::kThink;
          return true;
        }
        phase_ = token == id(Special::kToolCallsBegin) && may_call() ? Phase::kSection : Phase::kDone;
        return true;
      case Phase::kSection:
        if (token == id(Special::kCallBegin) && may_open_call()) {
          phase_ = Phase::kCallTag;
          tag_ = LiteralMatcher(rules_->call_headers);
          return true;
        }
        phase_ = Phase::kAfterSection;
        return token == id(Special::kToolCallsEnd) && calls_ > 0;
      case Phase::kCallTag:
        if (!special) return tag_.accept(vocabulary().tokenizer().bytes(token));
        if (token != id(Special::kArgumentBegin) || tag_.complete() < 0) return false;
        text_ = TextMatcher(rules_->call_arguments[static_cast<std::size_t>(tag_.complete())]);
        phase_ = Phase::kArguments;
        return true;
      case Phase::kArguments:
        if (!special) return text_.accept(vocabulary(), token);
        ++calls_;
        phase_ = Phase::kSection;
        return token == id(Special::kCallEnd) && text_.complete();
      case Phase::kAfterSection:
      case Phase::kDone:
        phase_ = Phase::kDone;
        break;
    }
    return true;
  }

  std::shared_ptr<const CompiledRules> rules_;
  Phase phase_;
  bool may_think_;
  bool empty_ = true;  // nothing of the response yet
  TextMatcher text_;
  LiteralMatcher tag_;
  std::int64_t calls_ = 0;
  std::vector<std::uint32_t> bits_;  // scratch
};

}  // namespace

std::unique_ptr<TokenConstraint> make_turn_constraint(std::shared_ptr<const CompiledRules> rules) {
  return std::make_unique<TurnConstraint>(std::move(rules));
}

}  // namespace perigee
