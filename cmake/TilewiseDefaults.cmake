# Language level, visibility, build type, output folders and compiler cache for every target below this point.
# A project that embeds Tilewise with add_subdirectory keeps its own build type, folders and launcher: those are set
# only when Tilewise is the top-level project.

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)

# The OBJECT libraries end in a shared library whose only visible symbols are those of the C header.
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

if(TILEWISE_IS_TOP_LEVEL)
    set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
    set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
    set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
    set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
    # bin/ and lib/ of a build tree can be copied to another place, or to another machine, and still find each other.
    set(CMAKE_BUILD_RPATH_USE_ORIGIN ON)

    get_property(is_multi_config GLOBAL PROPERTY GENERATOR_IS_MULTI_CONFIG)
    if(NOT is_multi_config AND NOT CMAKE_BUILD_TYPE)
        set(CMAKE_BUILD_TYPE Release CACHE STRING "Release, RelWithDebInfo or Debug" FORCE)
    endif()

    find_program(TILEWISE_CCACHE ccache DOC "Compiler cache, used when found")
    mark_as_advanced(TILEWISE_CCACHE)
    foreach(language IN ITEMS C CXX)
        if(TILEWISE_CCACHE AND NOT DEFINED CMAKE_${language}_COMPILER_LAUNCHER)
            set(CMAKE_${language}_COMPILER_LAUNCHER "${TILEWISE_CCACHE}")
        endif()
    endforeach()
endif()
