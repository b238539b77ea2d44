#include "text/prompt_builder.h"

#include <utility>

namespace perigee {

void PromptBuilder::special(Special special) {
  flush();
  rendered_.ids.push_back(tokenizer_.special(special));
}

void PromptBuilder::text(std::string_view text) {
  if (join_) {
    pending_ += text;
  } else {
    tokenizer_.encode(text, rendered_.ids);
  }
}

void PromptBuilder::splice(std::span<const TokenId> ids) {
  flush();
  rendered_.ids.insert(rendered_.ids.end(), ids.begin(), ids.end());
}

void PromptBuilder::image(std::string_view label, std::size_t image, std::int64_t tokens) {
  special(Special::kMediaBegin);
  text(label);
  special(Special::kMediaContent);
  rendered_.images.push_back({rendered_.ids.size(), image, tokens});
  image_extra_ += tokens - 1;
  special(Special::kMediaPad);
  special(Special::kMediaEnd);
}

std::int64_t PromptBuilder::tokens() {
  flush();
  return static_cast<std::int64_t>(rendered_.ids.size()) + image_extra_;
}

Rendered PromptBuilder::take() {
  rendered_.prompt_tokens = tokens();
  return std::move(rendered_);
}

void PromptBuilder::flush() {
  if (pending_.empty()) return;
  tokenizer_.encode(pending_, rendered_.ids);
  pending_.clear();
}

}  // namespace perigee
