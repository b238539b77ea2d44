# Build rules shared by every folder.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
# Presets that visitors build join the sources of a folder (names in anonymous namespaces are unique in a folder; tests stay apart);
# `debug` compiles each file alone, which shows missing includes.
set(CMAKE_UNITY_BUILD_BATCH_SIZE 8)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

find_program(CCACHE ccache)
if(CCACHE)
  # What ccache asks for to keep files that use a precompiled header.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE})
  add_compile_options($<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
endif()

add_library(perigee_options INTERFACE)
# Contraction stays off everywhere: a compiler that fuses a product and a sum in one code shape and not
# in another would break the same-bits contract. Kernels ask for FMA by intrinsic.
target_compile_options(perigee_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Werror -ffp-contract=off)
# At -O1 g++ 12 takes a std::optional for uninitialised and a small string for its buffer; these are judged at -O2.
set(perigee_no_flow_warnings $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized> $<$<CXX_COMPILER_ID:GNU>:-Wno-array-bounds>)
set(perigee_no_flow_warnings_test ${perigee_no_flow_warnings} $<$<CXX_COMPILER_ID:GNU>:-Wno-stringop-overflow>)
if(NOT CMAKE_BUILD_TYPE STREQUAL Release)
  target_compile_options(perigee_options INTERFACE ${perigee_no_flow_warnings})
endif()
# In a unity build every source is an include, so each local type of a source looks like one of a header.
if(CMAKE_UNITY_BUILD)
  target_compile_options(perigee_options INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
endif()
# g++ judges the warnings; clang builds the fuzz harnesses and has other opinions.
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  target_compile_options(perigee_options INTERFACE -Wno-error)
endif()
target_include_directories(perigee_options INTERFACE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
if(PERIGEE_SANITIZE)
  target_compile_options(perigee_options INTERFACE -fsanitize=${PERIGEE_SANITIZE} -fno-omit-frame-pointer -g1)
  target_link_options(perigee_options INTERFACE -fsanitize=${PERIGEE_SANITIZE})
  # A fence in a library's header that ThreadSanitizer does not see: a warning of g++, and no fault of ours.
  if(PERIGEE_SANITIZE STREQUAL thread)
    target_compile_options(perigee_options INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-tsan>)
  endif()
endif()

# ThreadSanitizer slows the products of the property tests some thirty times, AddressSanitizer some ten times.
set(perigee_test_seconds 900)
# What the time limits inside scripts that run the program are multiplied by.
set(perigee_patience 1)
if(PERIGEE_SANITIZE)
  set(perigee_test_seconds 5400)
  set(perigee_patience 4)
endif()
if(PERIGEE_SANITIZE STREQUAL thread)
  set(perigee_patience 20)
endif()

# perigee_module(NAME [DEPENDS lib...] [NO_PRECOMPILED] [COLD])
# COLD: compiled with -O1. Where no token waits for the code, -O2 costs a visitor's build a third more and gains nothing.
# A library perigee_NAME of the folder's *.cc files (sub-folders included), and, where *_test.cc files stand
# beside them, one test program perigee_NAME_test registered with ctest under NAME.
function(perigee_module name)
  cmake_parse_arguments(ARG "NO_PRECOMPILED;COLD" "" "DEPENDS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$")
  if(sources)
    add_library(perigee_${name} STATIC ${sources})
    target_link_libraries(perigee_${name} PUBLIC perigee_options ${ARG_DEPENDS})
    if(NOT ARG_NO_PRECOMPILED)
      target_precompile_headers(perigee_${name} REUSE_FROM perigee_precompiled)
    endif()
    if(ARG_COLD)
      target_compile_options(perigee_${name} PRIVATE -O1 ${perigee_no_flow_warnings})
    endif()
  else()
    add_library(perigee_${name} INTERFACE)
    target_link_libraries(perigee_${name} INTERFACE perigee_options ${ARG_DEPENDS})
  endif()
  if(PERIGEE_BUILD_TESTS AND tests)
    perigee_test(${name} SOURCES ${tests} DEPENDS perigee_${name})
  endif()
endfunction()

# perigee_test(NAME SOURCES file... [DEPENDS lib...])  A GoogleTest program, one ctest entry.
# Tests find the repository's data by PERIGEE_SOURCE_DIR.
function(perigee_test name)
  cmake_parse_arguments(ARG "" "" "DEPENDS;SOURCES" ${ARGN})
  add_executable(perigee_${name}_test ${ARG_SOURCES})
  target_link_libraries(perigee_${name}_test PRIVATE perigee_options ${ARG_DEPENDS} GTest::gtest_main rapidcheck rapidcheck_gtest)
  set_target_properties(perigee_${name}_test PROPERTIES UNITY_BUILD OFF)
  target_precompile_headers(perigee_${name}_test REUSE_FROM perigee_precompiled_test)
  target_compile_options(perigee_${name}_test PRIVATE -O1 ${perigee_no_flow_warnings_test})
  target_compile_definitions(perigee_${name}_test PRIVATE PERIGEE_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  add_test(NAME ${name} COMMAND perigee_${name}_test --gtest_brief=1)
  set_tests_properties(${name} PROPERTIES TIMEOUT ${perigee_test_seconds})
endfunction()
