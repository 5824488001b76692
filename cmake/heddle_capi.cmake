# The C interface, src/capi and the X_c.cpp of the ops: libheddle_c.so with the C functions as its only symbols, for other
# languages, and libheddle_c.a to be linked together with libheddle.a. Their tests are programs test_capi and test_capi_cuda.

block()
  set(BUILD_SHARED_LIBS OFF)
  heddle_library(heddle_c_static)
endblock()
file(GLOB_RECURSE shared CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/capi/*.cpp)
file(GLOB_RECURSE adapters CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/ops/*.cpp)
list(FILTER adapters INCLUDE REGEX ${HEDDLE_C_ADAPTERS})
heddle_add_sources(heddle_c_static capi ${shared} ${adapters})
target_link_libraries(heddle_c_static PUBLIC heddle)
set_target_properties(heddle_c_static PROPERTIES OUTPUT_NAME heddle_c)

file(STRINGS ${PROJECT_SOURCE_DIR}/include/heddle/c_api.h HEDDLE_ABI_VERSION REGEX "define HEDDLE_ABI_VERSION")
string(REGEX REPLACE ".* ([0-9]+)$" "\\1" HEDDLE_ABI_VERSION "${HEDDLE_ABI_VERSION}")

set(symbols ${PROJECT_SOURCE_DIR}/src/capi/heddle_c.map)
add_library(heddle_c SHARED $<TARGET_OBJECTS:heddle_c_static>)
target_link_libraries(heddle_c PRIVATE heddle)
target_link_options(heddle_c PRIVATE -Wl,--version-script=${symbols})
target_include_directories(heddle_c INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>)
set_target_properties(heddle_c PROPERTIES
  LINK_DEPENDS ${symbols} VERSION ${PROJECT_VERSION} SOVERSION ${HEDDLE_ABI_VERSION})
add_library(heddle::c ALIAS heddle_c)
add_library(heddle::c_static ALIAS heddle_c_static)
