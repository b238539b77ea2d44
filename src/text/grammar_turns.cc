// The K2 family's answer markup (spec chat.md 4) as states: text, then at most one section of calls whose arguments are
// one JSON document each. The section wrapper is mandatory.
#include "text/grammar_machine.h"

namespace perigee {
namespace {

enum class TurnPhase : std::uint8_t {
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
        phase_(rules_->start == Channel::kThink ? TurnPhase::kThink : TurnPhase::kResponse),
        may_think_(rules_->model_opens_think && rules_->start == Channel::kResponse),
        text_(rules_->response) {}

  bool mask(std::vector<std::uint32_t>& allowed) override {
    if (phase_ == TurnPhase::kDone) return false;
    bits_.assign(rules_->vocabulary->mask_words(), 0);
    allow_next();
    for (std::size_t i = 0; i < allowed.size(); ++i) allowed[i] &= i < bits_.size() ? bits_[i] : 0;
    return true;
  }

  void accept(TokenId token) override {
    if (phase_ != TurnPhase::kDone && !advance(token)) phase_ = TurnPhase::kDone;
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
      case TurnPhase::kThink:
        allow_ordinary(bits_, vocabulary().tokenizer().first_special());
        allow_bit(bits_, id(Special::kThinkEnd));
        break;
      case TurnPhase::kResponse:
        text_.allow(vocabulary(), bits_);
        if (may_think_ && empty_) allow_bit(bits_, id(Special::kThink));
        if (may_call()) allow_bit(bits_, id(Special::kToolCallsBegin));
        if (may_end()) allow_bit(bits_, id(Special::kEndOfMessage));
        break;
      case TurnPhase::kSection:
        if (may_open_call()) allow_bit(bits_, id(Special::kCallBegin));
        if (calls_ > 0) allow_bit(bits_, id(Special::kToolCallsEnd));
        break;
      case TurnPhase::kCallTag:
        tag_.allow(vocabulary(), bits_);
        if (tag_.complete() >= 0) allow_bit(bits_, id(Special::kArgumentBegin));
        break;
      case TurnPhase::kArguments:
        text_.allow(vocabulary(), bits_);
        if (text_.complete()) allow_bit(bits_, id(Special::kCallEnd));
        break;
      case TurnPhase::kAfterSection:
        allow_bit(bits_, id(Special::kEndOfMessage));
        break;
      case TurnPhase::kDone:
        break;
    }
  }

  bool advance(TokenId token) {
    const bool special = vocabulary().tokenizer().is_special(token);
    switch (phase_) {
      case TurnPhase::kThink:
        if (token == id(Special::kThinkEnd)) phase_ = TurnPhase::kResponse;
        return !special || phase_ == TurnPhase::kResponse;
      case TurnPhase::kResponse:
        if (!special) {
          empty_ = false;
          return text_.accept(vocabulary(), token);
        }
        if (token == id(Special::kThink) && may_think_ && empty_) {
          may_think_ = false;
          phase_ = TurnPhase::kThink;
          return true;
        }
        phase_ = token == id(Special::kToolCallsBegin) && may_call() ? TurnPhase::kSection : TurnPhase::kDone;
        return true;
      case TurnPhase::kSection:
        if (token == id(Special::kCallBegin) && may_open_call()) {
          phase_ = TurnPhase::kCallTag;
          tag_ = LiteralMatcher(rules_->call_headers);
          return true;
        }
        phase_ = TurnPhase::kAfterSection;
        return token == id(Special::kToolCallsEnd) && calls_ > 0;
      case TurnPhase::kCallTag:
        if (!special) return tag_.accept(vocabulary().tokenizer().bytes(token));
        if (token != id(Special::kArgumentBegin) || tag_.complete() < 0) return false;
        text_ = TextMatcher(rules_->call_arguments[static_cast<std::size_t>(tag_.complete())]);
        phase_ = TurnPhase::kArguments;
        return true;
      case TurnPhase::kArguments:
        if (!special) return text_.accept(vocabulary(), token);
        ++calls_;
        phase_ = TurnPhase::kSection;
        return token == id(Special::kCallEnd) && text_.complete();
      case TurnPhase::kAfterSection:
      case TurnPhase::kDone:
        phase_ = TurnPhase::kDone;
        break;
    }
    return true;
  }

  std::shared_ptr<const CompiledRules> rules_;
  TurnPhase phase_;
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
