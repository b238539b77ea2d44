// Collects the segments of a prompt and encodes them: each alone (K3), or all ordinary text between two specials as
// one (K2 family).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "text/render.h"

namespace perigee {

class PromptBuilder {
 public:
  PromptBuilder(const Tokenizer& tokenizer, bool join) : tokenizer_(tokenizer), join_(join) {}

  void special(Special special);
  void text(std::string_view text);
  void splice(std::span<const TokenId> ids);
  // The image block; `label` is the text between <|media_begin|> and <|media_content|>.
  void image(std::string_view label, std::size_t image, std::int64_t tokens);

  // Tokens so far, images expanded.
  std::int64_t tokens();
  // ids, images and prompt_tokens; the rest is the renderer's to fill.
  Rendered take();

 private:
  void flush();

  const Tokenizer& tokenizer_;
  bool join_;
  std::string pending_;
  std::int64_t image_extra_ = 0;  // what expansion adds
  Rendered rendered_;
};

}  // namespace perigee
