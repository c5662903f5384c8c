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
endif()
