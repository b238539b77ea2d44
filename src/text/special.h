// The 256 special ids at the end of a vocabulary (spec chat.md 1.3): their offsets from the first one, which is
// vocab - 256, and their spellings in the two released tables.
#pragma once

#include <cstdint>
#include <string>

namespace perigee {

inline constexpr std::int32_t kSpecialIds = 256;

enum class SpecialTable : std::uint8_t { kK3, kK2 };

// Names that start with kIm, kToolCalls, kCall, kArgument and kThink exist in the K2 table only; kOpen, kClose, kSep
// in the K3 table only. kEndOfMessage is <|end_of_msg|> in one and <|im_end|> in the other.
enum class Special : std::int32_t {
  kBos = 0,
  kEos = 1,
  kEndOfMessage = 2,
  kOpen = 3,
  kImUser = 3,
  kClose = 4,
  kImAssistant = 4,
  kSep = 5,
  kEndOfTurn = 9,
  kImSystem = 10,
  kToolCallsBegin = 11,
  kToolCallsEnd = 12,
  kCallBegin = 13,
  kArgumentBegin = 14,
  kCallEnd = 15,
  kImMiddle = 17,
  kMediaBegin = 18,
  kMediaContent = 19,
  kMediaEnd = 20,
  kMediaPad = 21,
  kThink = 22,
  kThinkEnd = 23,
  kUnknown = 254,
  kPad = 255,
};

// The spelling of the special at `offset` (0..255). A slot without a name is <|reserved_token_N|>, N its id in the
// full vocabulary.
std::string special_spelling(SpecialTable table, std::int32_t offset);

}  // namespace perigee
