# The Python package: its module, an importable copy in the build tree, and what a wheel holds.
#
#   tilewise/*.py, py.typed, *.pyi     sources
#   tilewise/_native.abi3.so           finds the library at $ORIGIN/lib
#   tilewise/lib/libtilewise.so.N      the library, under its SONAME only: a wheel has no symbolic links
#   tilewise/bin/tilewise              the command line program, if it is built: doctor() runs it

set(tilewise_python_dir "tilewise" CACHE INTERNAL "where the package goes, relative to the install prefix")

# A module for the limited API: no version of Python in its name and no symbol that only one version has. CMake learnt of
# such modules (USE_SABI) in 3.26.
function(tilewise_add_python_module target name)
    add_library(${target} MODULE ${ARGN})
    target_compile_definitions(${target} PRIVATE Py_LIMITED_API=0x030A0000)
    target_include_directories(${target} SYSTEM PRIVATE ${Python3_INCLUDE_DIRS})
    target_link_libraries(${target} PRIVATE tilewise::tilewise tilewise_warnings)
    set_target_properties(${target} PROPERTIES
        PREFIX "" OUTPUT_NAME ${name} SUFFIX ".abi3.so"
        LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/python/tilewise"
        INSTALL_RPATH "$ORIGIN/lib")
endfunction()

# Links the Python files into the folder where the module is built, so that an edit needs no build.
function(tilewise_stage_python_package target from to)
    file(GLOB_RECURSE files RELATIVE "${from}" CONFIGURE_DEPENDS "${from}/*.py" "${from}/*.pyi" "${from}/py.typed")
    foreach(file IN LISTS files)
        get_filename_component(folder "${to}/${file}" DIRECTORY)
        file(MAKE_DIRECTORY "${folder}")
        file(CREATE_LINK "${from}/${file}" "${to}/${file}" SYMBOLIC)
    endforeach()
    if(TARGET tilewise_cli)
        file(MAKE_DIRECTORY "${to}/bin")
        add_custom_command(TARGET ${target} POST_BUILD COMMAND
            ${CMAKE_COMMAND} -E create_symlink "$<TARGET_FILE:tilewise_cli>" "${to}/bin/tilewise")
        add_dependencies(${target} tilewise_cli)
    endif()
endfunction()

function(tilewise_install_python_package target)
    install(DIRECTORY "${PROJECT_SOURCE_DIR}/python/tilewise/" DESTINATION "${tilewise_python_dir}" COMPONENT python
        FILES_MATCHING PATTERN "*.py" PATTERN "*.pyi" PATTERN "py.typed" PATTERN "__pycache__" EXCLUDE)
    install(TARGETS ${target} LIBRARY DESTINATION "${tilewise_python_dir}" COMPONENT python)
    install(FILES "$<TARGET_FILE:tilewise>" DESTINATION "${tilewise_python_dir}/lib" COMPONENT python
        RENAME "$<TARGET_SONAME_FILE_NAME:tilewise>")
    if(TARGET tilewise_cli)
        install(PROGRAMS "$<TARGET_FILE:tilewise_cli>" DESTINATION "${tilewise_python_dir}/bin" COMPONENT python)
    endif()
endfunction()
