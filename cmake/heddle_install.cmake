# What `cmake --install` puts down: libraries, public headers, the package for find_package(heddle), one for pkg-config.
# (The program installs itself in apps/.) Target heddle_installed builds all of it and nothing else.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set_target_properties(heddle_engine PROPERTIES EXPORT_NAME engine)
set_target_properties(heddle_c PROPERTIES EXPORT_NAME c)
set_target_properties(heddle_c_static PROPERTIES EXPORT_NAME c_static)
set_target_properties(heddle_c_engine PROPERTIES EXPORT_NAME c_engine)
install(TARGETS heddle heddle_engine heddle_c heddle_c_static heddle_c_engine EXPORT heddle_targets)
add_custom_target(heddle_installed DEPENDS heddle heddle_engine heddle_c heddle_c_static heddle_c_engine)
if(TARGET heddle_program)
  add_dependencies(heddle_installed heddle_program)
endif()
if(TARGET heddle_serve_program)
  add_dependencies(heddle_installed heddle_serve_program)
endif()
install(EXPORT heddle_targets NAMESPACE heddle:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/heddle)
install(DIRECTORY include/heddle DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(FILES ${CMAKE_BINARY_DIR}/include/heddle/config.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/heddle)

configure_package_config_file(cmake/heddle-config.cmake.in heddle-config.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/heddle)
write_basic_package_version_file(heddle-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/heddle-config.cmake ${CMAKE_CURRENT_BINARY_DIR}/heddle-config-version.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/heddle)

string(REGEX REPLACE "[^/]+" ".." HEDDLE_PC_TO_PREFIX ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
foreach(package IN ITEMS heddle heddle_c heddle_c_engine)
  configure_file(cmake/${package}.pc.in ${package}.pc @ONLY)
endforeach()
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/heddle.pc ${CMAKE_CURRENT_BINARY_DIR}/heddle_c.pc
              ${CMAKE_CURRENT_BINARY_DIR}/heddle_c_engine.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
