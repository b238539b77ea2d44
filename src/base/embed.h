// A file as bytes of the program: the assembler copies it, so there is no generated source and no compile time.
// Dependency scanning does not see such a file: CMake names it in OBJECT_DEPENDS.
#pragma once

#include <cstddef>
#include <string_view>

// At global scope, once in the program. `path` is a string literal.
#define PERIGEE_EMBED(symbol, path)                                                                                 \
  __asm__(".section .rodata\n.balign 16\n.global " #symbol "\n" #symbol ":\n.incbin \"" path "\"\n.global " #symbol \
          "_end\n" #symbol "_end:\n.byte 0\n.previous\n");                                                          \
  extern "C" const char symbol[];                                                                                   \
  extern "C" const char symbol##_end[];

// What PERIGEE_EMBED(symbol, ...) holds. A zero byte follows it.
#define PERIGEE_EMBEDDED(symbol) (std::string_view(symbol, static_cast<std::size_t>(symbol##_end - symbol)))
