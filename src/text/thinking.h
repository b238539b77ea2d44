// What a request says about thinking (spec chat.md 2.5), and the limit on its length.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/status.h"
#include "text/dialect.h"
#include "text/render.h"
#include "text/token_constraint.h"
#include "text/tokenizer.h"

namespace perigee {

struct ThinkingControl {
  bool thinking = true;
  std::string effort;  // as the renderer takes it; empty: none
};

// low, high or max; "none" too, which switches thinking off. `lenient` maps the names of other vendors (minimal,
// medium, xhigh) instead of refusing them. Errors are kInvalidArgument and begin with `field` and a colon.
Result<std::string> parse_effort(std::string_view value, std::string_view field, bool lenient);

// thinking, reasoning_effort and chat_template_kwargs of a request body. `default_effort` is the dialect's: where that
// is empty there are no efforts. Errors as above.
Result<ThinkingControl> thinking_control(std::string_view default_effort, const Json& body, bool lenient);

// After `budget` tokens of thinking the only way on is the end of it; then, and before, `inner` (which may be null)
// rules. `start` is Rendered::start. The tokens that close the channel do not count.
std::unique_ptr<TokenConstraint> limit_thinking(const Dialect& dialect, const Tokenizer& tokenizer, Channel start,
                                                std::int64_t budget, std::unique_ptr<TokenConstraint> inner);

}  // namespace perigee
