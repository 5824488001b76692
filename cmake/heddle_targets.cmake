# heddle_library() and heddle_add_folder(): the functions that turn folders, and the folders in them, into targets. X_test.cpp is a
# test, X_bench.cpp a benchmark, X_fuzz.cpp a fuzz target, and every other .cpp belongs to the library. Builds with CUDA
# add X_cuda.cu and X_cuda.cpp (portable) and X_sm90.cu (for compute capability 9.0 alone) to the library;
# X_cuda_test.cpp or .cu are the tests that run on a GPU, in program test_<folder>_cuda, and each X_cuda_bench.cpp or .cu
# is a program bench_X_cuda.
#
# The adapters of an op's folder belong to other targets: X_c.cpp to the C library (heddle_capi.cmake), and X_python.cpp to the Python
# module (python/CMakeLists.txt).
set(HEDDLE_C_ADAPTERS "_c(_test)?\\.cpp$")
set(HEDDLE_PYTHON_ADAPTERS "_python\\.cpp$")

if(HEDDLE_BUILD_TESTS)
  add_library(heddle_testing STATIC EXCLUDE_FROM_ALL src/testing/main.cpp src/testing/heap_count.cpp)
  target_sources(heddle_testing PRIVATE src/testing/$<IF:$<BOOL:${HWY_FOUND}>,isa,isa_none>.cpp)
  set_source_files_properties(src/testing/isa.cpp PROPERTIES COMPILE_DEFINITIONS HEDDLE_LEFT_OUT=${HEDDLE_LEFT_OUT})
  target_include_directories(heddle_testing PUBLIC src/testing include ${CMAKE_BINARY_DIR}/include)
  target_link_libraries(heddle_testing PUBLIC GTest::gtest hwy::hwy PRIVATE heddle_flags)
  if(HEDDLE_WITH_CUDA)
    target_sources(heddle_testing PRIVATE
      src/testing/bench_program_cuda.cu src/testing/cuda_test.cpp src/testing/device_memory.cu
      src/testing/late_copy.cu)
    target_include_directories(heddle_testing PRIVATE src)
    target_link_libraries(heddle_testing PUBLIC CUDA::cudart_static PRIVATE heddle)
  endif()
endif()

# Gives target `target` what the code of tests is compiled with.
function(heddle_compile_as_test target)
  # Whom the JSON of heddle is compared with.
  target_link_libraries(${target} PRIVATE heddle_testing heddle_flags $<TARGET_NAME_IF_EXISTS:nlohmann_json::nlohmann_json>)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_compile_definitions(${target} PRIVATE HEDDLE_SOURCE_DIR="${HEDDLE_SOURCE_DIR_OF_TESTS}")
  # Tests take far longer to compile than to run: -O1 with inlining of accessors halves what -O3 takes.
  target_compile_options(${target} PRIVATE "$<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:-O1;-finline-small-functions>")
  # With sanitizers, -O0 saves about three times as much when tests are compiled as it costs when they run. The checks for undefined behaviour
  # are for the library: in the code of tests they double what it takes to compile.
  if(HEDDLE_SANITIZE)
    target_compile_options(${target} PRIVATE -O0)
  endif()
  if(HEDDLE_SANITIZE MATCHES "undefined")
    target_compile_options(${target} PRIVATE -fno-sanitize=undefined)
  endif()
endfunction()

# Headers that most tests use, read once for all of the build with sanitizers. The tests of other builds do without, so that an #include
# that is missing does not stay unnoticed. Clang's builds with sanitizers do without: they are for fuzzing.
if(HEDDLE_BUILD_TESTS AND HEDDLE_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/precompiled_test.cpp CONTENT "")
  add_library(heddle_precompiled_test OBJECT EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/precompiled_test.cpp)
  heddle_compile_as_test(heddle_precompiled_test)
  target_compile_features(heddle_precompiled_test PRIVATE cxx_std_20)
  # As in a program: g++ reads only what has been compiled with the very same option.
  set_target_properties(heddle_precompiled_test PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(heddle_precompiled_test PRIVATE -fPIE)
  target_precompile_headers(heddle_precompiled_test PRIVATE
    <gtest/gtest.h> <algorithm> <array> <cmath> <cstdint> <filesystem> <fstream> <functional> <limits> <map> <memory> <numeric> <optional>
    <random> <set> <span> <sstream> <string> <string_view> <utility> <variant> <vector>)
endif()

# Has `make ci` run these tests, and `make test` not.
function(heddle_only_in_ci)
  set_property(TEST ${ARGN} APPEND PROPERTY LABELS ci)
endfunction()

# Target heddle_tested: what `make test` runs of the release build. Target heddle_benches: all programs that only measure.
add_custom_target(heddle_tested)
add_custom_target(heddle_benches)

# Program test_<name> of the given sources, linked with `target` and run as test <name>. Keywords after the sources: LABEL (default unit)
# and LAUNCHER, a command that the test runs through. `make test` runs it in the sanitized build; IN_RELEASE: in the release build.
function(heddle_test target name)
  cmake_parse_arguments(PARSE_ARGV 2 arg "IN_RELEASE" "LABEL;LAUNCHER" "SOURCES")
  add_executable(test_${name} ${arg_SOURCES})
  target_link_libraries(test_${name} PRIVATE ${target})
  heddle_compile_as_test(test_${name})
  if(TARGET heddle_precompiled_test)
    target_precompile_headers(test_${name} REUSE_FROM heddle_precompiled_test)
  endif()
  add_test(NAME ${name} COMMAND ${arg_LAUNCHER} $<TARGET_FILE:test_${name}>)
  if(NOT arg_LABEL)
    set(arg_LABEL unit)
  endif()
  set_tests_properties(${name} PROPERTIES LABELS ${arg_LABEL})
  if(arg_IN_RELEASE)
    add_dependencies(heddle_tested test_${name})
  elseif(NOT HEDDLE_SANITIZE AND NOT arg_LABEL STREQUAL "cuda")
    heddle_only_in_ci(${name})
  elseif(arg_LABEL STREQUAL "cuda" AND NOT EXISTS /dev/nvidiactl)
    heddle_only_in_ci(${name})
  endif()
  # Instrumented code takes ten times as long, and what it computes and how fast is known from the build without: the sanitizers see
  # every branch on small sizes, too.
  if(HEDDLE_SANITIZE)
    set_tests_properties(${name} PROPERTIES ENVIRONMENT HEDDLE_TEST_SMALL=1)
  endif()
endfunction()

# Program fuzz_X of X_fuzz.cpp. With HEDDLE_FUZZ libFuzzer drives it; else it runs the inputs in tests/corpus/X once, as test.
function(heddle_fuzz target source)
  cmake_path(GET source STEM stem)
  string(REGEX REPLACE "_fuzz$" "" name ${stem})
  if(HEDDLE_FUZZ)
    add_executable(fuzz_${name} ${source})
    target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
  elseif(HEDDLE_BUILD_TESTS)
    if(NOT TARGET heddle_fuzz_main)
      add_library(heddle_fuzz_main OBJECT ${PROJECT_SOURCE_DIR}/src/testing/fuzz_main.cpp)
      target_link_libraries(heddle_fuzz_main PRIVATE heddle_flags)
    endif()
    add_executable(fuzz_${name} ${source} $<TARGET_OBJECTS:heddle_fuzz_main>)
    add_test(NAME fuzz_${name} COMMAND fuzz_${name} ${PROJECT_SOURCE_DIR}/tests/corpus/${name})
    set_tests_properties(fuzz_${name} PROPERTIES LABELS fuzz)
    if(NOT HEDDLE_SANITIZE)
      heddle_only_in_ci(fuzz_${name})
    endif()
  else()
    return()
  endif()
  set_target_properties(fuzz_${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})  # where tools/fuzz.sh looks
  target_link_libraries(fuzz_${name} PRIVATE ${target} heddle_flags $<TARGET_NAME_IF_EXISTS:nlohmann_json::nlohmann_json>)
  target_include_directories(fuzz_${name} PRIVATE ${PROJECT_SOURCE_DIR}/src)
endfunction()

# Moves the names of list `from` that match the regular expression to list `to`.
function(heddle_move_matching from to regex)
  set(matching ${${from}})
  list(FILTER matching INCLUDE REGEX ${regex})
  list(FILTER ${from} EXCLUDE REGEX ${regex})
  set(${from} ${${from}} PARENT_SCOPE)
  set(${to} ${matching} PARENT_SCOPE)
endfunction()

# Adds the sources in the folder (relative to the project) and below to library `target`, its tests as program test_<name>.
function(heddle_add_folder target name folder)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS
    ${PROJECT_SOURCE_DIR}/${folder}/*.cpp ${PROJECT_SOURCE_DIR}/${folder}/*.cu)
  list(FILTER sources EXCLUDE REGEX "${HEDDLE_C_ADAPTERS}|${HEDDLE_PYTHON_ADAPTERS}|/xgrammar_library[.]cpp$|/no_library[.]cpp$")
  heddle_add_sources(${target} ${name} ${sources})
endfunction()

# Adds a list of sources to library `target`, its tests as program test_<name>.
function(heddle_add_sources target name)
  set(sources ${ARGN})
  heddle_move_matching(sources cuda_tests "_cuda_test\\.(cpp|cu)$")
  heddle_move_matching(sources cuda_benches "_cuda_bench\\.(cpp|cu)$")
  heddle_move_matching(sources cuda_sources "(_cuda\\.cpp|\\.cu)$")
  heddle_move_matching(sources tests "_test\\.cpp$")
  heddle_move_matching(sources benches "_bench\\.cpp$")
  heddle_move_matching(sources fuzzers "_fuzz\\.cpp$")

  if(NOT HWY_FOUND)
    list(FILTER sources EXCLUDE REGEX "_cpu\\.cpp$")
    set(tests)
  endif()
  if(NOT TARGET PkgConfig::XXHASH)  # in a build of heddle_gpu_check.cmake without model and engine, which alone call it
    list(FILTER sources EXCLUDE REGEX "/src/core/digest\\.cpp$")
    list(FILTER tests EXCLUDE REGEX "/src/core/test/digest_test\\.cpp$")
  endif()
  if(TARGET ${target}_once AND NOT name STREQUAL "cuda")
    heddle_both_sources(${target} ${sources})
  else()
    heddle_group_by_folder(${sources})
    target_sources(${target} PRIVATE ${sources})
  endif()
  set_property(GLOBAL APPEND PROPERTY HEDDLE_BENCH_SOURCES ${benches})
  if(HEDDLE_BUILD_TESTS AND tests)
    heddle_test(${target} ${name} SOURCES ${tests})
  endif()
  foreach(fuzzer IN LISTS fuzzers)
    heddle_fuzz(${target} ${fuzzer})
  endforeach()
  if(NOT HEDDLE_WITH_CUDA)
    return()
  endif()
  heddle_cuda_sources(${target} ${cuda_sources})
  if(HEDDLE_BUILD_TESTS AND cuda_tests)
    heddle_test(${target} ${name}_cuda SOURCES ${cuda_tests} LABEL cuda)
  endif()
  if(HEDDLE_BUILD_TESTS)
    foreach(bench IN LISTS cuda_benches)
      heddle_cuda_bench(${target} ${bench})
    endforeach()
  endif()
endfunction()

# Program bench_X_cuda of X_cuda_bench.cpp or .cu, which times kernels on a GPU. Its main calls testing::run_bench, and it uses
# nothing but the library, the test tools and CUDA, so that it is built where google-benchmark is not; X_cublas_cuda_bench also
# cuBLASLt.
function(heddle_cuda_bench target source)
  cmake_path(GET source STEM stem)
  string(REGEX REPLACE "_cuda_bench$" "" name ${stem})
  if(name MATCHES "_cublas$" AND NOT TARGET CUDA::cublasLt)
    message(STATUS "heddle: cuBLASLt not found, leaving out bench_${name}_cuda")
    return()
  endif()
  add_executable(bench_${name}_cuda ${source})
  if(NOT HEDDLE_GPU_CHECK)
    set_target_properties(bench_${name}_cuda PROPERTIES EXCLUDE_FROM_ALL ON)
    add_dependencies(heddle_benches bench_${name}_cuda)
  endif()
  target_link_libraries(bench_${name}_cuda PRIVATE ${target} heddle_testing heddle_flags CUDA::cudart_static)
  if(name MATCHES "_cublas$")
    target_link_libraries(bench_${name}_cuda PRIVATE CUDA::cublasLt)
  endif()
  target_include_directories(bench_${name}_cuda PRIVATE ${PROJECT_SOURCE_DIR}/src)
endfunction()

# A library of whole folders; its tests are one program named like the last folder of each.
function(heddle_library target)
  add_library(${target})
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:heddle_flags>)
  target_include_directories(${target}
    PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<BUILD_INTERFACE:${CMAKE_BINARY_DIR}/include>
           $<INSTALL_INTERFACE:include>
    PRIVATE ${PROJECT_SOURCE_DIR}/src)
  foreach(folder IN LISTS ARGN)
    cmake_path(GET folder FILENAME name)
    heddle_add_folder(${target} ${name} ${folder})
  endforeach()
endfunction()
