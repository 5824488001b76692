# The CUDA backend: finds nvcc, enables the language, and adds CUDA files to targets. Included before the first target, since CMake
# 3.25 gives no architectures to targets that are older than the language.

set(default AUTO)
if(DEFINED ENV{HEDDLE_CUDA})  # as in HEDDLE_CUDA=OFF make test
  set(default $ENV{HEDDLE_CUDA})
endif()
set(HEDDLE_CUDA ${default} CACHE STRING "CUDA backend: AUTO (where nvcc is found), ON or OFF")
set_property(CACHE HEDDLE_CUDA PROPERTY STRINGS AUTO ON OFF)
set(HEDDLE_CUDA_ARCHITECTURES development CACHE STRING
  "development (PTX for 80, code for 90a), release (code for all), or a list like that of CMAKE_CUDA_ARCHITECTURES")

set(HEDDLE_WITH_CUDA OFF)
if(NOT HEDDLE_CUDA STREQUAL "OFF")
  find_program(HEDDLE_NVCC nvcc HINTS ENV CUDA_PATH PATHS /usr/local/cuda ${PROJECT_SOURCE_DIR}/build/cuda PATH_SUFFIXES bin)
  if(HEDDLE_NVCC)
    set(HEDDLE_WITH_CUDA ON)
  elseif(HEDDLE_CUDA STREQUAL "ON")
    message(FATAL_ERROR "heddle: HEDDLE_CUDA is ON, but nvcc is not on PATH, in CUDA_PATH, in /usr/local/cuda or in build/cuda, "
      "where tools/cuda_toolkit installs it")
  else()
    message(STATUS "heddle: nvcc not found, building for the CPU")
  endif()
endif()

if(NOT HEDDLE_WITH_CUDA)
  return()
endif()

# Portable kernels of the library; and what is not part of it, tests, benches and checks of headers, with as little as runs everywhere.
set(HEDDLE_PORTABLE_ARCHITECTURES ${HEDDLE_CUDA_ARCHITECTURES})
if(HEDDLE_CUDA_ARCHITECTURES STREQUAL "development")
  set(HEDDLE_PORTABLE_ARCHITECTURES 80-virtual 90a-real)
elseif(HEDDLE_CUDA_ARCHITECTURES STREQUAL "release")
  set(HEDDLE_PORTABLE_ARCHITECTURES 80-real 90a-real 100-real 120-real)
  # Chips of 8.6 and 8.9 run the code for 8.0. Much of the time goes into making PTX: that of 9.0 serves all later chips, since these
  # kernels ask for no feature of a single chip, as X_sm90.cu may.
  set(HEDDLE_PORTABLE_CODE "--generate-code=arch=compute_80,code=[sm_80]" "--generate-code=arch=compute_90,code=[sm_90a,sm_100,sm_120]")
endif()
set(CMAKE_CUDA_ARCHITECTURES ${HEDDLE_PORTABLE_ARCHITECTURES})
if(HEDDLE_CUDA_ARCHITECTURES STREQUAL "release")
  set(CMAKE_CUDA_ARCHITECTURES 80-virtual)
endif()
if(NOT CMAKE_CUDA_COMPILER)
  set(CMAKE_CUDA_COMPILER ${HEDDLE_NVCC})
endif()
if(NOT CMAKE_CUDA_HOST_COMPILER)
  set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
endif()
enable_language(CUDA)
if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 13.0)
  message(FATAL_ERROR "heddle: the CUDA backend needs CUDA 13.0, ${CMAKE_CUDA_COMPILER} is ${CMAKE_CUDA_COMPILER_VERSION}")
endif()
find_package(CUDAToolkit 13.0 REQUIRED)
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)
set(CMAKE_CUDA_RUNTIME_LIBRARY None)  # library heddle brings it
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc has C++20
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()

# The CUDA runtime, one object without a visible symbol, becomes part of library heddle. So what is installed needs no toolkit to be
# linked, and no driver to be loaded: the runtime looks for that when it is first called.
get_target_property(HEDDLE_CUDART CUDA::cudart_static IMPORTED_LOCATION)
set(folder ${CMAKE_BINARY_DIR}/cudart)
if(NOT EXISTS ${folder} OR ${HEDDLE_CUDART} IS_NEWER_THAN ${folder})
  file(MAKE_DIRECTORY ${folder})
  execute_process(COMMAND ${CMAKE_AR} x ${HEDDLE_CUDART} WORKING_DIRECTORY ${folder} COMMAND_ERROR_IS_FATAL ANY)
endif()
file(GLOB HEDDLE_CUDART_OBJECTS ${folder}/*.o)
set_source_files_properties(${HEDDLE_CUDART_OBJECTS} PROPERTIES EXTERNAL_OBJECT ON)

list(JOIN HEDDLE_PORTABLE_ARCHITECTURES " " architectures)
message(STATUS "heddle: CUDA ${CMAKE_CUDA_COMPILER_VERSION} for ${architectures}")

# Adds CUDA files to library `target`: portable ones for all architectures, those named X_sm90.cu for 90a alone.
function(heddle_cuda_sources target)
  foreach(variant IN ITEMS cuda sm90)
    set(sources ${ARGN})
    if(variant STREQUAL "sm90")
      list(FILTER sources INCLUDE REGEX "_sm90\\.cu$")
      set(architectures 90a-real)
      set(code)
    else()
      list(FILTER sources EXCLUDE REGEX "_sm90\\.cu$")
      set(architectures ${HEDDLE_PORTABLE_ARCHITECTURES})
      set(code ${HEDDLE_PORTABLE_CODE})
    endif()
    if(NOT sources)
      continue()
    endif()
    set(objects ${target}_${variant})
    if(NOT TARGET ${objects})
      add_library(${objects} OBJECT)
      if(code)
        set(architectures OFF)
      endif()
      set_target_properties(${objects} PROPERTIES CUDA_ARCHITECTURES "${architectures}")
      target_compile_options(${objects} PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:${code}>")
      target_link_libraries(${objects} PRIVATE heddle_flags)
      target_include_directories(${objects} PRIVATE
        ${PROJECT_SOURCE_DIR}/include ${CMAKE_BINARY_DIR}/include ${PROJECT_SOURCE_DIR}/src)
      target_sources(${target} PRIVATE $<TARGET_OBJECTS:${objects}>)
    endif()
    target_sources(${objects} PRIVATE ${sources})
  endforeach()
endfunction()
