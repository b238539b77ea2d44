#include "text/render.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "text/renderers.h"

namespace perigee {
namespace {

constexpr std::int64_t kPatch = 14;
constexpr std::int64_t kCell = 2 * kPatch;
constexpr std::int64_t kLongestSide = 7168;

Result<std::string> read_effort(const Json& value, const std::string& field, bool lenient) {
  if (!value.is_string()) return invalid_argument("{}: expected a string, found {}", field, value.type_name());
  const std::string effort = value.get<std::string>();
  if (effort == "low" || effort == "high" || effort == "max" || effort == "none") return effort;
  if (lenient) {
    if (effort == "minimal") return std::string("low");
    if (effort == "medium") return std::string("high");
    if (effort == "xhigh") return std::string("max");
  }
  return invalid_argument("{}: expected low, high or max, found \"{}\"", field, effort);
}

Result<std::optional<bool>> read_flag(const Json* object, const char* key, const std::string& path) {
  const Json* value = object == nullptr ? nullptr : json_member(*object, key);
  if (value == nullptr) return std::optional<bool>();
  if (!value->is_boolean()) {
    return invalid_argument("{}.{}: expected a boolean, found {}", path, key, value->type_name());
  }
  return std::optional<bool>(value->get<bool>());
}

}  // namespace

Result<Rendered> render(const Dialect& dialect, const Tokenizer& tokenizer, const RenderRequest& request) {
  PERIGEE_ASSIGN_OR_RETURN(const Conversation conversation, read_conversation(request));
  if (dialect.image_patches == 0 && conversation.images != 0) {
    return invalid_argument("messages: this model takes no images");
  }
  return dialect.format == PromptFormat::kXtml ? render_xtml(dialect, tokenizer, request, conversation)
                                               : render_im_turns(dialect, tokenizer, request, conversation);
}

std::vector<TokenId> expand_images(const Rendered& rendered) {
  std::vector<TokenId> ids;
  std::size_t from = 0;
  for (const ImageSlot& slot : rendered.images) {
    const auto at = rendered.ids.begin();
    ids.insert(ids.end(), at + static_cast<std::ptrdiff_t>(from), at + static_cast<std::ptrdiff_t>(slot.position));
    ids.insert(ids.end(), static_cast<std::size_t>(slot.tokens), rendered.ids[slot.position]);
    from = slot.position + 1;
  }
  ids.insert(ids.end(), rendered.ids.begin() + static_cast<std::ptrdiff_t>(from), rendered.ids.end());
  return ids;
}

std::int64_t image_tokens(const Dialect& dialect, const ImageSize& size) {
  if (size.width <= 0 || size.height <= 0 || dialect.image_patches == 0) return 0;
  const auto width = static_cast<double>(size.width);
  const auto height = static_cast<double>(size.height);
  const double patches = std::max(1.0, std::floor(width / kPatch)) * std::max(1.0, std::floor(height / kPatch));
  const double longest = kLongestSide;
  const double scale = std::min(
      {1.0, std::sqrt(static_cast<double>(dialect.image_patches) / patches), longest / width, longest / height});
  const auto cells = [&](double side) {
    const auto resized = std::clamp(static_cast<std::int64_t>(side * scale), std::int64_t{1}, kLongestSide);
    return (resized + kCell - 1) / kCell;
  };
  return cells(width) * cells(height);
}

Result<ThinkingControl> thinking_control(const Dialect& dialect, const Json& body, bool lenient) {
  const Json* thinking = json_member(body, "thinking");
  if (thinking != nullptr && !thinking->is_object()) {
    return invalid_argument("thinking: expected an object, found {}", thinking->type_name());
  }
  const Json* kwargs = json_member(body, "chat_template_kwargs");
  if (kwargs != nullptr && !kwargs->is_object()) {
    return invalid_argument("chat_template_kwargs: expected an object, found {}", kwargs->type_name());
  }
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
  control.effort = effort.empty() || effort == "none" ? std::string(dialect.default_effort) : effort;
  return control;
}

}  // namespace perigee
