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

}  // namespace perigee
