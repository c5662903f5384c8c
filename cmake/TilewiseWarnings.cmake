# `tilewise_warnings`: what every target of this project links PRIVATE to compile under the project's warnings.
# -Wsign-conversion stays off: extents are int64_t while standard containers index by size_t, and the casts that it
# would demand hide the conversions that matter (-Wconversion still reports every narrowing).

option(TILEWISE_WARNINGS_AS_ERRORS "Fail the build on a warning" OFF)

set(tilewise_warning_flags -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion)
if(TILEWISE_WARNINGS_AS_ERRORS)
    list(APPEND tilewise_warning_flags -Werror)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION MATCHES "^12\\.")
    # GCC 12 reports an overlapping copy inside std::string's operator+ where there is none (GCC bug 105651).
    list(APPEND tilewise_warning_flags -Wno-restrict)
endif()

add_library(tilewise_warnings INTERFACE)
target_compile_options(tilewise_warnings INTERFACE
    "$<$<COMPILE_LANG_AND_ID:C,GNU,Clang,AppleClang>:${tilewise_warning_flags}>"
    "$<$<COMPILE_LANG_AND_ID:CXX,GNU,Clang,AppleClang>:${tilewise_warning_flags}>")
