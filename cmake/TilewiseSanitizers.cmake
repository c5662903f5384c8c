# TILEWISE_SANITIZE=address|thread instruments every target: a sanitizer that sees only part of a program reports
# accesses of the other part wrongly or not at all, so this is a property of the build, not of a target.
# A finding ends the program (no recovery): a test run cannot pass over it. The presets use it with -O1 and assertions:
# GCC 12 takes half as long again to compile instrumented code at -O2.

if(TILEWISE_SANITIZE STREQUAL "address")
    set(tilewise_sanitizers address,undefined)
elseif(TILEWISE_SANITIZE STREQUAL "thread")
    set(tilewise_sanitizers thread)
elseif(NOT TILEWISE_SANITIZE STREQUAL "")
    message(FATAL_ERROR "TILEWISE_SANITIZE: \"${TILEWISE_SANITIZE}\" is unknown; allowed are address, thread and empty")
endif()

if(TILEWISE_SANITIZE)
    # Line numbers are all that a report needs; full debug information would multiply the size of the objects.
    add_compile_options(-fsanitize=${tilewise_sanitizers} -fno-sanitize-recover=all -fno-omit-frame-pointer -g1)
    add_link_options(-fsanitize=${tilewise_sanitizers})
    # GCC's detection of uses of the stack after return (at run time on by default since GCC 13) keeps variables in
    # frames of its own, whose alignment it gets wrong for 64-byte vectors: a zeroed float[16] of AVX-512 code faults in
    # GCC 12.2, 13.3 and 14.2, most often beside a stack protector. Only one such case is mended, that of
    # https://gcc.gnu.org/PR110027, so the detection is left out of the code; no run-time option is needed.
    if(TILEWISE_SANITIZE STREQUAL "address" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
        add_compile_options("SHELL:--param asan-use-after-return=0")
    endif()
endif()
