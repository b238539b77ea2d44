// A request document of any shape is refused with a message or gives a prompt whose parts agree. The first byte picks
// the dialect.
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "text/conversation.h"
#include "text/render.h"
#include "text/thinking.h"

using namespace perigee;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  static const Dialect* const kDialects[] = {&kDialectK3, &kDialectK2Instruct, &kDialectK2Thinking, &kDialectK25,
                                             &kDialectKimiLinear};
  const Dialect& dialect = *kDialects[data[0] % 5];
  const Tokenizer tokenizer = Tokenizer::embedded(dialect.specials);
  const auto body = parse_json({reinterpret_cast<const char*>(data) + 1, size - 1});
  if (!body.ok()) return 0;
  RenderRequest request;
  request.messages = json_member(*body, "messages");
  request.tools = json_member(*body, "tools");
  request.tool_choice = json_member(*body, "tool_choice");
  request.response_format = json_member(*body, "response_format");
  request.images.assign(data[0] / 5 % 4, {640, 480});
  if (const auto control = thinking_control(dialect.default_effort, *body, data[0] >= 128); control.ok()) {
    request.thinking = control->thinking;
    request.effort = control->effort;
  }
  const auto rendered = render(dialect, tokenizer, request);
  if (!rendered.ok()) {
    if (rendered.status().message().find(": ") == std::string::npos) std::abort();
    return 0;
  }
  const auto expanded = static_cast<std::int64_t>(expand_images(*rendered).size());
  const bool stub = rendered->prompt_tokens + 3 == expanded;
  if (!stub && rendered->prompt_tokens != expanded) std::abort();
  if (rendered->system_tokens < 0 || rendered->system_tokens > expanded) std::abort();
  return 0;
}
