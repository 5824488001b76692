# The C interfaces. Of the ops, src/capi and their X_c.cpp: libheddle_c.so with the C functions as its only symbols, for other
# languages, and libheddle_c.a to be linked together with libheddle.a. Their tests, src/capi/test, are programs test_capi and
# test_capi_cuda.
# Of the engine, src/engine/bindings/*_c.cpp: heddle_c_engine() below.

block()
  set(BUILD_SHARED_LIBS OFF)
  heddle_library(heddle_c_static)
endblock()
file(GLOB_RECURSE shared CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/capi/*.cpp)
list(FILTER shared EXCLUDE REGEX /test/rows/)
file(GLOB_RECURSE adapters CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/ops/*.cpp)
list(FILTER adapters INCLUDE REGEX ${HEDDLE_C_ADAPTERS})
heddle_add_sources(heddle_c_static capi ${shared} ${adapters})
target_link_libraries(heddle_c_static PUBLIC heddle)
if(HEDDLE_BUILD_TESTS)
  file(GLOB rows CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/capi/test/rows/*.cpp)
  add_library(heddle_capi_rows OBJECT EXCLUDE_FROM_ALL ${rows})
  target_link_libraries(heddle_capi_rows PRIVATE heddle)
  heddle_compile_as_test(heddle_capi_rows)
  foreach(test IN ITEMS test_capi test_capi_cuda)
    if(TARGET ${test})
      target_sources(${test} PRIVATE $<TARGET_OBJECTS:heddle_capi_rows>)
    endif()
  endforeach()
endif()
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

# libheddle_c_engine.so, to be called after library heddle_engine is defined. It holds CUDA code where the programs do. Its tests are program
# test_capi_engine.
function(heddle_c_engine)
  set(header ${PROJECT_SOURCE_DIR}/include/heddle/c_engine.h)
  set(symbols ${PROJECT_SOURCE_DIR}/src/engine/bindings/heddle_c_engine.map)
  file(STRINGS ${header} version REGEX "define HEDDLE_ENGINE_ABI_VERSION")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${header})
  string(REGEX REPLACE ".* ([0-9]+)$" "\\1" version "${version}")
  set(folder ${PROJECT_SOURCE_DIR}/src/engine/bindings)
  add_library(heddle_c_engine SHARED ${folder}/engine_c.cpp ${folder}/engine_arguments_c.cpp ${folder}/receipt_c.cpp
    ${PROJECT_SOURCE_DIR}/src/capi/last_error.cpp)
  target_link_libraries(heddle_c_engine PRIVATE ${HEDDLE_PROGRAM_ENGINE} heddle_flags)
  target_link_options(heddle_c_engine PRIVATE -Wl,--version-script=${symbols})
  target_include_directories(heddle_c_engine PRIVATE ${PROJECT_SOURCE_DIR}/src
    INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>)
  set_target_properties(heddle_c_engine PROPERTIES LINK_DEPENDS ${symbols} VERSION ${PROJECT_VERSION} SOVERSION ${version})
  add_library(heddle::c_engine ALIAS heddle_c_engine)
  if(HEDDLE_BUILD_TESTS)
    heddle_test(heddle_c_engine capi_engine SOURCES ${folder}/test/engine_c_test.cpp ${folder}/test/engine_shares_c_test.cpp
      ${folder}/test/receipt_c_test.cpp)
    target_link_libraries(test_capi_engine PRIVATE heddle_engine nlohmann_json::nlohmann_json)
  endif()
endfunction()
