// The two prompt formats behind render(). The request's images have been counted and the conversation checked.
#pragma once

#include "text/conversation.h"
#include "text/render.h"

namespace perigee {

Result<Rendered> render_xtml(const Dialect& dialect, const Tokenizer& tokenizer, const RenderRequest& request,
                             const Conversation& conversation);
Result<Rendered> render_im_turns(const Dialect& dialect, const Tokenizer& tokenizer, const RenderRequest& request,
                                 const Conversation& conversation);

// The tools of K2.5 as TypeScript (spec chat.md 4.1).
Result<std::string> typescript_tools(const Json& tools);

}  // namespace perigee
