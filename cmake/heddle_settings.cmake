# Compiler settings, dependencies and the CUDA toolkit: what every target shares.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
# The code is kept free of the warnings of g++ 12, the compiler of Debian 12; others have others, some of them wrong.
if(PROJECT_IS_TOP_LEVEL AND NOT DEFINED CMAKE_COMPILE_WARNING_AS_ERROR
   AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  set(CMAKE_COMPILE_WARNING_AS_ERROR ON)
endif()
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

# A compiler cache where one is installed. Clones share it: paths below the project count from its root.
# Comments count: a precompiled header of a header that has other ones defines everything twice.
find_program(HEDDLE_CCACHE ccache)
mark_as_advanced(HEDDLE_CCACHE)
if(HEDDLE_CCACHE AND PROJECT_IS_TOP_LEVEL AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
    CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_COMMENTS=1 ${HEDDLE_CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()

option(HEDDLE_GPU_CHECK "Build what tools/gpu_check runs and nothing else: the tests and GPU benches of the ops" OFF)
set(HEDDLE_SOURCE_DIR_OF_TESTS ${PROJECT_SOURCE_DIR})
include(heddle_dependencies)
include(heddle_cuda)
set(HEDDLE_WITH_CUDA_VALUE false)
if(HEDDLE_WITH_CUDA)
  set(HEDDLE_WITH_CUDA_VALUE true)
endif()
configure_file(include/heddle/config.h.in ${CMAKE_BINARY_DIR}/include/heddle/config.h @ONLY)

# Flags of our own code. Contraction is off, also in kernels, so that a fused multiply-add stands only where the code asks for
# one: bits must not depend on what the optimiser joins. x86-64-v2 (SSE4.2, machines from 2009 on) is the oldest instruction
# set; Highway adds AVX2 and AVX-512 and chooses at run time. Kernels may call constexpr functions (--expt-relaxed-constexpr), so that
# what host and device compute alike is written once, in headers that a C++ compiler reads too and that need no macro for it.
set(HEDDLE_FLAGS -Wall -Wextra -Wconversion -Wno-sign-conversion -ffp-contract=off)
if(CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
  list(APPEND HEDDLE_FLAGS -march=x86-64-v2)
elseif(CMAKE_SYSTEM_PROCESSOR STREQUAL "aarch64")
  list(APPEND HEDDLE_FLAGS -march=armv8-a+crypto)  # what Highway compiles NEON for; with less, g++ inlines none of it
endif()
add_library(heddle_flags INTERFACE)
target_compile_options(heddle_flags INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:${HEDDLE_FLAGS}>"
  "$<$<COMPILE_LANGUAGE:CUDA>:--fmad=false;--expt-relaxed-constexpr;-Xcompiler=$<JOIN:${HEDDLE_FLAGS},$<COMMA>>>")
if(NOT HEDDLE_PORTABLE_CODE)
  target_compile_options(heddle_flags INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:-lineinfo>)  # for profilers
endif()
# PCLMUL and AES are not used; x86-64-v2 lacks them, and with them Highway's baseline would be scalar code. Vectors of SVE have no
# size, and the kernels keep arrays of vectors: on ARM that leaves NEON.
set(HEDDLE_DISABLED_TARGETS HWY_SSSE3|HWY_AVX3_DL)
if(CMAKE_SYSTEM_PROCESSOR STREQUAL "aarch64")
  set(HEDDLE_DISABLED_TARGETS HWY_SVE|HWY_SVE2|HWY_SVE_256|HWY_SVE2_128)
endif()
# For sources that Highway includes once per instruction set, HEDDLE_LEFT_OUT names more; elsewhere the preprocessor takes it for 0.
target_compile_definitions(heddle_flags INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:HWY_DISABLED_TARGETS=(${HEDDLE_DISABLED_TARGETS}|HEDDLE_LEFT_OUT);HWY_DISABLE_PCLMUL_AES>")

# The instruction sets of the CPU kernels: all, or machine, the portable one and the best of this machine, which is the one that runs here.
set(HEDDLE_INSTRUCTION_SETS all CACHE STRING "Instruction sets that CPU kernels are compiled for: all, or machine (the portable one and this machine's best)")
set_property(CACHE HEDDLE_INSTRUCTION_SETS PROPERTY STRINGS all machine)
set(HEDDLE_LEFT_OUT 0)
if(HEDDLE_INSTRUCTION_SETS STREQUAL "machine" AND CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
  file(STRINGS /proc/cpuinfo flags REGEX "^flags" LIMIT_COUNT 1)
  set(HEDDLE_LEFT_OUT HWY_AVX3)
  if(flags MATCHES " avx512f " AND flags MATCHES " avx512bw " AND flags MATCHES " avx512dq " AND flags MATCHES " avx512vl ")
    set(HEDDLE_LEFT_OUT HWY_AVX2)
  endif()
endif()

set(HEDDLE_SANITIZE "" CACHE STRING "Sanitizers for -fsanitize=, e.g. address,undefined")
if(HEDDLE_SANITIZE)
  add_compile_options(-fsanitize=${HEDDLE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${HEDDLE_SANITIZE})
endif()

option(HEDDLE_FUZZ "Build the libFuzzer targets (needs clang)" OFF)
if(HEDDLE_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "heddle: HEDDLE_FUZZ needs clang, the compiler is ${CMAKE_CXX_COMPILER_ID}")
  endif()
  set(CMAKE_COMPILE_WARNING_AS_ERROR OFF)  # the code is kept free of GCC's warnings; clang has others
  add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all)
  add_link_options(-fsanitize=address,undefined)
endif()
