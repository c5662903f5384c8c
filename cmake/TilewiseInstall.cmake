# Install rules: headers, library, CLI program, and the package that `find_package(tilewise)` reads.
# After installation a user links `tilewise::tilewise`, the same name that the build tree offers.

include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

set(tilewise_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/tilewise")

install(TARGETS tilewise EXPORT tilewise-targets
    RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}"
    LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
    ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/tilewise" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
    FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")

if(TARGET tilewise_cli)
    # The installed program finds the library beside it, wherever the prefix is moved to.
    file(RELATIVE_PATH lib_from_bin "/${CMAKE_INSTALL_BINDIR}" "/${CMAKE_INSTALL_LIBDIR}")
    set_target_properties(tilewise_cli PROPERTIES INSTALL_RPATH "$ORIGIN/${lib_from_bin}")
    install(TARGETS tilewise_cli RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
endif()

# A static libtilewise leaves the CUDA runtime to the link of the program that uses it.
get_target_property(tilewise_type tilewise TYPE)
set(tilewise_find_cuda "")
if(TARGET tilewise_cuda AND tilewise_type STREQUAL "STATIC_LIBRARY")
    set(tilewise_find_cuda "find_dependency(CUDAToolkit)")
endif()

install(EXPORT tilewise-targets NAMESPACE tilewise:: DESTINATION "${tilewise_package_dir}")
configure_package_config_file("${CMAKE_CURRENT_LIST_DIR}/tilewise-config.cmake.in"
    "${PROJECT_BINARY_DIR}/tilewise-config.cmake" INSTALL_DESTINATION "${tilewise_package_dir}")
# Below 1.0 a minor version may change the ABI, so only the same minor version is compatible.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/tilewise-config-version.cmake"
    VERSION ${PROJECT_VERSION} COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/tilewise-config.cmake" "${PROJECT_BINARY_DIR}/tilewise-config-version.cmake"
    DESTINATION "${tilewise_package_dir}")
