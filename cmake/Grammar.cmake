# llguidance (Rust) as one static library behind its C header; third_party/grammar names the crate and its lock file.
# Cargo writes to PERIGEE_GRAMMAR_TARGET_DIR only. Its default is the environment variable of that name, else
# ~/.cache/perigee/grammar where that directory exists (several build trees then share one build), else a
# directory of this build tree.
find_program(CARGO cargo REQUIRED)

if(DEFINED ENV{PERIGEE_GRAMMAR_TARGET_DIR})
  set(grammar_target_default $ENV{PERIGEE_GRAMMAR_TARGET_DIR})
elseif(IS_DIRECTORY $ENV{HOME}/.cache/perigee/grammar)
  set(grammar_target_default $ENV{HOME}/.cache/perigee/grammar)
else()
  set(grammar_target_default ${CMAKE_BINARY_DIR}/grammar)
endif()
set(PERIGEE_GRAMMAR_TARGET_DIR ${grammar_target_default} CACHE PATH "Where cargo puts the grammar library")

set(grammar_dir ${CMAKE_SOURCE_DIR}/third_party/grammar)
set(grammar_library ${PERIGEE_GRAMMAR_TARGET_DIR}/release/libperigee_grammar.a)
set(grammar_stamp ${CMAKE_BINARY_DIR}/grammar.stamp)
add_custom_command(OUTPUT ${grammar_stamp} BYPRODUCTS ${grammar_library}
  COMMAND ${CMAKE_COMMAND} -E env CARGO_TARGET_DIR=${PERIGEE_GRAMMAR_TARGET_DIR} ${CARGO} build --release --locked --quiet
  COMMAND ${CMAKE_COMMAND} -E touch ${grammar_stamp}
  WORKING_DIRECTORY ${grammar_dir}
  DEPENDS ${grammar_dir}/Cargo.toml ${grammar_dir}/Cargo.lock ${grammar_dir}/src/lib.rs
  COMMENT "Building the grammar library (cargo)" VERBATIM)
# In ALL and without prerequisites, so that cargo starts with the first C++ files. Targets name the file itself: Ninja
# makes their link step wait for it, and their compilations do not.
add_custom_target(perigee_grammar_build ALL DEPENDS ${grammar_stamp})

add_library(perigee_grammar INTERFACE)
target_include_directories(perigee_grammar SYSTEM INTERFACE ${grammar_dir})
target_link_libraries(perigee_grammar INTERFACE ${grammar_library} Threads::Threads ${CMAKE_DL_LIBS} m)
