# Helpers of the root: add a folder if it is there, and make a library from the OBJECT libraries that exist.

# Adds `folder` (relative to the root) when it holds a CMakeLists.txt.
function(tilewise_add_folder folder)
    if(EXISTS "${PROJECT_SOURCE_DIR}/${folder}/CMakeLists.txt")
        add_subdirectory("${PROJECT_SOURCE_DIR}/${folder}" "${PROJECT_BINARY_DIR}/${folder}")
    endif()
endfunction()

# Makes library `name` of `kind` (STATIC, SHARED, or "" for what BUILD_SHARED_LIBS says) from the object libraries.
# $<TARGET_OBJECTS> instead of target_link_libraries: an exported library that links OBJECT targets would drag their
# names into the installed package.
function(tilewise_add_library name kind)
    add_library(${name} ${kind})
    foreach(part IN ITEMS tilewise_core tilewise_cpu tilewise_cuda tilewise_api)
        if(TARGET ${part})
            target_sources(${name} PRIVATE $<TARGET_OBJECTS:${part}>)
        endif()
    endforeach()
    set_target_properties(${name} PROPERTIES LINKER_LANGUAGE CXX)
    target_compile_features(${name} PUBLIC cxx_std_20)
    target_include_directories(${name} PUBLIC
        $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
        $<INSTALL_INTERFACE:include>)
    target_link_libraries(${name} PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
    if(TARGET tilewise_cuda)
        target_link_libraries(${name} PRIVATE CUDA::cudart_static)
    endif()

    # A symbol that no part defines must fail here, not when a user's program loads the library. The sanitizers'
    # run-time libraries are linked into the program, so their symbols are undefined in a shared library by design.
    get_target_property(type ${name} TYPE)
    if(type STREQUAL "SHARED_LIBRARY" AND CMAKE_SYSTEM_NAME STREQUAL "Linux")
        if(NOT TILEWISE_SANITIZE)
            target_link_options(${name} PRIVATE LINKER:--no-undefined)
        endif()
        set(exports "${PROJECT_SOURCE_DIR}/src/api/exports.map")
        target_link_options(${name} PRIVATE "LINKER:--version-script=${exports}")
        set_target_properties(${name} PROPERTIES LINK_DEPENDS "${exports}")
    endif()
endfunction()
