#include <string_view>

#include "text/vocabulary.h"

// The assembler copies the file into the program: no generated source, no compile time.
asm(R"(
.section .rodata
.balign 16
perigee_tiktoken_begin:
.incbin ")" PERIGEE_TIKTOKEN_MODEL R"("
perigee_tiktoken_end:
.byte 0
.globl perigee_tiktoken_begin
.globl perigee_tiktoken_end
.previous
)");

extern "C" {
extern const char perigee_tiktoken_begin[];
extern const char perigee_tiktoken_end[];
}

namespace perigee {

std::string_view embedded_vocabulary() {
  return {perigee_tiktoken_begin, static_cast<std::size_t>(perigee_tiktoken_end - perigee_tiktoken_begin)};
}

}  // namespace perigee
