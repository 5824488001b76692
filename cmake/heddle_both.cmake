# Two libraries of each: heddle and heddle_engine, with CUDA code where the build has CUDA, and heddle_cpu and heddle_engine_cpu, without,
# for programs that run on the CPU alone. The sources that know the difference include heddle/config.h; they are few and light, and are
# compiled for either. All others are compiled once, as objects of heddle_once and heddle_engine_once. Where the build has no CUDA, the
# second names mean the first libraries.

# HEDDLE_PROGRAM_ENGINE is which of the two the programs and libheddle_c_engine.so are linked with.
set(default AUTO)
if(DEFINED ENV{HEDDLE_GPU_PROGRAMS})  # as in HEDDLE_GPU_PROGRAMS=OFF make demo
  set(default $ENV{HEDDLE_GPU_PROGRAMS})
endif()
set(HEDDLE_GPU_PROGRAMS ${default} CACHE STRING
  "Programs with CUDA code: AUTO (where the build has CUDA and this machine a GPU), ON or OFF")
set_property(CACHE HEDDLE_GPU_PROGRAMS PROPERTY STRINGS AUTO ON OFF)
set(HEDDLE_PROGRAM_ENGINE heddle_engine_cpu)
if(HEDDLE_GPU_PROGRAMS STREQUAL "ON" AND NOT HEDDLE_WITH_CUDA)
  message(FATAL_ERROR "heddle: HEDDLE_GPU_PROGRAMS is ON, but this build has no CUDA (docs/cuda.md)")
elseif(HEDDLE_GPU_PROGRAMS STREQUAL "ON" OR (HEDDLE_GPU_PROGRAMS STREQUAL "AUTO" AND EXISTS /dev/nvidiactl))
  if(HEDDLE_WITH_CUDA)
    set(HEDDLE_PROGRAM_ENGINE heddle_engine)
    message(STATUS "heddle: the programs have CUDA code")
  elseif(NOT HEDDLE_CUDA STREQUAL "OFF")
    message(STATUS "heddle: this machine has a GPU, but no nvcc is found: the programs will run on the CPU. "
      "tools/cuda_toolkit installs it in build/cuda")
  endif()
endif()

# For the objects compiled once: a config.h that stops the compiler, so that what is sorted wrongly cannot be built.
set(HEDDLE_ONCE_FOLDER ${CMAKE_BINARY_DIR}/once)
file(CONFIGURE OUTPUT ${HEDDLE_ONCE_FOLDER}/heddle/config.h @ONLY CONTENT [[
#error "compiled once for builds with and without CUDA: a source that came to include heddle/config.h needs `touch CMakeLists.txt`"
]])
if(HEDDLE_WITH_CUDA)
  set(HEDDLE_WITH_CUDA_VALUE false)
  configure_file(include/heddle/config.h.in ${CMAKE_BINARY_DIR}/cpu/heddle/config.h @ONLY)
endif()

# The headers of src that depend on heddle/config.h, by path in a regular expression: they include it, or one that does.
set(HEDDLE_CONFIGURED_HEADERS "heddle/config[.]h")
file(GLOB_RECURSE headers RELATIVE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/src/*.h)
set(before)
while(NOT before STREQUAL HEDDLE_CONFIGURED_HEADERS)
  set(before "${HEDDLE_CONFIGURED_HEADERS}")
  foreach(header IN LISTS headers)
    file(STRINGS ${PROJECT_SOURCE_DIR}/src/${header} lines REGEX "^#include \"(${before})\"" LIMIT_COUNT 1)
    if(lines)
      list(REMOVE_ITEM headers ${header})
      string(APPEND HEDDLE_CONFIGURED_HEADERS "|${header}")
    endif()
  endforeach()
endwhile()

# Many small sources are compiled as one: reading the same headers and instantiating the same templates is most of what each of them takes.
# On by default in optimised builds; a folder for work on one part does without (preset quick), since a changed line compiles its group anew.
set(default OFF)
if(CMAKE_BUILD_TYPE STREQUAL "Release" AND PROJECT_IS_TOP_LEVEL AND NOT HEDDLE_FUZZ)
  set(default ON)
endif()
option(HEDDLE_UNITY "Compile the sources of a folder together" ${default})

# Lets the targets compile the groups of heddle_group_by_folder() as one source each.
function(heddle_use_unity)
  if(NOT HEDDLE_UNITY)
    return()
  endif()
  set_target_properties(${ARGN} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  foreach(target IN LISTS ARGN)
    # g++ compares the names of files to tell whether a type of an anonymous namespace gets around.
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
  endforeach()
endfunction()

# The sources of a folder are a group, so that names of their anonymous namespaces must differ. Kernels
# stay alone, since Highway includes them once per instruction set, and so do folders in which each file gives the same names to its own.
function(heddle_group_by_folder)
  foreach(source IN LISTS ARGN)
    if(NOT source MATCHES "_cpu[.]cpp$|/pack_group[.]cpp$|/model/families/")
      cmake_path(GET source PARENT_PATH group)
      cmake_path(RELATIVE_PATH group BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
      string(MAKE_C_IDENTIFIER ${group} group)
      set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${group})
    endif()
  endforeach()
endfunction()

# Headers that most sources use, read once for all of them. Kernels do without: Highway includes them again for each instruction set.
# As with HEDDLE_UNITY, an #include that is missing is found by target heddle_sources_alone (tests/CMakeLists.txt).
if(HEDDLE_UNITY AND NOT HEDDLE_GPU_CHECK)
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/precompiled.cpp CONTENT "")
  add_library(heddle_precompiled OBJECT EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/precompiled.cpp)
  target_link_libraries(heddle_precompiled PRIVATE heddle_flags)
  target_include_directories(heddle_precompiled PRIVATE ${PROJECT_SOURCE_DIR}/include)
  target_precompile_headers(heddle_precompiled PRIVATE
    <algorithm> <array> <cstdint> <cstring> <filesystem> <fstream> <functional> <limits> <map> <memory> <optional> <ostream> <ranges>
    <span> <string> <string_view> <unordered_map> <utility> <variant> <vector>
    <heddle/core/check.h> <heddle/core/context.h> <heddle/core/dispatch.h> <heddle/core/error.h> <heddle/core/tensor_view.h>)
endif()

# Gives library `target` the precompiled headers, where there are any.
function(heddle_use_precompiled target)
  if(TARGET heddle_precompiled)
    target_precompile_headers(${target} REUSE_FROM heddle_precompiled)
  endif()
endfunction()

# Makes library `target` one of two, as above, which are linked with the libraries that follow.
function(heddle_make_both target)
  add_library(${target}_once OBJECT)
  target_include_directories(${target}_once PRIVATE
    ${HEDDLE_ONCE_FOLDER} ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(${target}_once PRIVATE heddle_flags ${ARGN})
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:${target}_once>)
  heddle_use_precompiled(${target}_once)
  heddle_use_unity(${target} ${target}_once)
  if(NOT HEDDLE_WITH_CUDA)
    add_library(${target}_cpu ALIAS ${target})
    return()
  endif()
  add_library(${target}_cpu STATIC EXCLUDE_FROM_ALL $<TARGET_OBJECTS:${target}_once>)
  target_include_directories(${target}_cpu
    PUBLIC ${CMAKE_BINARY_DIR}/cpu ${PROJECT_SOURCE_DIR}/include PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(${target}_cpu PRIVATE heddle_flags ${ARGN})
  heddle_use_unity(${target}_cpu)
endfunction()

# Adds sources to both libraries.
function(heddle_both_sources target)
  heddle_group_by_folder(${ARGN})
  foreach(source IN LISTS ARGN)
    file(STRINGS ${source} lines REGEX "^#include \"(${HEDDLE_CONFIGURED_HEADERS})\"" LIMIT_COUNT 1)
    if(NOT lines)
      target_sources(${target}_once PRIVATE ${source})
      if(source MATCHES "_cpu[.]cpp$|/pack_group[.]cpp$")
        set_source_files_properties(${source} PROPERTIES SKIP_PRECOMPILE_HEADERS ON
          COMPILE_DEFINITIONS HEDDLE_LEFT_OUT=${HEDDLE_LEFT_OUT})
      endif()
      continue()
    endif()
    target_sources(${target} PRIVATE ${source})
    if(HEDDLE_WITH_CUDA)
      target_sources(${target}_cpu PRIVATE ${source})
    endif()
  endforeach()
endfunction()
