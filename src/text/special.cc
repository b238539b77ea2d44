#include "text/special.h"

#include <array>
#include <string_view>

namespace perigee {
namespace {

constexpr std::int32_t kFirstSpecialOfReleases = 163584;

struct Name {
  std::int32_t offset;
  std::string_view k3;  // empty: reserved
  std::string_view k2;
};

constexpr std::array kNames = {
    Name{0, "[BOS]", "[BOS]"},
    Name{1, "[EOS]", "[EOS]"},
    Name{2, "<|end_of_msg|>", "<|im_end|>"},
    Name{3, "<|open|>", "<|im_user|>"},
    Name{4, "<|close|>", "<|im_assistant|>"},
    Name{5, "<|sep|>", ""},
    Name{6, "[start_header_id]", "<|start_header_id|>"},
    Name{7, "[end_header_id]", "<|end_header_id|>"},
    Name{9, "[EOT]", "[EOT]"},
    Name{10, "", "<|im_system|>"},
    Name{11, "", "<|tool_calls_section_begin|>"},
    Name{12, "", "<|tool_calls_section_end|>"},
    Name{13, "", "<|tool_call_begin|>"},
    Name{14, "", "<|tool_call_argument_begin|>"},
    Name{15, "", "<|tool_call_end|>"},
    Name{17, "", "<|im_middle|>"},
    Name{18, "<|media_begin|>", "<|media_begin|>"},
    Name{19, "<|media_content|>", "<|media_content|>"},
    Name{20, "<|media_end|>", "<|media_end|>"},
    Name{21, "<|media_pad|>", "<|media_pad|>"},
    Name{22, "", "<think>"},
    Name{23, "", "</think>"},
    Name{65, "<osagent_mode>", ""},
    Name{254, "[UNK]", "[UNK]"},
    Name{255, "[PAD]", "[PAD]"},
};

}  // namespace

std::string special_spelling(SpecialTable table, std::int32_t offset) {
  for (const Name& name : kNames) {
    if (name.offset != offset) continue;
    const std::string_view spelling = table == SpecialTable::kK3 ? name.k3 : name.k2;
    if (!spelling.empty()) return std::string(spelling);
  }
  return "<|reserved_token_" + std::to_string(kFirstSpecialOfReleases + offset) + "|>";
}

}  // namespace perigee
