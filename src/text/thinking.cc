#include "text/thinking.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "text/conversation.h"

namespace perigee {
namespace {

Result<std::string> read_effort(const Json& value, std::string_view field, bool lenient) {
  if (!value.is_string()) return invalid_argument("{}: expected a string, found {}", field, value.type_name());
  return parse_effort(value.get_ref<const std::string&>(), field, lenient);
}

Result<std::optional<bool>> read_flag(const Json* object, const char* key, std::string_view path) {
  const Json* value = object == nullptr ? nullptr : json_member(*object, key);
  if (value == nullptr) return std::optional<bool>();
  if (!value->is_boolean()) {
    return invalid_argument("{}.{}: expected a boolean, found {}", path, key, value->type_name());
  }
  return std::optional<bool>(value->get<bool>());
}

Result<const Json*> read_object(const Json& body, const char* key) {
  const Json* value = json_member(body, key);
  if (value != nullptr && !value->is_object()) {
    return invalid_argument("{}: expected an object, found {}", key, value->type_name());
  }
  return value;
}

// Counts what is thought and closes the channel once. It follows marker ids only, as the parser does: any marker of the
// dialect ends thinking.
class ThinkingLimit final : public TokenConstraint {
 public:
  ThinkingLimit(const Dialect& dialect, const Tokenizer& tokenizer, Channel start, std::int64_t budget,
                std::unique_ptr<TokenConstraint> inner)
      : left_(budget), inner_(std::move(inner)) {
    phase_ = start == Channel::kThink ? Phase::kThinking : Phase::kDone;
    if (dialect.format == PromptFormat::kXtml) {
      ends_ = {tokenizer.special(Special::kClose), tokenizer.special(Special::kOpen)};
      closing_ = tokenizer.encode("think");
      closing_.insert(closing_.begin(), tokenizer.special(Special::kClose));
      closing_.push_back(tokenizer.special(Special::kSep));
    } else {
      ends_ = {tokenizer.special(Special::kThinkEnd), tokenizer.special(Special::kToolCallsBegin)};
      closing_ = {tokenizer.special(Special::kThinkEnd)};
      opens_ = tokenizer.special(Special::kThink);
      if (start != Channel::kThink && dialect.think == ThinkStyle::kAfterLastReply) phase_ = Phase::kBefore;
    }
  }
  ThinkingLimit(const ThinkingLimit& other)
      : ends_(other.ends_),
        closing_(other.closing_),
        opens_(other.opens_),
        phase_(other.phase_),
        left_(other.left_),
        next_(other.next_),
        inner_(other.inner_ ? other.inner_->clone() : nullptr) {}
  ThinkingLimit& operator=(const ThinkingLimit&) = delete;

  bool mask(std::vector<std::uint32_t>& allowed) override {
    if (phase_ != Phase::kThinking || left_ > 0) return inner_ && inner_->mask(allowed);
    const TokenId only = closing_[next_];
    std::fill(allowed.begin(), allowed.end(), 0U);
    allowed[static_cast<std::size_t>(only) / 32] = 1U << (static_cast<unsigned>(only) % 32);
    return true;
  }

  void accept(TokenId token) override {
    if (inner_) inner_->accept(token);
    if (phase_ == Phase::kBefore) {
      phase_ = token == opens_ ? Phase::kThinking : Phase::kDone;
    } else if (phase_ == Phase::kThinking && left_ > 0) {
      --left_;
      if (std::find(ends_.begin(), ends_.end(), token) != ends_.end()) phase_ = Phase::kDone;
    } else if (phase_ == Phase::kThinking && ++next_ == closing_.size()) {
      phase_ = Phase::kDone;
    }
  }

  std::unique_ptr<TokenConstraint> clone() const override { return std::make_unique<ThinkingLimit>(*this); }

 private:
  enum class Phase : std::uint8_t { kBefore, kThinking, kDone };

  std::vector<TokenId> ends_;
  std::vector<TokenId> closing_;  // what ends the channel
  TokenId opens_ = -1;
  Phase phase_ = Phase::kDone;
  std::int64_t left_ = 0;
  std::size_t next_ = 0;  // of closing_
  std::unique_ptr<TokenConstraint> inner_;
};

}  // namespace

Result<std::string> parse_effort(std::string_view value, std::string_view field, bool lenient) {
  static constexpr std::pair<std::string_view, std::string_view> kMapped[] = {
      {"minimal", "low"}, {"medium", "high"}, {"xhigh", "max"}};
  if (lenient) {
    for (const auto& [from, to] : kMapped) {
      if (value == from) return std::string(to);
    }
  }
  if (value == "low" || value == "high" || value == "max" || value == "none") return std::string(value);
  return invalid_argument("{}: expected low, high, max or none, found \"{}\"", field, value);
}

Result<ThinkingControl> thinking_control(std::string_view default_effort, const Json& body, bool lenient) {
  PERIGEE_ASSIGN_OR_RETURN(const Json* const thinking, read_object(body, "thinking"));
  PERIGEE_ASSIGN_OR_RETURN(const Json* const kwargs, read_object(body, "chat_template_kwargs"));
  std::optional<bool> on;
  if (const Json* type = thinking == nullptr ? nullptr : json_member(*thinking, "type"); type != nullptr) {
    if (*type != "enabled" && *type != "disabled") {
      return invalid_argument("thinking.type: expected enabled or disabled");
    }
    on = *type == "enabled";
  }
  std::string effort;
  if (const Json* value = json_member(body, "reasoning_effort"); value != nullptr) {
    PERIGEE_ASSIGN_OR_RETURN(effort, read_effort(*value, "reasoning_effort", lenient));
  }
  if (!on && effort == "none") on = false;
  for (const char* key : {"thinking", "enable_thinking"}) {
    PERIGEE_ASSIGN_OR_RETURN(const std::optional<bool> flag, read_flag(kwargs, key, "chat_template_kwargs"));
    if (!on) on = flag;
  }
  ThinkingControl control;
  control.thinking = on.value_or(true);
  if (!control.thinking) return control;
  if (const Json* value = thinking == nullptr ? nullptr : json_member(*thinking, "effort"); value != nullptr) {
    PERIGEE_ASSIGN_OR_RETURN(effort, read_effort(*value, "thinking.effort", lenient));
    if (effort == "none") return invalid_argument("thinking.effort: expected low, high or max, found \"none\"");
  }
  if (!default_effort.empty()) {
    control.effort = effort.empty() || effort == "none" ? std::string(default_effort) : effort;
  }
  return control;
}

std::unique_ptr<TokenConstraint> limit_thinking(const Dialect& dialect, const Tokenizer& tokenizer, Channel start,
                                                std::int64_t budget, std::unique_ptr<TokenConstraint> inner) {
  return std::make_unique<ThinkingLimit>(dialect, tokenizer, start, budget, std::move(inner));
}

}  // namespace perigee
